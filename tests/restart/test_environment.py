"""Section "Environment" of the contract: each variable, its default, and each bad value."""

import json
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.restart.kit import SUMMARY, Desk, refused

BAD_VALUES = [
    ("AGENT_MAX_ATTEMPTS", "0"),
    ("AGENT_MAX_ATTEMPTS", "-1"),
    ("AGENT_MAX_ATTEMPTS", "x"),
    ("AGENT_MAX_ATTEMPTS", "1.5"),
    ("AGENT_MAX_ATTEMPTS", "\u0663"),
    ("AGENT_CRASH_AT", "nope:1"),
    ("AGENT_CRASH_AT", "before_effect"),
    ("AGENT_CRASH_AT", "before_effect:"),
    ("AGENT_CRASH_AT", "before_effect:-1"),
    ("AGENT_CRASH_AT", "before_effect:1:2"),
    ("AGENT_STEP_DELAY", "-1"),
    ("AGENT_STEP_DELAY", "nan"),
    ("AGENT_STEP_DELAY", "inf"),
    ("AGENT_STEP_DELAY", "soon"),
    ("AGENT_LLM", "oracle"),
    ("AGENT_UNSAFE_EFFECTS", "yes"),
    ("LABKIT_CLOCK", "noon"),
    ("LABKIT_CLOCK", "-5"),
    ("LABKIT_RUN_IDS", "xyz"),
    ("LABKIT_RUN_IDS", "0000000"),
    ("LABKIT_RUN_IDS", "0000000A"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "value"), BAD_VALUES)
def test_64_a_bad_value(desk: Desk, name: str, value: str) -> None:
    """Nothing is written by a run that does not understand its environment."""
    desk.create()
    refused(desk.run("run", "t", env={name: value}), 64, name)
    assert desk.kinds() == ["task_created"]
    assert desk.statuses()[0] == "pending"


def test_agent_crash_at_a_step_that_the_task_does_not_have(desk: Desk) -> None:
    """A typo must not look like a survived crash."""
    desk.create()
    refused(desk.run("run", "t", env={"AGENT_CRASH_AT": "after_commit:3"}), 64, "AGENT_CRASH_AT")
    assert desk.kinds() == ["task_created"]


def test_empty_values_are_no_values(desk: Desk) -> None:
    names = ("CRASH_AT", "STEP_DELAY", "MAX_ATTEMPTS", "ARTIFACTS", "UNSAFE_EFFECTS", "LLM")
    desk.create()
    assert desk.run("run", "t", env={f"AGENT_{name}": "" for name in names}).code == 0
    assert desk.published() == {"t-2.md": SUMMARY}


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_agent_max_attempts_counts_the_first(desk: Desk, attempts: int) -> None:
    desk.tools("def fail(i, c, idem_key):\n    _seen(idem_key, 'fail')\n    raise ValueError\n")
    desk.create({"goal": "g", "steps": [{"tool": "fail", "input": {}}]})
    refused(desk.run("run", "t", env={"AGENT_MAX_ATTEMPTS": str(attempts)}), 2)
    assert desk.calls() == {"t-0": attempts}


def test_agent_step_delay_is_before_the_tool(desk: Desk) -> None:
    """Three steps of 50 ms: the whole run takes at least that long, by the journal's times."""
    desk.create()
    assert desk.run("run", "t", env={"AGENT_STEP_DELAY": ".05"}).code == 0
    times = desk.rows("SELECT ts FROM events WHERE kind LIKE 'step%' ORDER BY seq")
    gaps = [after - before for before, after in zip(times[::2], times[1::2], strict=True)]
    assert len(gaps) == 3
    assert min(gaps) >= 0.05


def test_agent_artifacts(desk: Desk) -> None:
    desk.create()
    elsewhere = desk.folder.parent / "made here" / "and here"
    assert desk.run("run", "t", env={"AGENT_ARTIFACTS": str(elsewhere)}).code == 0
    assert elsewhere.is_dir()
    assert (elsewhere / "t-2.md").read_text("utf-8") == SUMMARY
    assert not desk.artifacts.exists()


def test_agent_unsafe_effects_appends(desk: Desk) -> None:
    desk.create(task="a")
    desk.create(task="b")
    for task in ("a", "b"):
        assert desk.run("run", task, env={"AGENT_UNSAFE_EFFECTS": "1"}).code == 0
    assert desk.published() == {"report.log": f"{SUMMARY}\n---\n" * 2}
    assert desk.run("run", "a", env={"AGENT_UNSAFE_EFFECTS": "0"}).code == 0


def test_labkit_run_ids_and_clock_make_a_journal_repeatable(desk: Desk) -> None:
    """Ids by the ordinal of the run, past the end of the list by its number."""
    env = {"LABKIT_RUN_IDS": "aaaaaaaa,bbbbbbbb", "LABKIT_CLOCK": "1767225600+0.5"}
    desk.create()
    for idx in range(2):
        crash = {"AGENT_CRASH_AT": f"after_commit:{idx}"}
        assert desk.run("run", "t", env={**env, **crash}).code == -9
    assert desk.run("run", "t", env=env).code == 0
    runs = desk.rows("SELECT run_id FROM events WHERE kind = 'run_started' ORDER BY seq")
    assert runs == ["aaaaaaaa", "bbbbbbbb", "00000003"]
    times = desk.rows("SELECT ts FROM events WHERE run_id = 'bbbbbbbb' ORDER BY seq")
    assert all(time >= 1767225600 for time in times)
    assert times == sorted(set(times))


def test_without_them_ids_are_random_and_time_is_real(desk: Desk) -> None:
    begin = time.time()
    desk.create(task="a")
    desk.create(task="b")
    assert desk.run("run", "a").code == desk.run("run", "b").code == 0
    runs = desk.rows("SELECT run_id FROM events WHERE kind = 'run_started'")
    assert len(set(runs)) == 2
    assert all(len(run) == 8 and int(run, 16) >= 0 for run in runs)
    times = desk.rows("SELECT ts FROM events WHERE run_id IS NOT NULL")
    assert begin <= min(times) <= max(times) <= time.time()


class Ollama(HTTPServer):
    """A model on loopback that gives every request the same answer and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.status, self.answer, self.asked = 200, b"", list[tuple[str, Any]]()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def env(self, **more: str) -> dict[str, str]:
        # A proxy that does not exist: a prompt for this machine must not leave it.
        proxies = {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""}
        return {"AGENT_LLM": "ollama", "OLLAMA_URL": self.url, **proxies, **more}


class Answering(BaseHTTPRequestHandler):
    server: Ollama

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, json.loads(body)))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def ollama() -> Iterator[Ollama]:
    server = Ollama()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_agent_llm_a_good_answer(desk: Desk, ollama: Ollama) -> None:
    ollama.answer = json.dumps({"response": "Коротко.", "done": True}).encode()
    desk.create()
    assert desk.run("run", "t", env=ollama.env()).code == 0
    output = json.loads(desk.rows("SELECT output FROM steps WHERE idx = 1")[0])
    assert output == {"summary": "Коротко.", "engine": "ollama"}
    assert desk.published() == {"t-2.md": "Коротко."}
    ((path, asked),) = ollama.asked
    assert path == "/api/generate"
    assert asked["model"] == "llama3.2"
    assert asked["stream"] is False
    assert "First line.\nSecond line." in asked["prompt"]


def test_ollama_model(desk: Desk, ollama: Ollama) -> None:
    ollama.answer = b'{"response": "Short."}'
    desk.create()
    assert desk.run("run", "t", env=ollama.env(OLLAMA_MODEL="tiny")).code == 0
    assert [asked["model"] for _, asked in ollama.asked] == ["tiny"]


BAD_ANSWERS = {
    "garbage": (200, b"<html>"),
    "no UTF-8": (200, b'{"response": "\xff"}'),
    "empty": (200, b""),
    "a list": (200, b"[]"),
    "no response": (200, b'{"error": "no such model"}'),
    "a response of a wrong type": (200, b'{"response": null}'),
    "an error": (500, b'{"response": "Short."}'),
}


@pytest.mark.sampled
@pytest.mark.parametrize(("status", "answer"), BAD_ANSWERS.values(), ids=BAD_ANSWERS)
def test_agent_llm_a_bad_answer(desk: Desk, ollama: Ollama, status: int, answer: bytes) -> None:
    """A step_error that names the model's address, and another attempt."""
    ollama.status, ollama.answer = status, answer
    desk.create()
    refused(desk.run("run", "t", env=ollama.env()), 2, ollama.url)
    assert len(ollama.asked) == 3
    assert desk.published() == {}
    desk.require_balanced()


def test_agent_llm_a_refused_connection(desk: Desk, ollama: Ollama) -> None:
    env = ollama.env()
    ollama.server_close()  # the port is free, and nobody listens
    desk.create()
    refused(desk.run("run", "t", env=env), 2, ollama.url)
    assert len(desk.data("step_error")) == 3


def test_agent_llm_is_not_asked_again_about_a_done_step(desk: Desk, ollama: Ollama) -> None:
    ollama.answer = b'{"response": "Short."}'
    desk.create()
    killed = ollama.env(AGENT_CRASH_AT="before_effect:2")
    assert desk.run("run", "t", env=killed).code == -9
    ollama.answer = b'{"response": "Another."}'
    assert desk.run("run", "t", env=ollama.env()).code == 0
    assert desk.published() == {"t-2.md": "Short."}
    assert len(ollama.asked) == 1
    assert os.listdir(desk.artifacts) == ["t-2.md"]

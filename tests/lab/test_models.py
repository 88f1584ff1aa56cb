"""The counting model: it speaks as Ollama documents, counts every call, and outlives no kernel."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from labkit import lab
from labkit.errors import UsageError
from labkit.lab import content, verbs
from labkit.lab.models import Model
from labkit.lab.places import originals
from labkit.lab.scenarios.model import CALLS, answer_to, subject

PROMPT = "Summarize in three lines:\n\nThe pump stopped.\nTwice."
ANSWER = "In short: The pump stopped."
ASK = {"model": "llama3.2", "prompt": PROMPT}


class Reply(NamedTuple):
    status: int
    kind: str
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    with Model(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """One for all requests that it refuses: they leave nothing behind, which each test sees."""
    with Model(tmp_path_factory.mktemp("refusing")) as started:
        yield started


@pytest.fixture
def begun_09(home: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    lab.begin("09")
    capsys.readouterr()
    yield
    lab.end()


def port(model: Model) -> int:
    return int(model.url.rpartition(":")[2])


def send(
    model: Model,
    body: bytes | None,
    path: str = "/api/generate",
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> Reply:
    connection = HTTPConnection("127.0.0.1", port(model), timeout=20)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    reply = Reply(answer.status, answer.headers["Content-Type"], answer.read())
    connection.close()
    return reply


def ask(asked: Model, **more: object) -> Reply:
    return send(asked, json.dumps({**ASK, **more}).encode())


def test_without_streaming_the_answer_is_one_object(model: Model) -> None:
    reply = ask(model, stream=False)
    assert (reply.status, reply.kind) == (200, "application/json; charset=utf-8")
    assert reply.json == {
        "model": "llama3.2",
        "created_at": "2026-01-01T00:00:00Z",
        "response": ANSWER,
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 8,
        "eval_count": 5,
    }


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"stream": None}], ids=str)
def test_streamed_as_by_default_it_comes_in_lines(model: Model, more: dict[str, Any]) -> None:
    reply = ask(model, **more)
    assert (reply.status, reply.kind) == (200, "application/x-ndjson")
    lines = [json.loads(line) for line in reply.body.splitlines()]
    assert "".join(line["response"] for line in lines) == ANSWER
    assert [line["done"] for line in lines] == [False] * 5 + [True]
    assert lines[-1]["response"] == ""
    assert lines[-1]["done_reason"] == "stop"
    assert {(line["model"], line["created_at"]) for line in lines} == {
        ("llama3.2", "2026-01-01T00:00:00Z")
    }


def test_an_answer_is_made_of_the_prompt_alone(model: Model) -> None:
    first, second = (ask(model, stream=False, options={"seed": n}).body for n in (1, 2))
    assert first == second
    assert ask(model, stream=False, model="another").json["model"] == "another"
    other = ask(model, stream=False, prompt="Who called?\n").json["response"]
    assert other == answer_to("Who called?") == "In short: Who called?"
    assert subject(" \n ") == ""
    text = "Kurz:\n\nPumpe für \ud83d"  # half of a pair, as a cut text may hold
    assert ask(model, stream=False, prompt=text).json["response"] == "In short: Pumpe für \ud83d"


def test_without_a_prompt_nothing_is_generated_and_nothing_counted(model: Model) -> None:
    for more in ({"prompt": ""}, {"prompt": None}, {"prompt": "", "stream": True}):
        reply = ask(model, **more)
        assert (reply.status, reply.json["response"], reply.json["done_reason"]) == (
            200,
            "",
            "load",
        )
    assert model.calls() == 0


BAD_BODIES = {
    "none": (None, "missing request body"),
    "empty": (b"", "missing request body"),
    "no JSON": (b"{", "not JSON"),
    "no UTF-8": (b'{"model": "\xff"}', "not JSON"),
    "deep": (b"[" * 100_000, "not JSON"),
    "a list": (b"[]", "no JSON object"),
    "no model": (b'{"prompt": "x"}', "model is required"),
    "a model of no name": (b'{"model": "", "prompt": "x"}', "model is required"),
    "a model of a wrong type": (b'{"model": 1, "prompt": "x"}', "model is no text"),
    "a prompt of a wrong type": (b'{"model": "m", "prompt": ["x"]}', "prompt is no text"),
    "a stream of a wrong type": (b'{"model": "m", "stream": "no"}', "stream is no true or false"),
}


@pytest.mark.parametrize(("body", "says"), BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_bad_request_is_400_in_json_and_costs_nothing(
    refusing: Model, body: bytes | None, says: str
) -> None:
    reply = send(refusing, body)
    assert (reply.status, reply.kind) == (400, "application/json; charset=utf-8")
    assert says in reply.json["error"]
    assert list(reply.json) == ["error"]
    assert refusing.calls() == 0
    assert ask(refusing, prompt="").status == 200


@pytest.mark.parametrize("length", ["-1", "x", "99999999999"])
def test_a_length_that_is_none_is_400(refusing: Model, length: str) -> None:
    reply = send(refusing, None, headers={"Content-Length": length})
    assert (reply.status, reply.json) == (400, {"error": f"no body of {length} bytes"})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/", 404),
        ("POST", "/api/chat", 404),
        ("POST", "/api/generate/", 404),
        ("GET", "/api/tags", 404),
        ("GET", "/api/generate", 405),
    ],
)
def test_another_path_or_method_is_refused(
    refusing: Model, method: str, path: str, status: int
) -> None:
    assert send(refusing, json.dumps(ASK).encode(), path, method).status == status
    assert refusing.calls() == 0


def test_calls_at_the_same_moment_are_all_counted(model: Model) -> None:
    def one(number: int) -> str:
        return str(ask(model, stream=False, prompt=f"call {number}").json["response"])

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(40)))
    assert answers == [f"In short: call {number}" for number in range(40)]
    assert model.calls() == 40
    assert sorted(model.prompts()) == sorted(f"call {number}" for number in range(40))
    assert model.asked().index.tolist() == list(range(1, 41))


def test_it_listens_on_loopback_only(model: Model) -> None:
    """127.0.0.2 is this machine too: a server bound to every address would answer there."""
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", port(model)), timeout=5)


def test_nothing_that_is_shown_has_its_port(
    begun_09: None, capsys: pytest.CaptureFixture[str]
) -> None:
    model = lab.model()
    lab.run("agent create notes plan.json")
    lab.run("agent run notes", AGENT_LLM="ollama")
    seen = capsys.readouterr().out + repr(model) + repr(model.asked())
    assert str(port(model)) not in seen
    assert repr(model) == "a model that was called 5 times"


def test_a_caller_that_is_gone_does_no_harm(model: Model) -> None:
    model.hold()
    body = json.dumps(ASK).encode()
    with socket.create_connection(("127.0.0.1", port(model))) as caller:
        caller.sendall(b"POST /api/generate HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body))
        caller.sendall(body)
        while not model._tell("GET", "/lab/open", {})["open"]:
            pass
    model.release()
    assert ask(model, stream=False).json["response"] == ANSWER
    assert model.calls() == 2


@pytest.mark.parametrize("nth", [0, -1, True, "1", 1.0])
def test_a_hold_needs_the_number_of_a_call(model: Model, nth: Any) -> None:
    with pytest.raises(UsageError, match="1 for the next one"):
        model.hold(nth)


def test_a_call_is_open_until_it_is_released(begun_09: None) -> None:
    """Counted, not answered; and the kill of the agent does not reach the model."""
    model = lab.model()
    lab.run("agent create notes plan.json")
    model.hold(4)
    agent = lab.start("agent run notes", AGENT_LLM="ollama")
    model.wait_for_call(agent)
    assert model.calls() == 4
    assert lab.kill(agent).killed
    model.release()
    assert lab.run("agent run notes", AGENT_LLM="ollama").code == 0
    assert model.asked()["asked about"].str.partition(":")[0].tolist() == [
        "Monday", "Tuesday", "Wednesday", "Thursday", "Thursday", "Friday"
    ]  # fmt: skip


def test_waiting_for_a_call_that_never_comes_ends(begun_09: None) -> None:
    model = lab.model()
    lab.run("agent create notes plan.json")
    agent = lab.start("agent run notes", AGENT_LLM="ollama")
    with pytest.raises(lab.NotReady, match=r"ended \(exit 0: done\) before a call"):
        model.wait_for_call(agent)
    slow = lab.start("agent create more plan.json", AGENT_STEP_DELAY="60")
    slow.finish()
    slow = lab.start("agent run more", AGENT_STEP_DELAY="60")
    with pytest.raises(lab.NotReady, match=r"no call is open after 0\.2 s"):
        model.wait_for_call(slow, timeout_s=0.2)


def test_a_second_model_begins_at_zero_and_ends_the_first(begun_09: None) -> None:
    first = lab.model()
    assert ask(first).status == 200
    second = lab.model()
    assert (first.calls(), second.calls()) == (1, 0)
    with pytest.raises(lab.NotReady, match=r"run the cell with lab\.model\(\) again"):
        first.hold()
    with pytest.raises(OSError, match="refused"):
        ask(first)


def test_the_end_of_the_notebook_ends_the_model(home: Path) -> None:
    lab.begin("09")
    model = lab.model()
    lab.end()
    with pytest.raises(OSError, match="refused"):
        ask(model)
    with pytest.raises(lab.NotReady, match=r"lab\.begin"):
        lab.model()


def test_what_it_says_when_it_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "calls.jsonl").mkdir()
    with pytest.raises(lab.NotReady, match="the model did not start: Traceback"):
        Model(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "labkit.lab.scenarios.model"], capture_output=True, check=False
    )
    assert (done.returncode, b"give one argument" in done.stderr) == (64, True)


KERNEL = """
import sys
from labkit import lab
lab.begin("09")
model = lab.model()
print(model.url, flush=True)
sys.stdin.read()
"""


def test_it_dies_with_its_kernel(tmp_path: Path) -> None:
    environ = {**os.environ, "LABKIT_HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", KERNEL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environ,
        text=True,
    ) as kernel:
        assert kernel.stdout is not None
        while not (line := kernel.stdout.readline()).startswith("http"):
            assert line, "the kernel ended early"
        number = int(line.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", number)).close()
        kernel.send_signal(signal.SIGKILL)
    while True:  # the guard needs a moment; the time limit of the test bounds it
        try:
            socket.create_connection(("127.0.0.1", number)).close()
        except OSError:
            break


def test_a_proxy_of_this_machine_is_gone_round(
    begun_09: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner's tool uses plain urllib, which would send the call to a proxy."""
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    lab.model()
    code = (
        "def ask(input, ctx, idem_key):\n"
        "    import os, urllib.request\n"
        "    url = os.environ['OLLAMA_URL'] + '/api/generate'\n"
        '    body = b\'{"model": "m", "prompt": "Hi", "stream": false}\'\n'
        "    return urllib.request.urlopen(url, body).read().decode()\n"
    )
    folder = verbs.current_folder().path
    (folder / "mine.py").write_text(code, "utf-8")
    plan = {"goal": "g", "steps": [{"tool": "ask", "input": {}}]}
    (folder / "asks.json").write_text(json.dumps(plan), "utf-8")
    lab.run("agent --tools mine.py create x asks.json")
    assert lab.run("agent --tools mine.py run x").code == 0


@pytest.mark.proof
def test_the_bill_of_each_moment(begun_09: None) -> None:
    """Before the call nothing is lost; an open or uncommitted answer is; a committed one is not."""
    lab.model()
    paid = {moment: lab.bill(f"{moment}:7").paid for moment in ("before_effect", "after_commit")}
    paid |= {moment: lab.bill(f"{moment}:7").paid for moment in ("call_open", "after_effect")}
    assert paid == {"before_effect": 5, "after_commit": 5, "call_open": 6, "after_effect": 6}
    naive = [lab.bill(f"{moment}:7", journal=False).paid for moment in paid]
    assert naive == [8, 9, 9, 9]


def test_bills_make_a_table_and_a_picture_that_says_the_same(begun_09: None) -> None:
    bills = [
        lab.Bill(place, journal, 5, paid)
        for place, journal, paid in [
            ("call_open:1", False, 6),
            ("call_open:1", True, 6),
            ("x:9", True, 7),
        ]
    ]
    table = lab.tabulate_bills(bills)
    assert table.loc["call_open:1"].tolist() == [5, 6, 6]
    picture = lab.draw_bills(bills)
    assert picture.table.equals(table)
    assert picture.summary == (
        "Model calls paid where 5 are needed: killed at call_open:1 6 without a journal, 6 with "
        "the journal; killed at x:9 7 with the journal."
    )
    with pytest.raises(UsageError, match="at least one bill"):
        lab.draw_bills([])


def test_a_bill_needs_a_place_and_a_model(begun_09: None) -> None:
    with pytest.raises(lab.NotReady, match=r"run the cell with lab\.model\(\) first"):
        lab.bill("after_effect:1")
    lab.model()
    for place in ("after_effect", "nowhere:1", "after_effect:x", "call_open:-1"):
        with pytest.raises(UsageError, match="is no place to be killed"):
            lab.bill(place)
    with pytest.raises(UsageError, match="step 0 does not ask"):
        lab.bill("call_open:0")
    with pytest.raises(lab.NotReady, match="so no bill"):
        lab.bill("after_effect:99")


def commands() -> list[str]:
    """What notebook 09 tells a reader to type where a real Ollama runs."""
    path = originals() / content.notebook("09").file
    cells = json.loads(path.read_text("utf-8"))["cells"]
    text = "".join(next(cell["source"] for cell in cells if cell["id"] == "09-real-text"))
    return text.partition("```bash\n")[2].partition("```")[0].splitlines()


def type_commands(folder: Path, environ: dict[str, str]) -> list[tuple[int, str]]:
    """The status and the output of each `labkit` command, in a folder like a checkout."""
    activated, copied, exported, *lines = commands()
    assert activated == ". .venv/bin/activate"
    source, target = copied.partition(" && ")[0].split()[2:]
    shutil.copytree(Path(originals()).parent / source, folder / target)
    assert copied == f"cp -r {source} {target} && cd {target}"
    settings = dict(word.split("=") for word in exported.split()[1:])
    return [typed(line, folder / target, {**settings, **environ}) for line in lines]


def typed(line: str, folder: Path, environ: dict[str, str]) -> tuple[int, str]:
    words = line.split()
    own = dict(word.split("=") for word in words if "=" in word)
    program, *argv = words[len(own) :]
    assert program == "labkit"
    done = subprocess.run(
        [sys.executable, "-m", program, *argv],
        cwd=folder,
        env={**os.environ, **environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def require_the_end(ran: list[tuple[int, str]]) -> None:
    assert [code for code, _ in ran] == [0, -9, 0, 0]
    steps = json.loads(ran[-1][1])["steps"]
    assert [step["attempts"] for step in steps] == [1] * 7 + [2] + [1] * 3


def test_the_commands_for_a_real_ollama(model: Model, tmp_path: Path) -> None:
    """They do not know which one answers. It is asked for the model that they name."""
    require_the_end(type_commands(tmp_path, model.environ()))
    assert model.calls() == 6
    assert {json.loads(line)["model"] for line in (tmp_path / CALLS).read_text().splitlines()} == {
        "llama3.2"
    }


def ollama_here() -> bool:
    """Whether an Ollama runs on this machine that has the model which the commands name."""
    connection = HTTPConnection("127.0.0.1", 11434, timeout=2)
    try:
        connection.request("GET", "/api/tags")
        names = [each["name"] for each in json.load(connection.getresponse())["models"]]
    except (OSError, ValueError, LookupError, TypeError):
        return False
    finally:
        connection.close()
    return "llama3.2:latest" in names


@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not ollama_here(), reason="no Ollama with llama3.2 on this machine")
def test_the_same_commands_with_the_ollama_of_this_machine(tmp_path: Path) -> None:
    require_the_end(type_commands(tmp_path, {"OLLAMA_URL": ""}))


def test_an_agent_that_gives_up_has_paid_three_calls_for_nothing(begun_09: None) -> None:
    """As the end of notebook 09 says; and the journal says that nobody knows the answer."""
    model = lab.model()
    lab.run("agent create notes plan.json")
    killed = {"AGENT_LLM": "ollama", "AGENT_CRASH_AT": "after_effect:1"}
    assert [lab.run("agent run notes", **killed).killed for _ in range(3)] == [True] * 3
    assert lab.run("agent run notes", AGENT_LLM="ollama").code == 2
    assert model.calls() == 3
    assert lab.journal().sql("SELECT output FROM steps WHERE idx = 1").output.isna().all()


def test_a_long_command_goes_on_in_a_second_line(
    begun_09: None, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.model()
    lab.run("naive plan.json", AGENT_LLM="ollama", AGENT_CRASH_AT="before_effect:0")
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "$ AGENT_LLM=ollama AGENT_CRASH_AT=before_effect:0 \\",
        "    python -m labkit.lab.scenarios.naive plan.json",
    ]


def test_a_notebook_has_the_plan_of_its_scenario(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.begin("09")
    said = capsys.readouterr().out
    assert "A fresh folder, runs/09/latest/first, holds plan.json and 5 files in input." in said
    lab.fresh("another")
    assert "input/friday.txt" in lab.files()
    lab.end()

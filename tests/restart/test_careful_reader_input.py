"""What a careful reader will try: task ids, plans, notes, and where output goes."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from labkit.restart.__main__ import main
from tests.restart.kit import BUILT_IN_PLAN, WITNESSED_PLAN, WITNESSED_TOOLS, Desk, refused

GOOD_IDS = ["a", "0", "A.b_c-1", "9..", "x" * 100]
BAD_IDS = {
    "slash": "a/b",
    "parent": "../x",
    "empty": "",
    "300": "x" * 300,
    "101": "x" * 101,
    "dash": "-x",
    "dot": ".x",
    "space": "a b",
    "spaces": "  ",
    "newline": "a\n",
    "nul": "a\0b",
    "composed": "caf\u00e9",
    "decomposed": "cafe\u0301",
    "digit": "\u0663",
}
FETCH, SUMMARIZE, _ = BUILT_IN_PLAN["steps"]


def test_task_ids_that_create_accepts_run_can_open(desk: Desk) -> None:
    """The longest of them in a database with a long name, since files are named after both."""
    desk.plan({"goal": "g", "steps": [FETCH]})
    for task in GOOD_IDS:
        assert desk.run("create", task, "plan.json").code == 0
        assert desk.run("run", task).code == 0
    name = "d" * 200 + ".db"
    assert desk.run("--db", name, "create", GOOD_IDS[-1], "plan.json").code == 0
    assert desk.run("--db", name, "run", GOOD_IDS[-1]).code == 0


@pytest.mark.parametrize("task", BAD_IDS.values(), ids=BAD_IDS)
def test_task_ids_that_create_refuses(
    desk: Desk, task: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, since no command line can hold a NUL."""
    monkeypatch.chdir(desk.folder)
    assert main(["create", task, "plan.json"]) == 65
    message = capsys.readouterr().err
    assert "1 to 100 of A-Z a-z 0-9 . _ -" in message
    assert message.count("\n") == 1
    assert not desk.db.exists()


def test_a_bad_task_id_on_a_real_command_line(desk: Desk) -> None:
    refused(desk.run("create", "-x", "plan.json"), 65, "'-x'")
    refused(desk.run("create", "../x", "plan.json"), 65, "'../x'")


def steps(*given: Any, last: str = "summarize") -> dict[str, Any]:
    """A plan that reads, then does `last` with each of these inputs."""
    return {"goal": "g", "steps": [FETCH, *({"tool": last, "input": item} for item in given)]}


BAD_PLANS: dict[str, tuple[Any, str]] = {
    "not JSON": (b"{goal}", "JSON"),
    "empty file": (b"", "JSON"),
    "not UTF-8": (b'{"goal": "\xff"}', "UTF-8"),
    "UTF-16": ('{"goal": "g"}'.encode("utf-16"), "UTF-8"),
    "NaN": (b'{"goal": "g", "steps": [{"tool": "fetch", "input": {"path": NaN}}]}', "path"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, "JSON"),
    "surrogate": (b'{"goal": "\\ud800", "steps": []}', "goal"),
    "a list": ([], "the plan"),
    "no goal": ({"steps": [FETCH]}, "goal: missing"),
    "blank goal": ({"goal": " ", "steps": [FETCH]}, "goal:"),
    "goal of a wrong type": ({"goal": 1, "steps": [FETCH]}, "goal:"),
    "no steps": ({"goal": "g"}, "steps: missing"),
    "empty steps": ({"goal": "g", "steps": []}, "steps:"),
    "steps of a wrong type": ({"goal": "g", "steps": {"0": FETCH}}, "steps:"),
    "unknown key": ({"goal": "g", "steps": [FETCH], "note": 1}, "note: unknown"),
    "unknown key of a step": ({"goal": "g", "steps": [{**FETCH, "if": 1}]}, "steps[0].if:"),
    "unknown key of an input": (steps({"from": 0, "lines": 3}), "steps[1].input.lines:"),
    "a step of a wrong type": ({"goal": "g", "steps": ["fetch"]}, "steps[0]:"),
    "no tool": ({"goal": "g", "steps": [{"input": {}}]}, "steps[0].tool:"),
    "no input": ({"goal": "g", "steps": [{"tool": "fetch"}]}, "steps[0].input:"),
    "unknown tool": (steps({}, last="dance"), "steps[1].tool:"),
    "a tool of a wrong type": ({"goal": "g", "steps": [{**FETCH, "tool": []}]}, "steps[0].tool:"),
    "an input of a wrong type": ({"goal": "g", "steps": [{**FETCH, "input": 1}]}, "[0].input:"),
    "a path of a wrong type": (steps({"path": 1}, last="fetch"), "steps[1].input.path:"),
    "an empty path": (steps({"path": ""}, last="fetch"), "steps[1].input.path:"),
    "no from": (steps({}), "steps[1].input.from: missing"),
    "from itself": (steps({"from": 1}), "steps[1].input.from:"),
    "from a later step": (steps({"from": 2}, {"from": 0}), "steps[1].input.from:"),
    "from a negative step": (steps({"from": -1}), "steps[1].input.from:"),
    "from the last step, counted from the end": (
        {
            "goal": "g",
            "steps": [FETCH, {"tool": "write_artifact", "input": {"from": -1}}, SUMMARIZE],
        },
        "steps[1].input.from:",
    ),
    "from true": (steps({"from": 0}, {"from": True}), "steps[2].input.from:"),
    "from false": (steps({"from": False}), "steps[1].input.from:"),
    "from 0.0": (steps({"from": 0.0}), "steps[1].input.from:"),
    "from text": (steps({"from": "0"}), "steps[1].input.from:"),
    "from null": (steps({"from": None}), "steps[1].input.from:"),
    "a source without the field": (steps({"from": 0}, {"from": 1}), "steps[2].input.from:"),
    "the other field": (steps({"from": 0}, last="write_artifact"), "steps[1].input.from:"),
}


@pytest.mark.parametrize(("plan", "fault"), BAD_PLANS.values(), ids=BAD_PLANS)
def test_plans_that_create_refuses(
    desk: Desk,
    plan: Any,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    desk.plan(plan)
    monkeypatch.chdir(desk.folder)
    assert main(["create", "t", "plan.json"]) == 65
    message = capsys.readouterr().err
    assert fault in message
    assert message.count("\n") == 1
    assert not desk.db.exists()


def test_plans_with_a_bom_are_accepted(desk: Desk) -> None:
    desk.create(b"\xef\xbb\xbf" + json.dumps(BUILT_IN_PLAN).encode())
    assert desk.rows("SELECT goal FROM tasks") == [BUILT_IN_PLAN["goal"]]


def test_plans_of_a_learner_may_give_tools_any_input(desk: Desk) -> None:
    """`from` alone is checked, since it means the same for every tool."""
    desk.tools(WITNESSED_TOOLS)
    desk.create({"goal": "g", "steps": [{"tool": "shorten", "input": {"any": [1, {"x": None}]}}]})
    desk.plan({"goal": "g", "steps": [{"tool": "shorten", "input": {"from": 0}}]})
    refused(desk.run("create", "u", "plan.json"), 65, "steps[0].input.from:")


NOTES = {
    "BOM": (b"\xef\xbb\xbfOne\nTwo\n", "One\nTwo"),
    "CRLF": (b"One\r\n\r\nTwo\r\nThree\r\nFour\r\n", "One\nTwo\nThree"),
    "empty": (b"", ""),
    "blank": (b"\n \n\t\n", ""),
    "cyrillic": ("щит\n  дым  \n".encode(), "щит\nдым"),
    "one line of 5 MB": (b"x" * 5_000_000, "x" * 5_000_000),
    "one line of 50 MB": (b"x" * 50_000_000, "x" * 50_000_000),
}
SLOW = {"one line of 50 MB": pytest.mark.proof}


@pytest.mark.parametrize(
    ("content", "summary"),
    [pytest.param(*NOTES[name], marks=SLOW.get(name, ()), id=name) for name in NOTES],
)
def test_notes_that_are_read_right(desk: Desk, content: bytes, summary: str) -> None:
    desk.write("input/notes.txt", content)
    desk.create()
    assert desk.run("run", "t").code == 0
    assert desk.published().keys() == {"t-2.md"}
    assert (desk.artifacts / "t-2.md").read_bytes() == summary.encode()


def make_missing(path: Path) -> None:
    path.unlink()


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_latin(path: Path) -> None:
    path.write_bytes("déjà vu".encode("latin-1"))


@pytest.mark.parametrize("spoil", [make_missing, make_folder, make_latin])
def test_notes_that_cannot_be_read(desk: Desk, spoil: Any) -> None:
    spoil(desk.folder / "input/notes.txt")
    desk.create()
    refused(desk.run("run", "t"), 2, "input/notes.txt")
    errors = desk.data("step_error")
    assert len(errors) == 3
    assert all("input/notes.txt" in error["error"] for error in errors)
    assert not any(error["permanent"] or error["interrupted"] for error in errors)
    desk.require_balanced()


CYRILLIC = {
    "goal": "Сделать отчёт",
    "steps": [{"tool": "fetch", "input": {"path": "нет заметок"}}],
}


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_stdout_in_another_encoding(desk: Desk, encoding: str) -> None:
    """Output is UTF-8 always, and so are the lines on stderr."""
    env = {"PYTHONIOENCODING": encoding, "LC_ALL": "C", "PYTHONUTF8": "0"}
    desk.plan(CYRILLIC)
    assert desk.run("create", "t", "plan.json", env=env).code == 0
    refused(desk.run("run", "t", env=env), 2, "нет заметок")
    status = desk.run("status", "t", env=env)
    assert (status.code, status.err) == (0, "")
    assert "Сделать отчёт" in status.out
    exported = desk.run("export", "t", env=env)
    assert (exported.code, exported.err) == (0, "")
    assert "нет заметок" in exported.out


def test_names_that_are_no_text_do_not_break_a_message(desk: Desk) -> None:
    name = os.fsdecode(b"plan-\xff.json")
    refused(desk.run("create", "t", name), 66, "plan-")
    refused(desk.run("--db", name, "status", "t"), 66, "plan-")


def test_a_message_stays_one_line_whatever_it_quotes(desk: Desk) -> None:
    """Text from a plan or a tool cannot steer the terminal, nor pass for a line of its own."""
    desk.tools('def rude(input, ctx, idem_key):\n    raise ValueError("a\\n\\x1b[31mb\\u202ec")\n')
    desk.create({"goal": "g", "steps": [{"tool": "rude", "input": {}}]})
    ran = desk.run("run", "t")
    refused(ran, 2, "ValueError")
    assert ran.err.strip().isprintable()


def test_a_relative_path_counts_from_where_run_was_started(desk: Desk) -> None:
    """Also after a tool has changed the folder, and in the attempts that follow."""
    desk.tools(
        WITNESSED_TOOLS
        + "\ndef wander(input, ctx, idem_key):\n    os.chdir('/')\n    return None\n"
    )
    plan = [{"tool": "wander", "input": {}}, *BUILT_IN_PLAN["steps"]]
    plan[2:] = [{**step, "input": {"from": idx + 1}} for idx, step in enumerate(plan[2:])]
    desk.create({"goal": "g", "steps": plan})
    assert desk.run("run", "t").code == 0, sys.platform
    assert list(desk.published()) == ["t-3.md"]


def test_the_witness_sees_what_the_journal_says(desk: Desk) -> None:
    """The control of every count in these tests: the tools' own lines, not the agent's."""
    desk.tools(WITNESSED_TOOLS)
    desk.create(WITNESSED_PLAN)
    assert desk.calls() == {}
    assert desk.run("run", "t").code == 0
    assert desk.calls() == {"t-0": 1, "t-1": 1, "t-2": 1}

"""Section "Plan and command line" of the contract: each command, each exit code, one line each."""

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.database import BUSY_S
from tests.restart.kit import (
    BUILT_IN_PLAN,
    SUMMARY,
    WAIT,
    Desk,
    ended,
    environment,
    needs_dev_full,
    read_line,
    refused,
)

FRAGILE = """
def fragile(input, ctx, idem_key):
    _seen(idem_key, "fragile")
    return open("cure").read()
"""
ONE = {"goal": "One step", "steps": [{"tool": "fragile", "input": {}}]}
TWO = {"goal": "Two steps", "steps": [BUILT_IN_PLAN["steps"][0], *ONE["steps"]]}
WAL = {"state.db-wal", "state.db-shm"}
WAITING = {"goal": "Wait", "steps": [{"tool": "wait", "input": {}}]}


def test_create_status_run_export(desk: Desk) -> None:
    created = desk.run("create", "t", "plan.json")
    assert (created.code, created.err) == (0, "")
    assert "t is created" in created.out
    assert json.loads(desk.run("status", "t").out) == {
        "task": "t",
        "goal": BUILT_IN_PLAN["goal"],
        "status": "pending",
        "steps": [
            {"idx": idx, "tool": step["tool"], "status": "pending", "attempts": 0}
            for idx, step in enumerate(BUILT_IN_PLAN["steps"])
        ],
    }
    assert desk.run("run", "t").code == 0
    status = json.loads(desk.run("status", "t").out)
    assert status["status"] == "done"
    assert [(step["status"], step["attempts"]) for step in status["steps"]] == [("done", 1)] * 3

    exported = desk.run("export", "t")
    assert exported.code == 0
    events = [json.loads(line) for line in exported.out.splitlines()]
    assert [event["kind"] for event in events] == desk.kinds()
    run = desk.rows("SELECT DISTINCT run_id FROM events WHERE run_id IS NOT NULL")[0]
    times = desk.rows("SELECT ts FROM events ORDER BY seq")
    assert events[0] == dict(seq=1, ts=times[0], run=None, kind="task_created", step=None, steps=3)
    assert events[1] == dict(
        seq=2, ts=times[1], run=run, kind="run_started", step=None, recovered=[]
    )
    started = dict(kind="step_started", step=0, tool="fetch", attempt=1)
    assert events[2] == dict(seq=3, ts=times[2], run=run, **started)


def test_the_outputs_of_the_built_in_tools(desk: Desk) -> None:
    desk.create()
    assert desk.run("run", "t", env={"AGENT_ARTIFACTS": "out/reports"}).code == 0
    fetched, summarized, written = map(json.loads, desk.rows("SELECT output FROM steps"))
    notes = (desk.folder / "input/notes.txt").read_bytes()
    digest = hashlib.sha256(notes).hexdigest()
    assert fetched == {"chars": len(notes), "sha256": digest, "text": notes.decode()}
    assert summarized == {"summary": SUMMARY, "engine": "stub"}
    assert written == {"path": "out/reports/t-2.md", "deduplicated": False}
    assert (desk.folder / written["path"]).read_text("utf-8") == SUMMARY


def test_labkit_agent_is_the_same_command(desk: Desk) -> None:
    desk.create()
    argv = [sys.executable, "-m", "labkit", "agent", "status", "t"]
    options = {"cwd": desk.folder, "env": environment(), "text": True}
    same = subprocess.run(argv, capture_output=True, check=True, **options)
    assert same.stdout == desk.run("status", "t").out
    absent = subprocess.run([*argv[:-1], "nobody"], capture_output=True, check=False, **options)
    assert absent.returncode == 1
    assert absent.stderr.startswith("labkit agent: ")


def test_several_tasks_share_a_database(desk: Desk) -> None:
    desk.create(task="a")
    desk.create(task="b")
    desk.crash("after_effect:1", "run", "a")
    assert desk.run("run", "b").code == 0
    assert desk.run("run", "a").code == 0
    assert desk.published() == {"a-2.md": SUMMARY, "b-2.md": SUMMARY}
    desk.require_balanced("a")
    desk.require_balanced("b")


def test_the_other_options_find_the_database_elsewhere(desk: Desk) -> None:
    (desk.folder / "else where").mkdir()
    db = "else where/journal 100%?#é.db"
    assert desk.run("--db", db, "create", "t", "plan.json").code == 0
    assert desk.run("--db", db, "run", "t").code == 0
    assert (desk.folder / db).exists()
    assert not desk.db.exists()


def test_0_running_a_done_task_writes_nothing(desk: Desk) -> None:
    desk.create()
    assert desk.run("run", "t").code == 0
    before = desk.rows("SELECT * FROM events"), desk.rows("SELECT * FROM tasks")
    assert desk.run("run", "t").code == 0
    assert desk.run("run", "--retry", "t").code == 0
    assert (desk.rows("SELECT * FROM events"), desk.rows("SELECT * FROM tasks")) == before


@pytest.mark.parametrize("command", ["run", "status", "export"])
def test_1_unknown_task(desk: Desk, command: str) -> None:
    desk.create()
    refused(desk.run(command, "nobody"), 1, "nobody", "create")


def test_2_the_task_failed(desk: Desk) -> None:
    desk.tools(FRAGILE)
    desk.create(TWO)
    refused(desk.run("run", "t"), 2, "run --retry t", "step 1", "cure")
    assert desk.calls() == {"t-1": 3}
    assert desk.statuses() == ["failed", "done", "failed"]
    assert desk.data("task_failed")[0]["reason"] == "max_attempts"
    assert desk.data("task_failed")[0]["outcome"] == "failed"
    before = desk.kinds()

    refused(desk.run("run", "t"), 2, "run --retry t")

    assert desk.kinds() == before
    assert desk.calls() == {"t-1": 3}


def test_2_retry_gives_the_failed_step_fresh_attempts(desk: Desk) -> None:
    desk.tools(FRAGILE)
    desk.create(TWO)
    assert desk.run("run", "t").code == 2
    finished = desk.rows("SELECT * FROM steps WHERE status = 'done'")
    desk.write("cure", "cured")

    assert desk.run("run", "--retry", "t").code == 0

    assert desk.statuses() == ["done"] * 3
    assert desk.rows("SELECT * FROM steps WHERE idx = 0") == finished
    assert desk.rows("SELECT step_idx FROM events WHERE kind = 'task_retried'") == [1]
    assert desk.rows("SELECT attempts FROM steps WHERE idx = 1") == [1]
    assert desk.calls() == {"t-1": 4}
    kinds = desk.kinds()
    assert kinds.index("task_failed") < kinds.index("task_retried")
    desk.require_balanced()


def test_3_another_process_runs_the_task(desk: Desk) -> None:
    desk.pipe("go")
    desk.tools(WAIT)
    desk.create(WAITING)
    first = desk.start("run", "t")
    assert read_line(first) == "waiting"
    refused(desk.run("run", "t"), 3, "t")
    assert desk.run("status", "t").code == 0  # reading is always possible
    assert first.poll() is None


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("dance", "t"),
        ("run",),
        ("run", "t", "plan.json"),
        ("create", "t"),
        ("create", "t", "plan.json", "more"),
        ("status", "--retry", "t"),
        ("create", "t", "plan.json", "--retry"),
        ("--nonsense", "status", "t"),
        ("status", "t", "--db"),
    ],
    ids=" ".join,
)
def test_64_the_command_line_is_wrong(desk: Desk, args: tuple[str, ...]) -> None:
    refused(desk.run(*args), 64, "--help")
    assert not desk.db.exists()


def test_64_a_tool_clashes_with_another(desk: Desk) -> None:
    desk.write("tools.py", "def fetch(input, ctx, idem_key):\n    return None\n")
    refused(desk.run("create", "t", "plan.json"), 64, "tools.py", "fetch")
    desk.write("tools.py", "def mine(input, ctx, idem_key):\n    return None\n")
    desk.write("more.py", "def mine(input, ctx, idem_key):\n    return None\n")
    refused(desk.run("--tools", "more.py", "create", "t", "plan.json"), 64, "mine")
    assert not desk.db.exists()


def test_64_a_remaining_step_needs_a_tool_that_is_not_there(desk: Desk) -> None:
    desk.tools(FRAGILE)
    desk.create(ONE)
    (desk.folder / "tools.py").unlink()
    before = sorted(os.listdir(desk.folder)), desk.kinds()
    refused(desk.run("run", "t"), 64, "fragile", "--tools")
    after = [name for name in sorted(os.listdir(desk.folder)) if name not in WAL]
    assert after == [name for name in before[0] if name not in WAL]  # no lock either
    assert desk.kinds() == before[1]


def test_a_done_step_needs_its_tool_no_more(desk: Desk) -> None:
    desk.tools(FRAGILE)
    desk.write("cure", "cured")
    desk.create({"goal": "g", "steps": [*ONE["steps"], BUILT_IN_PLAN["steps"][0]]})
    desk.crash("before_effect:1")
    (desk.folder / "tools.py").unlink()
    assert desk.run("run", "t").code == 0


@pytest.mark.parametrize("source", ["def broken(:\n", "1 / 0\n", "raise SystemExit(0)\n"])
def test_65_an_error_while_importing_tools(desk: Desk, source: str) -> None:
    desk.write("tools.py", source)
    refused(desk.run("create", "t", "plan.json"), 65, "tools.py")
    assert not desk.db.exists()


def test_tools_are_what_the_file_defines(desk: Desk) -> None:
    """No imported function, none with a leading underscore, no class."""
    desk.write(
        "tools.py",
        "from os.path import join\nclass Mine: pass\ndef _hidden(i, c, k): return 1\n"
        "def shown(input, ctx, idem_key): return 1\n",
    )
    for name, code in {"shown": 0, "join": 65, "Mine": 65, "_hidden": 65}.items():
        desk.plan({"goal": "g", "steps": [{"tool": name, "input": {}}]})
        assert desk.run("create", name.strip("_"), "plan.json").code == code


@pytest.mark.parametrize("command", ["run", "status", "export"])
def test_66_the_database_does_not_exist(desk: Desk, command: str) -> None:
    before = sorted(os.listdir(desk.folder))
    refused(desk.run(command, "t"), 66, "state.db")
    assert sorted(os.listdir(desk.folder)) == before


def test_66_an_input_file_does_not_exist(desk: Desk) -> None:
    refused(desk.run("create", "t", "absent.json"), 66, "absent.json")
    refused(desk.run("--tools", "absent.py", "create", "t", "plan.json"), 66, "absent.py")
    refused(desk.run("--db", "absent/state.db", "create", "t", "plan.json"), 66, "absent")
    assert sorted(os.listdir(desk.folder)) == ["input", "plan.json"]


@needs_dev_full
@pytest.mark.parametrize("command", ["create", "run", "status", "export"])
def test_74_output_that_cannot_be_written(desk: Desk, command: str) -> None:
    args = [command, "t", *(["plan.json"] if command == "create" else [])]
    if command != "create":
        desk.create()
    with open("/dev/full", "w") as full:
        refused(desk.run(*args, stdout=full), 74, "No space left")


@pytest.mark.parametrize("command", ["status", "export"])
def test_74_output_is_closed(desk: Desk, command: str) -> None:
    desk.create()
    closed = ("sh", "-c", 'exec "$@" >&-', "sh")
    refused(desk.run(command, "t", before=closed), 74)


@needs_dev_full
def test_an_exit_code_needs_no_standard_error(desk: Desk) -> None:
    closed = ("sh", "-c", 'exec "$@" 2>&-', "sh")
    desk.create()
    assert desk.run("run", "nobody", before=closed) == (1, "", "")
    with open("/dev/full", "w") as full:
        process = desk.start("run", "nobody", options={"stderr": full})
        process.wait(timeout=30)
        assert process.returncode == 1


def test_a_working_folder_that_is_gone(desk: Desk) -> None:
    desk.create()
    gone = ("sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$@"', "sh")
    refused(desk.run("--db", str(desk.db), "run", "t", before=gone), 74, "working folder")


def test_75_the_database_stayed_busy(desk: Desk) -> None:
    """The wait is shortened to 50 ms through a tools file, so that the test need not wait."""
    assert BUSY_S == 10
    desk.tools("from labkit import database\ndatabase.BUSY_S = 0.05\n")
    desk.create()
    before = desk.rows("SELECT * FROM events")
    writer = sqlite3.connect(desk.db, isolation_level=None)
    try:
        writer.execute("BEGIN IMMEDIATE")
        refused(desk.run("run", "t"), 75, "busy", "try again")
        writer.execute("ROLLBACK")
    finally:
        writer.close()
    assert desk.rows("SELECT * FROM events") == before
    assert desk.run("run", "t").code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_is_a_kill_and_recovered(desk: Desk, number: signal.Signals) -> None:
    desk.pipe("go")
    desk.tools("import atexit\natexit.register(_seen, 'clean-up', 'code')\n" + WAIT)
    desk.create(WAITING)
    (desk.folder / "witness").unlink(missing_ok=True)  # `create` loads the tools too, and ends
    process = desk.start("run", "t")
    assert read_line(process) == "waiting"
    process.send_signal(number)
    assert ended(process).code == -number
    assert desk.calls() == {}
    assert desk.statuses() == ["running", "running"]
    os.unlink(desk.folder / "go")
    desk.write("go", "gone")
    assert desk.run("run", "t").code == 0
    assert desk.data("run_started")[-1] == {"recovered": [0]}


def test_export_into_head_ends_quietly(desk: Desk) -> None:
    """Its reader takes one line of more than a pipe holds, and is gone."""
    steps = [{"tool": "fetch", "input": {"path": "x" * 900}}] * 300
    desk.create({"goal": "long", "steps": steps})
    desk.change(
        """INSERT INTO events(ts, task_id, kind, data)
        WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
        SELECT i, 't', 'step_error', '{"error": "a long line so that the pipe fills up"}' FROM n"""
    )
    export = desk.start("export", "t")
    assert export.stdout
    assert json.loads(export.stdout.readline())["kind"] == "task_created"
    export.stdout.close()
    export.wait(timeout=30)
    assert export.stderr
    assert (export.returncode, export.stderr.read()) == (0, "")


def test_help_ends_well(desk: Desk) -> None:
    shown = desk.run("--help")
    assert (shown.code, shown.err) == (0, "")
    for word in ("--db", "--tools", "--retry", "create", "run", "status", "export"):
        assert word in shown.out


def test_nothing_is_left_beside_the_database(desk: Desk) -> None:
    desk.create()
    assert desk.run("run", "t").code == 0
    found = set(map(Path, os.listdir(desk.folder))) - {Path("input"), Path("plan.json")}
    allowed = {"state.db", "artifacts", *WAL}
    assert {str(path) for path in found if path.suffix != ".lock"} <= allowed


def test_tools_may_define_dataclasses(desk: Desk) -> None:
    """Which look for their module by name, as pickle does, also once the file has been loaded."""
    desk.write(
        "tools.py",
        "from __future__ import annotations\n"
        "import pickle\n"
        "from dataclasses import asdict, dataclass\n\n"
        "@dataclass\nclass Note:\n    text: str\n\n"
        "def make(input, ctx, idem_key):\n"
        "    return asdict(pickle.loads(pickle.dumps(Note('kept'))))\n",
    )
    desk.create({"goal": "g", "steps": [{"tool": "make", "input": {}}]})
    assert desk.run("run", "t").code == 0
    assert desk.rows("SELECT output FROM steps") == ['{"text":"kept"}']

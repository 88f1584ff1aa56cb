"""Notebook 10: odd and other good answers to its exercises, the windows of a step, and what a
process may register otherwise than the one before it."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labkit import lab
from labkit.errors import UsageError
from labkit.lab import runs, windows
from labkit.lab.checks import Judgement
from labkit.lab.process import NotReady
from labkit.lab.runs import Kill

GO = "dispatch go pump dispatch"
SENT = "the result of model-2.tool-1 is stored"
EXIT = "def open_ticket(request):\n    import os\n    os._exit(0)"
FOLDER = "def open_ticket(request):\n    import os\n    os.makedirs('tickets.txt', exist_ok=True)"
FOREIGN = (
    "def open_ticket(request):\n    open('tickets.txt', 'ab').write(b'\\xff\\n')\n    return 'x'"
)

ODD_QUERIES = {
    "none": (None, "not judged", "This is a NoneType"),
    "no rows": ("SELECT run_id, step FROM journal WHERE 0", "broken", "This row is missing"),
    "two statements": ("SELECT 1; SELECT 2", "not judged", "one statement"),
    "twice": (
        "SELECT run_id, step FROM journal WHERE step IN ('context', 'model-1') AND seq < 10"
        " AND kind IN ('step_started', 'step_finished')",
        "broken",
        "stands 2 times",
    ),
    "what never was": ("SELECT NULL AS run_id, 1.5 AS step", "broken", "No step of that name"),
    "a write": ("DELETE FROM events", "not judged", "is not a query"),
}
ODD_TOOLS = {
    "none": ("open_ticket = None", "not judged", "no function made with def"),
    "another name": ("def other(request): return 'x'", "not judged", "is called other"),
    "ends the process": (EXIT, "broken", "ended without a word"),
    "a folder for a file": (FOLDER, "broken", "returned a NoneType"),
    "no argument": ("def open_ticket(): return 'x'", "broken", "takes 0 positional"),
    "bytes": (FOREIGN, "broken", "5 tickets for 4 steps"),
    "no ticket": ("def open_ticket(request): return 'ticket 1'", "broken", "0 tickets for 4 steps"),
}
GOOD_QUERIES = {
    "joined": """
        SELECT done.run_id, done.step FROM journal AS done
        JOIN (SELECT run_id, max(seq) AS seq FROM journal
              WHERE kind = 'run_started' GROUP BY run_id) AS last
          ON last.run_id = done.run_id AND done.seq < last.seq
        WHERE done.kind = 'step_finished'""",
    "by epoch": """
        SELECT task_id, step, run_id FROM journal AS done
        WHERE kind = 'step_finished'
          AND owner <> (SELECT owner FROM journal AS j WHERE j.run_id = done.run_id
                        AND kind = 'run_started' ORDER BY seq DESC LIMIT 1)""",
}
GOOD_TOOL = """
def open_ticket(request):
    import sqlite3

    tickets = sqlite3.connect("tickets.db", isolation_level=None)
    tickets.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, key TEXT UNIQUE)")
    tickets.execute("INSERT OR IGNORE INTO t (key) VALUES (?)", [request.idempotency_key])
    keys = [key for (key,) in tickets.execute("SELECT key FROM t ORDER BY n")]
    tickets.close()
    with open("tickets.txt", "w") as file:
        file.writelines(f"{key}\\n" for key in keys)
    return f"ticket {keys.index(request.idempotency_key) + 1}"
"""

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _begun(home: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    lab.begin("10")
    capsys.readouterr()
    yield
    lab.end()


@pytest.mark.sampled
@pytest.mark.parametrize(("query", "verdict", "says"), ODD_QUERIES.values(), ids=ODD_QUERIES)
def test_an_odd_query(query: Any, verdict: str, says: str) -> None:
    judgement = lab.check("10.ex1", query)
    assert (judgement.verdict, says in judgement.reason) == (verdict, True), judgement.reason


@pytest.mark.sampled
@pytest.mark.parametrize("query", GOOD_QUERIES.values(), ids=GOOD_QUERIES)
def test_another_good_query_holds(query: str) -> None:
    assert lab.check("10.ex1", query).verdict == "held"


@pytest.mark.sampled
@pytest.mark.parametrize(("source", "verdict", "says"), ODD_TOOLS.values(), ids=ODD_TOOLS)
def test_an_odd_tool(source: str, verdict: str, says: str) -> None:
    judgement = judge(source)
    assert (judgement.verdict, says in judgement.reason) == (verdict, True), judgement.reason


def test_another_good_tool_holds() -> None:
    assert judge(GOOD_TOOL).verdict == "held"


@pytest.mark.proof
def test_a_tool_that_never_returns_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LIMIT_S", 3.0)
    judgement = judge("def open_ticket(request):\n    while True: pass")
    assert (judgement.verdict, "had not ended" in judgement.reason) == ("not judged", True)


def test_without_the_kill_the_check_does_not_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the check itself: a tool that is as good as it was, and nobody was killed."""
    monkeypatch.setattr("labkit.lab.exercises.n10.LOST", "the result of tool {} is nowhere")
    judgement = judge(GOOD_TOOL)
    assert judgement.verdict == "not judged"
    assert "was not killed" in judgement.reason


def test_only_a_call_without_a_checkpoint_is_made_again(capsys: pytest.CaptureFixture[str]) -> None:
    kills = runs.sweep("dispatch")
    table = windows.tabulate(kills)
    again = {step: ["1 call", "1 call", "2 calls", "1 call"] for step in table.index}
    again["notify"] = ["1 call", "waits, 0 calls", "waits, 1 call", "1 call"]
    assert table.T.to_dict("list") == again
    assert "called again 6, waits 2, called once 20" in windows.draw(kills).summary


@pytest.mark.parametrize("few", [[], [Kill(0, "the run is stored", "SUCCEEDED", 1, ("model-1",))]])
def test_fewer_kills_are_no_table(few: list[Kill]) -> None:
    with pytest.raises(UsageError, match=r"runs\.sweep"):
        windows.tabulate(few)


def test_nothing_was_called_yet() -> None:
    with pytest.raises(NotReady, match="nothing was called"):
        windows.calls()


def test_what_a_later_process_declares_changes_nothing() -> None:
    assert lab.run(GO, AGENT_DIE_BEFORE=SENT).killed
    ended = lab.run(GO, AGENT_DECLARE="notify=READ_ONLY")
    assert (ended.code, len(runs.outbox())) == (4, 1)
    lab.fresh("control")
    assert lab.run(GO, AGENT_DIE_BEFORE=SENT, AGENT_DECLARE="notify=READ_ONLY").killed
    assert (lab.run(GO).code, len(runs.outbox())) == (0, 2)


def test_without_notes_of_a_stop_there_is_nothing_to_do() -> None:
    ended = lab.run("dispatch go quiet dispatch", AGENT_NOTES="input/quiet.txt")
    assert ended.output == "run quiet is SUCCEEDED: Nothing to do.\n"
    assert windows.calls() == {"context": 1, "model-1": 1}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("asked", "code", "says"),
    [
        ({"AGENT_DECLARE": "notify=MAYBE"}, 64, "use TOOL=EFFECT"),
        ({"AGENT_DECLARE": "notfy=READ_ONLY"}, 64, "use TOOL=EFFECT"),
        ({"AGENT_BUDGET": "-1"}, 64, "AGENT_BUDGET=-1: give a number"),
        ({"AGENT_TOOLS": "none.py"}, 65, "AGENT_TOOLS=none.py: FileNotFoundError"),
        ({"AGENT_VERSION": ""}, 65, "is blank"),
    ],
    ids=str,
)
def test_what_cannot_be_registered_is_said(asked: dict[str, str], code: int, says: str) -> None:
    ended = lab.run(GO, **asked)
    said = " ".join(ended.output.split())
    assert (ended.code, says in said, "Traceback" in said) == (code, True, False), said
    assert "state.db" not in lab.files() or lab.journal().events().empty


def judge(source: str) -> Judgement:
    file = f"<10.ex2 {hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    cell: dict[str, Any] = {}
    exec(compile(source, file, "exec"), cell)
    return lab.check("10.ex2", cell.get("open_ticket", cell.get("other")))

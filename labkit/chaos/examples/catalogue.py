"""The programs of `labkit chaos examples`: one task, and what each engine promises about a kill.

The task has three steps, and the last has an effect outside. Each engine gets the mode that its
documentation calls durable, and is started again in the way its documentation names. The programs
know nothing of the kit; what they did is counted from outside. The promises, in our words, from:

* the restart agent: the five promises of `labkit/restart`, the second and the fourth;
* the durable run: the table of `labkit/durable/recovery.py`;
* DBOS 3: docs.dbos.dev/python/tutorials/workflow-tutorial (workflow ids, reliability guarantees)
  and docs.dbos.dev/explanations/concurrent-executions;
* LangGraph 1: docs.langchain.com/oss/python/langgraph/durable-execution (durability modes, use
  idempotent operations, starting points for resuming), and `Durability` in `langgraph.types`.
"""

from __future__ import annotations

import importlib.util
import os
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import labkit
from labkit.chaos.scenario import Scenario
from labkit.errors import LabkitError, StorageFault
from labkit.journal.laws import HELD, judge_file

__all__ = ["EXAMPLES", "KEY", "Example"]

PROGRAMS = Path(__file__).parent / "programs"
KEY = "t-2"
NOTES = """The pump in hall B stopped twice on Monday.
Both stops came within a minute of the backup.

Moving the backup to 03:00 ended them.
The pump was last serviced in spring.
"""
SENT = len("\n".join([line for line in NOTES.splitlines() if line][:3]))
PLAN = """{"goal": "Send a summary of the notes",
 "steps": [{"tool": "read_notes", "input": {}},
           {"tool": "shorten", "input": {}},
           {"tool": "deliver", "input": {}}]}
"""
TIMEOUT_S = 120.0  # the first start of an engine compiles hundreds of modules
BENCH = "pip install 'durable-agent-lab[bench]'"


class Example(NamedTuple):
    """A program, and what it promises. `has_key`: its effect carries a key that the other side
    knows, so a repetition is not a second effect. `needs` are the packages it imports."""

    name: str
    has_key: bool
    promise: str
    scenario: Scenario
    needs: Sequence[str] = ()

    @property
    def missing(self) -> str:
        """How to get what is not installed here; empty if all is."""
        absent = [name for name in self.needs if not _is_installed(name)]
        return f"{' and '.join(absent)} not installed: {BENCH}" if absent else ""


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


def _example(
    name: str,
    promise: str,
    run: Sequence[str],
    setup: Sequence[str] = (),
    *,
    has_key: bool,
    check: Callable[[Path], Iterable[str]] | None = None,
    needs: Sequence[str] = (),
) -> Example:
    environ = {
        "EFFECT": "key" if has_key else "append",
        "PYTHONPATH": os.pathsep.join(map(str, (Path(labkit.__file__).parents[1], PROGRAMS))),
    }
    material = {"notes.txt": NOTES, "plan.json": PLAN}
    scenario = Scenario(
        run, setup, check or (), material=material, environ=environ, timeout_s=TIMEOUT_S
    )
    return Example(name, has_key, promise, scenario, needs)


def _python(name: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / name)]


def _restart(*, has_key: bool) -> Example:
    agent = [sys.executable, "-m", "labkit.restart", "--tools", str(PROGRAMS / "restart_tools.py")]
    return _example(
        "restart agent",
        "A committed step is not run again; a step that was in progress is, and its effect happens "
        "once in outcome if it carries the step's key.",
        [*agent, "run", "t"], [*agent, "create", "t", "plan.json"],
        has_key=has_key, check=_journal,
    )  # fmt: skip


def _durable(*, has_key: bool) -> Example:
    program = _python("durable_program.py")
    return _example(
        "durable run",
        "A step that has its result is not run again. One that was cut off is, under the same key, "
        "unless its tool may not be repeated: then the run waits until somebody has looked.",
        program, [*program, "setup"],
        has_key=has_key, check=_runs,
    )  # fmt: skip


def _dbos(*, has_key: bool) -> Example:
    program = _python("dbos_program.py")
    return _example(
        "DBOS",
        "A workflow runs to its end, once for one workflow id; a step is tried at least once, and "
        "never again after it has completed.",
        program, [*program, "setup"],
        has_key=has_key, check=_workflow, needs=["dbos"],
    )  # fmt: skip


def _langgraph(*, has_key: bool) -> Example:
    program = _python("langgraph_program.py")
    return _example(
        "LangGraph",
        "With durability `sync` a step is stored before the next begins; a run resumes at the "
        "beginning of the node where it stopped, so effects should be idempotent.",
        program, [*program, "setup"],
        has_key=has_key, check=_checkpoints, needs=["langgraph", "langgraph.checkpoint.sqlite"],
    )  # fmt: skip


def _journal(folder: Path) -> Iterator[str]:
    """The laws about the state. Effects are counted outside, so they are taken as given here."""
    try:
        for verdict in judge_file(str(folder / "state.db"), [KEY]):
            if verdict.verdict != HELD:
                yield f"law {verdict.law} {verdict.verdict}: {verdict.reason}"
    except (LabkitError, StorageFault) as error:
        yield f"the journal cannot be read: {error}"
    yield from _rows(folder / "state.db", "SELECT status FROM tasks", [("done",)])


def _runs(folder: Path) -> Iterator[str]:
    yield from _rows(folder / "runs.db", "SELECT run_id, status FROM runs", [("t", "SUCCEEDED")])


def _workflow(folder: Path) -> Iterator[str]:
    yield from _rows(
        folder / "dbos.db", "SELECT workflow_uuid, status FROM workflow_status", [("t", "SUCCESS")]
    )


def _checkpoints(folder: Path) -> Iterator[str]:
    yield from _rows(
        folder / "langgraph.db", "SELECT DISTINCT thread_id FROM checkpoints", [("t",)]
    )


def _rows(database: Path, query: str, wanted: list[tuple[str, ...]]) -> Iterator[str]:
    """What is not as it should be in a database that no process has open any more."""
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as opened:
            if (answer := opened.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
                yield f"{database.name}: integrity_check: {answer[0][0]}"
            if (found := opened.execute(query).fetchall()) != wanted:
                yield f"{database.name}: {found or 'nothing'} instead of {wanted}"
    except sqlite3.Error as error:
        yield f"{database.name} cannot be read: {error}"


EXAMPLES = (
    _example(
        "naive agent",
        "None.",
        _python("naive.py"), has_key=False,
    ),
    _example(
        "files and sh",
        "A step is done when its file has its name; one that is not done is run again.",
        ["sh", str(PROGRAMS / "files.sh")], has_key=True,
    ),
    *(
        make(has_key=has_key)
        for make in (_restart, _durable, _dbos, _langgraph)
        for has_key in (False, True)
    ),
)  # fmt: skip

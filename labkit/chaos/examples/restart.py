"""The lab's restart agent, as a scenario: its `run`, its `create`, and its negative control."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import labkit
from labkit.chaos.scenario import Scenario
from labkit.errors import LabkitError, StorageFault
from labkit.journal.laws import HELD, collect, judge
from labkit.journal.reading import read_events, read_steps, read_tasks, snapshot

__all__ = ["creating", "judge_restart", "restart"]

TASK = "t"
NOTES = """The pump in hall B stopped twice on Monday.
Both stops came within a minute of the backup.

Moving the backup to 03:00 ended them.
The pump was last serviced in spring.
"""
PLAN = """{"goal": "Summarize notes into a report",
 "steps": [{"tool": "fetch", "input": {"path": "input/notes.txt"}},
           {"tool": "summarize", "input": {"from": 0}},
           {"tool": "write_artifact", "input": {"from": 1}}]}
"""
REPORT = "\n".join(line for line in NOTES.splitlines()[:4] if line).encode()
MATERIAL = {"plan.json": PLAN, "input/notes.txt": NOTES}
CLEAN = (os.EX_IOERR,)  # of a storage fault
END_OF_RECORD = b"\n---\n"


def restart(package: Path | None = None, *, unsafe: bool = False) -> Scenario:
    """`run` of the agent in `package`, or in this one. `unsafe`: its effect has no key."""
    effects = {"AGENT_UNSAFE_EFFECTS": "1"} if unsafe else {}
    return Scenario(
        setup=_agent("create", TASK, "plan.json"),
        run=_agent("run", TASK),
        check=judge_restart,
        files=[] if unsafe else [f"artifacts/{TASK}-2.md"],
        material=MATERIAL,
        environ={**_path(package), **effects},
        clean_exits=CLEAN,
    )


def creating(package: Path | None = None) -> Scenario:
    """`create` of the agent; the check carries the task to its end first."""
    environ = _path(package)
    return Scenario(
        run=_agent("create", TASK, "plan.json"),
        check=partial(_judge_created, environ=environ),
        material=MATERIAL,
        environ=environ,
        clean_exits=CLEAN,
    )


def _judge_created(folder: Path, environ: Mapping[str, str]) -> Iterator[str]:
    for command in (_agent("run", TASK), _agent("create", TASK, "plan.json")):
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **environ}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        if done.returncode:
            yield f"`{command[-2]}` exits {done.returncode}: {done.stderr.strip()}"
            return
    yield from judge_restart(folder)


def judge_restart(folder: Path) -> Iterator[str]:
    """What is not as promised. Reports are counted outside; the laws read the journal."""
    effects = list(_effects(folder / "artifacts"))
    if effects != [f"{TASK}-2"]:
        yield f"promise 4: the reports are {effects or 'gone'}"
    database = str(folder / "state.db")
    try:
        with snapshot(database) as found:  # one opening for all: each reads the whole -wal
            evidence = collect(list(read_events(found)), read_tasks(found), read_steps(found))
            answer = found.value("PRAGMA integrity_check")
        for verdict in judge(evidence, effects):
            if verdict.verdict != HELD:
                yield f"law {verdict.law} {verdict.verdict}: {verdict.reason}"
        if answer != "ok":
            yield f"integrity_check: {answer}"
        status = next((task.status for task in evidence.tasks if task.id == TASK), None)
        if status != "done":
            yield f"promise 2: the task is {status}"
    except (LabkitError, StorageFault) as error:
        yield f"promise 1: what is left cannot be read: {error}"


def _effects(artifacts: Path) -> Iterator[str]:
    """One key for each whole report: a file of its own, or a record of report.log."""
    for path in sorted(artifacts.glob("[!.]*")):
        content = path.read_bytes()
        for record in content.split(END_OF_RECORD)[:-1] if path.suffix == ".log" else [content]:
            key = f"{TASK}-2" if path.suffix == ".log" else path.stem
            yield key if record == REPORT else f"{path.name} with {len(record)} other bytes"


def _agent(*words: str) -> list[str]:
    return [sys.executable, "-m", "labkit.restart", *words]


def _path(package: Path | None) -> Mapping[str, str]:
    return {"PYTHONPATH": str(package or Path(labkit.__file__).parents[1])}

"""The restart agent as scenarios of the crash kit, judged by its five promises and from outside.

What restarts it is harmed by nothing, so it has to succeed at once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from labkit.chaos.kill import Injury
from labkit.chaos.scenario import Broken, Scenario, Trial
from labkit.database import Database, open_readonly
from labkit.errors import NotFound, StorageFault
from labkit.journal.laws import HELD, judge_file

ROOT = Path(__file__).parents[1]
MATERIAL = ROOT / "labkit" / "lab" / "scenarios" / "notes"  # fetch, summarize, write_artifact
AGENT = [sys.executable, "-P", str(ROOT / "tests" / "witnessed.py")]
CREATE, RUN = [*AGENT, "create", "t", "plan.json"], [*AGENT, "run", "t"]
# Beside the folder, and not the kit's own witness: a step may run twice, so a call may too.
CALLS = "../calls"
CLEAN = (74,)


class Final(NamedTuple):
    """What is left at the end, and must equal what the unharmed run left."""

    steps: list[tuple[object, ...]]
    artifacts: dict[str, bytes]


class Looked(NamedTuple):
    """An injury, and then a `status`, asked of a copy: it would mend what the restart finds.

    A killed `create` may have left the task, or a file without it, or no file.
    """

    injury: Injury

    @property
    def how(self) -> str:
        return self.injury.how

    @property
    def address(self) -> str:
        return self.injury.address

    def strike(self, trial: Trial) -> None:
        self.injury.strike(trial)
        copy = Path(shutil.copytree(trial.folder, trial.root / f"copy-{time.monotonic_ns()}"))
        ended = trial.call([*AGENT, "--db", str(copy / "state.db"), "status", "t"])
        if ended.code not in (0, 1, 66):
            raise Broken(f"`status` exits {ended.code}: {ended.said}")


def run_scenario(package: Path = ROOT) -> Scenario:
    """`run` is harmed."""
    return _scenario(package, setup=CREATE, run=RUN, after=[CREATE])


def create_scenario(package: Path = ROOT) -> Scenario:
    """`create` is harmed; what a user does next is part of the judgement."""
    return _scenario(package, setup=(), run=CREATE, after=[RUN, CREATE])


def _scenario(
    package: Path, setup: list[str] | tuple[()], run: list[str], after: list[list[str]]
) -> Scenario:
    environ = {"PYTHONPATH": str(package), "WITNESS": CALLS}
    check = partial(_check, Reference(), after, {**os.environ, **environ})
    return Scenario(
        run, setup, check, material=MATERIAL, environ=environ, max_restarts=1, clean_exits=CLEAN
    )


class Reference:
    """What the first run left that was judged: the unharmed one."""

    final: Final | None = None


def _check(
    reference: Reference, after: list[list[str]], environ: dict[str, str], folder: Path
) -> list[str]:
    for argv in after:
        done = subprocess.run(
            argv, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=30, check=False,
        )  # fmt: skip
        if done.returncode:
            return [f"`{argv[3]}` exits {done.returncode}: {done.stderr}"]
    try:
        final = read_final(folder)
        reference.final = reference.final or final
        return list(judge(folder, final, reference.final))
    except (NotFound, StorageFault, OSError) as error:
        return [f"what is left cannot be judged: {error}"]


def read_final(folder: Path) -> Final:
    # `deduplicated` says truly that the file was there, if the kill came after it was published.
    output = "json_remove(output, '$.deduplicated')"
    steps = f"SELECT idx, tool, input, status, {output} FROM steps ORDER BY idx"
    database = open_readonly(str(folder / "state.db"))
    rows = [tuple(row) for row in database.rows(steps)]
    database.close()
    return Final(rows, {p.name: p.read_bytes() for p in (folder / "artifacts").iterdir()})


def judge(folder: Path, final: Final, reference: Final) -> Iterator[str]:
    """What is not as promised. The laws read the journal; all else is seen from outside it."""
    if final.steps != reference.steps:
        yield "promise 1: plan or outputs differ from the unharmed run's"
    if final.artifacts != reference.artifacts:
        names = {name: len(content) for name, content in final.artifacts.items()}
        yield f"promise 4: the artifacts, with their sizes, are {names}"
    path = str(folder / "state.db")
    for verdict in judge_file(path, list(final.artifacts)):
        if verdict.verdict != HELD:
            yield f"law {verdict.law} {verdict.verdict}: {verdict.reason}"
    database = open_readonly(path)
    if (answer := database.value("PRAGMA integrity_check")) != "ok":
        yield f"integrity_check: {answer}"
    yield from judge_calls(database, (folder / CALLS).read_text("utf-8").split())
    database.close()


def judge_calls(database: Database, calls: list[str]) -> Iterator[str]:
    """Promise 2 from outside: no tool was called more often than the journal began its step; and by
    law 2 no step began again once it was committed. One call fewer is a kill before the call."""
    began = Counter(
        f"{row[0]}-{row[1]}"
        for row in database.rows("SELECT task_id, step_idx FROM journal WHERE kind='step_started'")
    )
    called = Counter(calls)
    for key in began.keys() | called.keys():
        if not 1 <= called[key] <= began[key]:
            yield f"promise 2: {key} was called {called[key]} times, begun {began[key]} times"

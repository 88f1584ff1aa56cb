"""Kills at the places that a program names, before its SQL statements, and from outside.

These ways need no strace. Programs that are Python modules start by fork, which is what makes a
hundred kills a second possible; the child is a process like any other and the SIGKILL is real.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from labkit.chaos.forkserver import ForkServer, module_of
from labkit.chaos.scenario import (
    Argv,
    Broken,
    Ended,
    NotDelivered,
    Scenario,
    Trial,
    Workshop,
    end_escaped,
)
from labkit.errors import UsageError

if TYPE_CHECKING:
    from labkit.guard import Guarded

__all__ = [
    "FastWorkshop",
    "Pause",
    "Point",
    "Random",
    "Statement",
    "find_statements",
    "find_waits",
    "points",
    "require_stopped",
    "statements",
    "twice",
    "waits",
]

OUTPUT_MAX, SQL_MAX = 400, 200
VARIABLE = "AGENT_CRASH_AT"
POINTS = ("before_effect", "after_effect", "after_commit")


class FastTrial(Trial):
    """A trial whose Python modules are forked from a helper of this thread."""

    server: ForkServer

    def call(
        self, argv: Argv, meanwhile: Callable[[Guarded], None] | None = None, /, **environ: str
    ) -> Ended:
        module = module_of(argv)
        if meanwhile or module is None:
            return super().call(argv, meanwhile, **environ)
        try:
            code, said = self.server.call(
                module, self.folder, {**self.environ, **environ}, self.scenario.timeout_s
            )
        except TimeoutError as error:
            raise NotDelivered(f"`{' '.join(argv)}`: {error}") from None
        return Ended(code, said.strip()[-OUTPUT_MAX:])


class FastWorkshop(Workshop):
    """A workshop with one helper process for each thread. Close it, or use `with`."""

    def __init__(self, scenario: Scenario, root: Path) -> None:
        self._mine = threading.local()
        self._servers: list[ForkServer] = []
        try:
            super().__init__(scenario, root)
            # A helper compiles nothing into the trials' own cache. A run that is recorded must find
            # there what all later ones find, or its system calls would be others.
            with self.open() as trial:
                Trial.call(trial, scenario.run)
        except BaseException:
            self.close()
            raise

    def make_trial(self) -> Trial:
        trial = FastTrial(self.scenario, self.root, self.bytecode, self.prepared, self.running)
        trial.server = self._server()
        return trial

    def _server(self) -> ForkServer:
        # A program that kills its whole process group takes the helper along.
        if not hasattr(self._mine, "server") or not self._mine.server.is_alive:
            self._mine.server = ForkServer(self.scenario.environ)
            self._servers.append(self._mine.server)
            self.running.ends.append(self._mine.server.kill)
        server: ForkServer = self._mine.server
        return server

    def close(self) -> None:
        while self._servers:
            self._servers.pop().close()
        end_escaped(self.root)

    def __enter__(self) -> FastWorkshop:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Point(NamedTuple):
    """SIGKILL to itself at a crash point that the program declares, such as "after_effect:2"."""

    address: str
    variable: str = VARIABLE
    how: str = "points"

    def strike(self, trial: Trial) -> None:
        ended = trial.call(trial.scenario.run, **{self.variable: self.address})
        if ended.code != -signal.SIGKILL:
            raise NotDelivered(f"{self.address} killed nothing: status {ended.code}, {ended.said}")


def points(workshop: Workshop, names: Sequence[str] = (), variable: str = VARIABLE) -> list[Point]:
    """Every point of these names, by ordinal, until a run reaches none."""
    names = names or workshop.scenario.points or POINTS
    return [point for name in names for point in _of_name(workshop, name, variable)]


def twice(
    workshop: Workshop, names: Sequence[str] = (), variable: str = VARIABLE
) -> list[list[Point]]:
    """All pairs: a kill, and another in the run that recovers, where that run still comes there."""
    every = points(workshop, names, variable)
    pairs = [[first, second] for first in every for second in every]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        reached = pool.map(lambda pair: _is_reached(workshop, pair), pairs)
        return [pair for pair, is_reached in zip(pairs, reached, strict=True) if is_reached]


def _is_reached(workshop: Workshop, pair: Sequence[Point]) -> bool:
    with workshop.open() as trial:
        try:
            for point in pair:
                point.strike(trial)
        except NotDelivered:
            return False
    return True


def _of_name(workshop: Workshop, name: str, variable: str) -> Iterator[Point]:
    for ordinal in range(10_000):
        point = Point(f"{name}:{ordinal}", variable)
        with workshop.open() as trial:
            try:
                point.strike(trial)
            except NotDelivered:
                return
        yield point


class Statement(NamedTuple):
    """SIGKILL before the n-th SQL statement of a Python module; `sql` is what was recorded there.

    The last address is the end of the process, after the last statement.
    """

    ordinal: int
    sql: str
    how: str = "statements"

    @property
    def address(self) -> str:
        return f"statement:{self.ordinal}"

    def strike(self, trial: Trial) -> None:
        mark = trial.root / "statement"
        mark.unlink(missing_ok=True)
        ended = trial.call(_traced(trial.scenario.run), **_asking(self.ordinal, mark))
        if ended.code != -signal.SIGKILL or not mark.exists():
            raise NotDelivered(f"{self.address} killed nothing: status {ended.code}, {ended.said}")
        if (sql := _alike(mark.read_text(encoding="utf-8"))) != self.sql:
            raise NotDelivered(f"{self.address} struck at {sql!r}, recorded was {self.sql!r}")


def statements(workshop: Workshop) -> list[Statement]:
    """Every statement of one recorded run, and the end of its process."""
    with workshop.open() as trial:
        mark = trial.root / "statements"
        ended = trial.call(_traced(trial.scenario.run), **_asking(0, mark))
        if ended.code != workshop.code or not mark.exists():
            raise UsageError(f"the run cannot be recorded: status {ended.code}, {ended.said}")
        recorded = mark.read_text(encoding="utf-8").split("\0")[:-1]
    return [Statement(n, _alike(sql)) for n, sql in enumerate(recorded, start=1)]


def find_statements(workshop: Workshop, address: str) -> list[Statement]:
    """The statement of this name. Raises UsageError if the recorded run has none."""
    known = {each.address: each for each in statements(workshop)}
    if address not in known:
        raise UsageError(f"no {address}; there are statement:1 to statement:{len(known)}")
    return [known[address]]


def _alike(sql: str) -> str:
    """The statement with its times and random ids made equal, and not too long for a line."""
    return re.sub(r"\b\d+\.\d+\b|\b[0-9a-f]{8}\b", "?", sql)[:SQL_MAX]


def _traced(argv: Argv) -> list[str]:
    module = module_of(argv)
    if module is None:
        raise UsageError("statements: the run must be `python -m MODULE ...` with this Python")
    return [sys.executable, "-m", "labkit.chaos.traced", *module]


def _asking(ordinal: int, mark: Path) -> dict[str, str]:
    return {"LABKIT_STATEMENT": str(ordinal), "LABKIT_STATEMENT_MARK": str(mark)}


class Random(NamedTuple):
    """SIGKILL from outside, a seeded time after the start. The same seed may strike elsewhere."""

    seed: int
    longest_s: float
    how: str = "random"

    @property
    def address(self) -> str:
        return f"seed:{self.seed}"

    def strike(self, trial: Trial) -> None:
        wait_s = random.Random(self.seed).uniform(0, self.longest_s)
        ended = trial.call(trial.scenario.run, lambda process: _kill_after(process, wait_s))
        if ended.code != -signal.SIGKILL:
            raise NotDelivered(f"{self.address} came too late: the run had ended, {ended.code}")


def waits(workshop: Workshop, number: int, seed: int) -> list[Random]:
    """`number` kills at times up to 0.7 of what a whole run took; as many seeds from `seed` on."""
    took: list[float] = []

    def measure(process: Guarded) -> None:  # from where a kill waits too: without the guard's start
        began = time.monotonic()
        process.wait(workshop.scenario.timeout_s)
        took.append(time.monotonic() - began)

    with workshop.open() as trial:
        trial.call(trial.scenario.run, measure)
    longest_s = 0.7 * took[0]  # a kill after the end shows nothing
    return [Random(seed + n, longest_s) for n in range(number)]


def find_waits(workshop: Workshop, address: str) -> list[Random]:
    """The kill of this seed. Raises UsageError for another form."""
    if not (found := re.fullmatch(r"seed:(\d+)", address)):
        raise UsageError(f"{address}: a kill by chance is named like this: seed:3")
    return waits(workshop, 1, int(found[1]))


def _kill_after(process: Guarded, wait_s: float) -> None:
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.kill()


class Pause(NamedTuple):
    """SIGSTOP in the middle, another process takes over and ends the run, SIGCONT.

    `until` returns once the process is where it is to be stopped; `expire` makes its lease expire.
    The late writer must be refused: it ends, not as the run does, and changes nothing.
    """

    until: Callable[[Trial], None]
    expire: Callable[[Trial], None]
    address: str = "pause"
    how: str = "pause"

    def strike(self, trial: Trial) -> None:
        taken: list[Ended] = []

        def meanwhile(process: Guarded) -> None:
            self.until(trial)
            os.killpg(process.pid, signal.SIGSTOP)
            require_stopped(process.pid)
            self.expire(trial)
            taken.append(trial.call(trial.scenario.run))
            os.killpg(process.pid, signal.SIGCONT)

        late = trial.call(trial.scenario.run, meanwhile)
        if not taken or taken[0].code:
            raise NotDelivered(f"nobody took over: {taken[0].said if taken else late.said}")
        if late.code == 0:
            raise Broken("the late writer was not refused: it ended as if it were alone")


def require_stopped(pid: int) -> None:
    """Returns once the kernel says that the process is stopped, not only told to."""
    while True:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][:1]
        if state == "T":
            return
        if state in "ZX":
            raise NotDelivered("the process had ended before it was stopped")

"""SIGKILL before any system call that touches state, once or twice.

A recorded run tells the calls. A kill counts only if the trace proves it: the process was killed,
and its last call is the recorded one, on the recorded path, not executed. The rest of the program
is killed as soon as that process is dead. Anything else is unknown.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from labkit.chaos.scenario import Ended, NotDelivered, Trial, Workshop
from labkit.chaos.tracing import STRACE, Call, Reader, record, run_traced
from labkit.errors import UsageError
from labkit.guard import Guarded

__all__ = ["Kill", "find", "find_all", "plan", "twice"]

# strace counts in each process apart, so a rival may come to the same ordinal first. Then every
# process is held up there for so long, and the one that is meant is killed by its id.
DELAY_S = 0.5
POLL_S = 0.004
SECONDS = 5  # how many second kills share the recording of one recovery


class Kill(NamedTuple):
    """SIGKILL before one recorded call. `alone`: the program is one process. `rivals`: another
    process makes a call of this name and ordinal too."""

    call: Call
    alone: bool = True
    rivals: bool = False
    tracer: Sequence[str] = STRACE

    @property
    def how(self) -> str:
        return "syscalls"

    @property
    def address(self) -> str:
        return self.call.address

    def strike(self, trial: Trial) -> None:
        """Raises NotDelivered unless the trace proves that it struck where it was planned."""
        harm = f"delay_enter={DELAY_S}s" if self.rivals else "signal=KILL"
        rule = f"inject={self.call.name}:{harm}:when={self.call.ordinal}"
        meanwhile = None if self.alone else self._watch(trial.folder, trial.scenario.timeout_s)
        ended, reader = run_traced(trial, ["-e", rule], self.tracer, meanwhile)
        self._prove(ended, reader)

    def _prove(self, ended: Ended, reader: Reader) -> None:
        process, last = self.call.process, reader.last(self.call.process)
        # The rest of a program of several processes may have ended in its own way by then.
        status = not self.alone or ended.code == -signal.SIGKILL
        if not status or process not in reader.killed or not last:
            raise NotDelivered(f"{self.address} was not killed, its status is {ended.code}")
        call, result = last
        if call != self.call or not result.startswith("?"):
            struck = f"{call.address} on {call.path or 'a path outside the folder'}"
            raise NotDelivered(
                f"{self.address} on {self.call.path} is recorded, the kill struck at {struck}"
            )

    def _watch(self, folder: Path, timeout_s: float) -> Callable[[Guarded, Path], None]:
        def watch(process: Guarded, trace: Path) -> None:
            reader, end, shot = Reader(folder), time.monotonic() + timeout_s, not self.rivals
            with trace.open(encoding="utf-8", errors="replace") as text:
                looked = time.monotonic()
                while process.poll() is None and looked < end:
                    previous, looked = looked, time.monotonic()
                    reader.feed(text.read())
                    if self.call.process in reader.killed:
                        process.kill()
                        return
                    shot = shot or self._shoot(reader, looked - previous)
                    time.sleep(POLL_S)

        return watch

    def _shoot(self, reader: Reader, gap_s: float) -> bool:
        """Kills the process that is held up. Not if we looked too late: its call may be done."""
        if reader.in_flight(self.call.process) != (self.call.name, self.call.ordinal):
            return False
        if gap_s < DELAY_S - 0.1:
            with suppress(ProcessLookupError):
                os.kill(int(reader.pids[self.call.process - 1]), signal.SIGKILL)
        return True


def plan(
    workshop: Workshop, after: Sequence[Kill] = (), tracer: Sequence[str] = STRACE
) -> list[Kill]:
    """Every possible kill of the run; of the run that recovers, `after` other kills."""
    reader = record(workshop, after)
    makers: dict[tuple[str, int], int] = {}
    for call in reader.calls:
        makers[call.name, call.ordinal] = makers.get((call.name, call.ordinal), 0) + 1
    alone = len(reader.pids) == 1
    return [
        Kill(call, alone, makers[call.name, call.ordinal] > 1, tracer) for call in reader.touching
    ]


def find(workshop: Workshop, address: str, after: Sequence[Kill] = ()) -> Kill:
    """The kill of this name. Raises UsageError if the recorded run has no such call."""
    known = {kill.address: kill for kill in plan(workshop, after)}
    if address not in known:
        raise UsageError(f"no call {address} touches state; there are {', '.join(known)}")
    return known[address]


def find_all(workshop: Workshop, addresses: str) -> list[Kill]:
    """`pwrite64:17 fsync:3`: each but the first is a kill in the run that recovers."""
    found: list[Kill] = []
    for address in addresses.split():
        found.append(find(workshop, address, found))
    if not found:
        raise UsageError("no address; a kill is named like this: pwrite64:17")
    return found


def twice(workshop: Workshop, pairs: int = 300, seed: int = 0) -> list[tuple[Kill, ...]]:
    """Pairs by chance: a kill, and another in the run that recovers from it; fewer where the
    program has fewer. A first kill that no recorded run recovers from stands alone, to be judged.
    """
    chance = random.Random(seed)
    kills = plan(workshop)
    firsts = chance.sample(kills, len(kills))
    at_once = -(-pairs // SECONDS) + 3
    each: list[list[tuple[Kill, ...]]] = []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        while firsts and sum(min(SECONDS, len(found)) for found in each) < pairs:
            now, firsts = firsts[:at_once], firsts[at_once:]
            each += pool.map(lambda first: _pairs_after(workshop, first), now)
    for found in each:
        chance.shuffle(found)
    rounds = zip_longest(*each)  # of each first kill one pair, then of each another
    return [pair for one_of_each in rounds for pair in one_of_each if pair][:pairs]


def _pairs_after(workshop: Workshop, first: Kill) -> list[tuple[Kill, ...]]:
    try:
        return [(first, second) for second in plan(workshop, (first,))]
    except NotDelivered:
        return [(first,)]

"""Storage that fails: an errno for a system call that touches state, once or from then on.

What is expected: the run ends with a clean exit, and on healthy storage the next run completes; or
it ends well with everything there that it acknowledged (SQLite itself ignores that a folder cannot
be synced). A fault counts only if the trace shows its errno injected at the recorded call.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from labkit.chaos.scenario import Broken, Ended, NotDelivered, Trial, Workshop
from labkit.chaos.tracing import STRACE, Call, Reader, record, run_traced
from labkit.chaos.verdict import BROKEN
from labkit.errors import UsageError

__all__ = ["ERRORS", "Fault", "find", "plan"]

ERRORS = ("ENOSPC", "EIO", "EPERM", "EACCES")
TRACEBACK = "Traceback (most recent call last)"
ADDRESS = re.compile(r"(?P<call>[\w/]+:\d+)(?P<onward>\+?)=(?P<error>E[A-Z]+)")


class Fault(NamedTuple):
    """An errno for one recorded call, and, `onward`, for all later ones of its name on `paths`.

    `nth` is the call's ordinal among those on `paths`; without paths all calls of the name fail.
    """

    workshop: Workshop
    call: Call
    error: str
    onward: bool = False
    nth: int = 0
    paths: Sequence[str] = ()
    tracer: Sequence[str] = STRACE

    @property
    def how(self) -> str:
        return "faults"

    @property
    def address(self) -> str:
        """`pwrite64:17=ENOSPC`, or `pwrite64:17+=ENOSPC` from then on."""
        return f"{self.call.address}{'+' * self.onward}={self.error}"

    def strike(self, trial: Trial) -> None:
        """Raises NotDelivered unless the trace shows the fault, and Broken for what the faulty run
        did that no failing storage excuses."""
        rule = f"inject={self.call.name}:error={self.error}:when={self.nth}{'+' * self.onward}"
        paths = [option for path in self._places(trial) for option in ("-P", path)]
        ended, reader = run_traced(trial, [*paths, "-e", rule], self.tracer)
        self._prove(reader)
        if fault := self._judge(ended, trial):
            raise Broken(f"{self.call.path} fails with {self.error}: {fault}")

    def _places(self, trial: Trial) -> list[str]:
        """A program may name a file in the folder by its whole path."""
        roots = ["", f"{trial.folder}/", f"{os.path.realpath(trial.folder)}/"]
        places = (os.path.normpath(root + path) for path in self.paths for root in roots)
        return list(dict.fromkeys(places))

    def _prove(self, reader: Reader) -> None:
        for call, result in zip(reader.calls, reader.results, strict=True):
            if result.endswith("(INJECTED)"):
                same = call[1::2] == self.call[1::2] if self.paths else call == self.call
                if same and f" {self.error} " in result:
                    return
                raise NotDelivered(f"{self.address} struck {call.address} on {call.path}")
        raise NotDelivered(f"{self.address} on {self.call.path} was not injected")

    def _judge(self, ended: Ended, trial: Trial) -> str:
        if ended.code < 0:
            return f"the run is killed by signal {-ended.code}: {ended.said}"
        if ended.code == self.workshop.code:
            outcome, reason = self.workshop.judge(trial)
            return f"it exits {ended.code}, yet {reason}" if outcome == BROKEN else ""
        return unclean(ended, trial.scenario.clean_exits)


def unclean(ended: Ended, clean: Sequence[int]) -> str:
    """What is wrong with how a run gave up, by the scenario's `clean_exits`."""
    if not clean:
        return ""
    if TRACEBACK in ended.said:
        return f"it exits {ended.code} with a traceback: {ended.said}"
    if ended.code not in clean:
        return f"it exits {ended.code}, not {' or '.join(map(str, clean))}: {ended.said}"
    lines = len(ended.said.splitlines())
    return f"it says {lines} lines, not one: {ended.said}" if lines > 1 else ""


def plan(
    workshop: Workshop, errors: Sequence[str] = ERRORS, tracer: Sequence[str] = STRACE
) -> list[Fault]:
    """Each errno at each call that touches state, once and from then on.

    strace counts in each process apart. Where several processes make a call of one name and
    ordinal, a fault can be given only to the first that comes to it, and is planned only for that.
    """
    reader = record(workshop)
    paths = sorted({call.path for call in reader.touching if "*" not in call.path})
    plain = _ordinals(reader.calls)
    named = _ordinals([call for call in reader.calls if call.path in paths])
    planned: list[Fault] = []
    for call in reader.touching:
        for onward in (False, True):
            # On the paths of the folder alone, so that the program still finds its libraries and
            # its terminal. Not where a name differs in each run, nor where the count is exact.
            by_path = "*" not in call.path and (onward or len(reader.pids) > 1)
            if nth := (named if by_path else plain).get(call):
                only = paths if by_path else ()
                planned += [Fault(workshop, call, e, onward, nth, only, tracer) for e in errors]
    return planned


def _ordinals(calls: Sequence[Call]) -> dict[Call, int]:
    """The ordinal of each call among these, if no other process came to it before."""
    made: Counter[tuple[int, str]] = Counter()
    first: dict[tuple[str, int], Call] = {}
    for call in calls:
        made[call[:2]] += 1
        first.setdefault((call.name, made[call[:2]]), call)
    return {call: nth for (_, nth), call in first.items()}


def find(workshop: Workshop, address: str) -> Fault:
    """The fault of this name. Raises UsageError if the recorded run has no such call."""
    named = ADDRESS.fullmatch(address)
    if not named or not hasattr(errno, named["error"]):
        raise UsageError(f"{address}: a fault is named like this: pwrite64:17=ENOSPC, or 17+=")
    for fault in plan(workshop, (named["error"],)):
        if fault.address == address:
            return fault
    raise UsageError(f"no call {named['call']} that touches state can be given a fault")

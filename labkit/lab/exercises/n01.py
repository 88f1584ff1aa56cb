"""A crash without a journal: what it costs, and a memory that a kill does not take."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from labkit.lab.checks import Desk, Judgement, ask, broken, held, not_judged
from labkit.lab.evidence import files, find_reports
from labkit.lab.folder import Folder
from labkit.lab.handing import hand_over
from labkit.lab.process import NotReady, Result

__all__ = ["ex1", "ex2"]

STEPS = ("fetch", "summarize", "write_artifact")
PLACES = [(point, idx) for point in ("before_effect", "after_effect") for idx in range(len(STEPS))]
AT_ONCE = 2
LIMIT_S = 8.0  # for one process; it takes a tenth of a second
NAIVE = "naive plan.json"

FORGETS = "An agent without a journal that is started again begins with its first step."
OUTLIVES = "What the next process is to know must be on the disk before this one goes on."
NOT_KILLED = (
    "Process 1 was to be killed at a call, and ended without it. A fresh folder holds no memory: "
    "does your function look in another one? A name without a folder is enough."
)


class Seen(NamedTuple):
    """What processes in one folder did, one after the other, and what a reader finds after it.

    `left` has the size of each file that was new when the first process had ended.
    """

    processes: list[Result]
    reports: int
    left: dict[str, int]

    def calls(self) -> list[str]:
        """The steps that were called, in order, in all processes together."""
        return [step for process in self.processes for step in _called(process)]

    def rows(self) -> list[str]:
        lines = [
            f"process {number}  {', '.join([*_called(process), _end(process)])}"
            for number, process in enumerate(self.processes, start=1)
        ]
        return [*lines, f"outside    {_count(self.reports, 'report')}"]


def ex1(cost: Any, desk: Desk) -> Judgement:
    """`cost` says what the two processes cost together, at each place where the first can die."""
    said = [ask(cost, *place) for place in PLACES]
    for place, value in zip(PLACES, said, strict=True):
        if not (isinstance(value, tuple | list) and [*map(type, value)] == [int, int]):
            reason = f"cost{place} returned {value!r}. Return two numbers: calls, reports."
            return not_judged(reason, FORGETS)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        every = list(pool.map(lambda place: _crash_and_restart(desk, *place), PLACES))
    for place, value, seen in zip(PLACES, said, every, strict=True):
        if not seen.processes[0].killed:
            return not_judged(f"Nothing was killed at {place}.", FORGETS, seen.rows())
        if tuple(value) != (len(seen.calls()), seen.reports):
            return broken(_why(place, tuple(value), seen), FORGETS, seen.rows())
    return held("Your function is right at all six places. The last:", FORGETS, every[-1].rows())


def ex2(take_steps: Any, desk: Desk) -> Judgement:
    """`take_steps` is killed before step 1 and before step 2, and may call each step once."""
    folder = desk.fresh()
    command = f"{NAIVE} {hand_over(take_steps, folder)}"
    try:
        seen = _go(folder, command, "before_effect:1", "before_effect:2", None)
        if verdict := _forgotten(seen) or _begun_again(folder, command, seen):
            return verdict
        late = desk.fresh("after-effect-2")
        hand_over(take_steps, late)
        doubled = _go(late, command, "after_effect:2", None)
    except NotReady:
        reason = f"A process with your function had not ended after {LIMIT_S:g} s and was killed."
        return broken(reason, OUTLIVES)
    if not doubled.processes[0].killed:
        return broken(NOT_KILLED, OUTLIVES, doubled.rows())
    reason = (
        "It was killed before step 1 and before step 2, and started once more after its end: each "
        "step was called once. "
    )
    if doubled.reports > 1:
        reason += (
            "But a kill right after the report was written, in another folder, still left "
            f"{doubled.reports} reports: what was done and not yet stored is done again."
        )
    return held(reason, OUTLIVES, seen.rows())


def _crash_and_restart(desk: Desk, point: str, idx: int) -> Seen:
    return _go(desk.fresh(f"{point}-{idx}".replace("_", "-")), NAIVE, f"{point}:{idx}", None)


def _go(folder: Folder, command: str, *crashes: str | None) -> Seen:
    """One process after the other, each killed at its place. Raises NotReady for one too long."""
    before = files(folder)
    given = [{"AGENT_CRASH_AT": crash} if crash else {} for crash in crashes]
    first = folder.start(command, given[0]).finish(LIMIT_S)
    new = [name for name in files(folder) if name not in before]
    left = {name: (folder.path / name).stat().st_size for name in new}
    later = [folder.start(command, agent).finish(LIMIT_S) for agent in given[1:]]
    return Seen([first, *later], len(find_reports(folder)), left)


def _why(place: tuple[str, int], said: tuple[int, int], seen: Seen) -> str:
    """Which of the two numbers is another one, and what a learner may have overlooked."""
    point, idx = place
    calls, where = len(seen.calls()), f"Killed at {point}:{idx}"
    if said[0] != calls:
        why = "the second process calls all three steps again"
        if said[0] > calls:
            why = f"the first process died {'before' if point == 'before_effect' else 'after'} "
            why += f"the call of step {idx}"
        return f"{where}: you say {_count(said[0], 'call')}; {calls} were made, since {why}."
    why = "the first had not come to its report" if seen.reports == 1 else "both published theirs"
    return (
        f"{where}: you say {_count(said[1], 'report')}; a reader finds {seen.reports}, since {why}."
    )


def _forgotten(seen: Seen) -> Judgement | None:
    """A verdict on three processes that did not call each step once, with what they did."""
    reason = _failed(seen) or _called_again(seen)
    if not reason and not seen.processes[0].killed:
        reason = NOT_KILLED
    if not reason and (left_out := [step for step in STEPS if step not in seen.calls()]):
        reason = f"{left_out[0]} was never called. Was it stored as done before it was?"
    return broken(reason, OUTLIVES, seen.rows()) if reason else None


def _begun_again(folder: Folder, command: str, seen: Seen) -> Judgement | None:
    """A verdict on a process that is started when all is done, and still does something."""
    late = folder.start(command, {}).finish(LIMIT_S)
    rows = seen._replace(processes=[*seen.processes, late], reports=len(find_reports(folder)))
    if again := _called(late):
        reason = (
            f"All three steps were done, and a process that was started after that called "
            f"{again[0]} again. Store an output when its call has returned, the last one too."
        )
        return broken(reason, OUTLIVES, rows.rows())
    reason = _failed(rows)
    return broken(reason, OUTLIVES, rows.rows()) if reason else None


def _failed(seen: Seen) -> str:
    for number, process in enumerate(seen.processes, start=1):
        if process.code > 0:
            last = process.output.strip().rpartition("\n")[2]
            return f"Process {number} failed: {last.removeprefix('naive: ') or _end(process)}."
    return ""


def _called_again(seen: Seen) -> str:
    """Why a later process did not know: nothing written, not yet on the disk, or never read."""
    calls = seen.calls()
    again = [step for step in STEPS if calls.count(step) > 1]
    if not again:
        return ""
    why = "process 1 left no file when it was killed"
    if name := next(iter(seen.left), ""):
        why = f"process 1 had left {name}, and its step was called again all the same"
        if not seen.left[name]:
            why = (
                f"process 1 left {name} with nothing in it: what is written to an open file waits "
            )
            why += "in memory until it is flushed or closed"
    return f"{again[0]} was called {_count(calls.count(again[0]), 'time')}: {why}."


def _called(process: Result) -> list[str]:
    return [step for step in STEPS for _ in range(process.output.count(f"{step} was called"))]


def _end(process: Result) -> str:
    return repr(process) if process.code < 0 else f"exit {process.code}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

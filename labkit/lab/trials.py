"""One trial: an agent is killed at one crash point, run again, and judged from outside.

A trial is the same three commands that a learner types: create, run with a crash, run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from labkit.errors import UsageError
from labkit.journal.laws import BROKEN, HELD, NOT_JUDGED, Verdict, judge_file
from labkit.journal.reading import snapshot
from labkit.lab.evidence import journal, killed_runs, timeline, witness
from labkit.lab.folder import Folder
from labkit.lab.process import TIMEOUT_S, Result

if TYPE_CHECKING:
    import pandas as pd

    from labkit.journal import Journal
    from labkit.journal.figure import Timeline

__all__ = ["POINTS", "TASK", "Trial", "crash_and_resume", "died_at", "place", "tabulate"]

POINTS = ("before_effect", "after_effect", "after_commit")
TASK = "notes"
WRITES = "write_artifact"  # the one tool of the agent whose effect is outside


class Trial(NamedTuple):
    """What one trial left. `crash_at` is "point:idx", or None for a run that was not killed.

    `left` are the effects of the first process alone; None where it had tools of somebody's own, of
    which nobody knows what they leave.
    """

    crash_at: str | None
    folder: Folder
    first: Result
    second: Result
    effects: list[str]
    verdicts: tuple[Verdict, ...]
    left: list[str] | None = None

    @property
    def journal(self) -> Journal:
        return journal(self.folder)

    def timeline(self, by: str = "order") -> Timeline:
        return timeline(self.folder, TASK, by)

    @property
    def died_there(self) -> bool:
        """Whether the first process was killed, and by all that can be seen at its place."""
        at = self.crash_at or ""
        return self.first.killed and died_at(self.folder, at, self.left)

    @property
    def judgement(self) -> str:
        """One of: held; broken or not judged, with the laws; not killed; not resumed."""
        if self.crash_at and not self.died_there:
            return "not killed"  # the crash point was not reached: this trial proves nothing
        if self.second.code:
            return f"not resumed ({self.second!r})"
        for verdict in (BROKEN, NOT_JUDGED):
            if numbers := [str(v.law) for v in self.verdicts if v.verdict == verdict]:
                return f"{verdict}: {', '.join(numbers)}"
        return HELD

    def count_reports(self) -> str:
        return f"{len(self.effects)} report{'' if len(self.effects) == 1 else 's'}"

    def __repr__(self) -> str:
        crash = self.crash_at or "no crash"
        return (
            f"{crash}: {self.first}, then {self.second}; {self.count_reports()}; {self.judgement}"
        )


def died_at(folder: Folder, crash_at: str, left: Sequence[str] | None = None) -> bool:
    """Whether the killed run ends as one does that dies at this place: somebody else may have
    killed the process, before it came there.

    In the journal the places before and after an effect look the same. `left`, what was outside
    then, tells them apart. Of a step without an effect outside nothing does, and nothing need: what
    a kill between the two leaves is the same at both. Rejected: a line that the process writes
    before it kills itself; a witness outside needs no word of the agent.
    """
    if not (killed := killed_runs(folder, TASK)):
        return False
    point, _, idx = crash_at.partition(":")
    last = "step_finished" if point == "after_commit" else "step_started", int(idx)
    query = "SELECT kind, step_idx FROM journal WHERE run_id = ? ORDER BY seq DESC LIMIT 1"
    with snapshot(str(folder.database)) as reader:
        if next(reader.tuples(query, (killed[-1],)), None) != last:
            return False
        written = reader.value(
            "SELECT count(DISTINCT step_idx) FROM journal "
            "WHERE run_id = ? AND kind = 'step_started' AND step = ?",
            killed[-1],
            WRITES,
        )
    return left is None or point == "before_effect" or len(left) >= written


def crash_and_resume(
    folder: Folder,
    crash_at: str | None,
    *,
    unsafe: bool = False,
    options: str = "",
    timeout_s: float = TIMEOUT_S,
) -> Trial:
    """One trial in a fresh folder. `unsafe` takes the key from the effect."""
    effects = {"AGENT_UNSAFE_EFFECTS": "1"} if unsafe else {}
    crash = {"AGENT_CRASH_AT": crash_at} if crash_at else {}
    run = f"agent {options} run {TASK}"
    folder.start(f"agent {options} create {TASK} plan.json", {}).finish(timeout_s)
    first = folder.start(run, {**effects, **crash}).finish(timeout_s)
    left = None if options else witness(folder)
    second = folder.start(run, effects).finish(timeout_s)
    seen = witness(folder)
    verdicts = judge_file(str(folder.database), seen)
    return Trial(crash_at, folder, first, second, seen, verdicts, left)


def tabulate(trials: Iterable[Trial]) -> pd.DataFrame:
    """The judgement of each trial: one row for each crash point, one column for each step.

    Of two trials at one place the later counts. Raises UsageError for a trial without a place.
    """
    import pandas as pd

    cells = {place(trial): (*place(trial), trial.judgement) for trial in trials}
    frame = pd.DataFrame(cells.values(), columns=["crash point", "step", "judgement"])
    table = frame.pivot(index="crash point", columns="step", values="judgement")
    return table.reindex(sorted(table.index, key=POINTS.index))


def place(trial: Trial) -> tuple[str, int]:
    """The crash point and the step of a trial. Raises UsageError where there is no such place."""
    point, _, idx = (trial.crash_at or "").partition(":")
    if point not in POINTS or not idx.isdecimal():
        known = ", ".join(POINTS)
        raise UsageError(
            f"{trial.crash_at!r} has no place in a grid; use one of {known}, with :IDX"
        )
    return point, int(idx)

"""A learner's own tool in a plan, killed at crash points and judged like any other."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from labkit.errors import storage_faults
from labkit.journal.laws import BROKEN
from labkit.lab.checks import Desk
from labkit.lab.folder import Folder
from labkit.lab.handing import hand_over
from labkit.lab.trials import POINTS, Trial, crash_and_resume

__all__ = ["FETCH", "give_plan", "is_sound", "step_rows", "sweep_tool", "try_tool"]

AT_ONCE = 2
FETCH = {"tool": "fetch", "input": {"path": "input/notes.txt"}}

Steps = Sequence[dict[str, Any]]


def give_plan(folder: Folder, steps: Steps) -> None:
    """Writes the plan of these steps into the folder."""
    with storage_faults("cannot write plan.json"):
        text = json.dumps({"goal": "An exercise", "steps": list(steps)})
        (folder.path / "plan.json").write_text(text, encoding="utf-8")


def try_tool(desk: Desk, tool: Callable[..., Any], steps: Steps, crash_at: str | None) -> Trial:
    """One trial with the tool at hand, in a fresh folder. Raises NotSelfContained."""
    folder = desk.fresh((crash_at or "no-crash").replace(":", "-"))
    give_plan(folder, steps)
    return crash_and_resume(folder, crash_at, options=hand_over(tool, folder))


def sweep_tool(
    desk: Desk, tool: Callable[..., Any], steps: Steps, idx: int, points: Sequence[str] = POINTS
) -> list[Trial]:
    """A trial for each crash point of step `idx`, in the order of the points."""

    def one(point: str) -> Trial:
        return try_tool(desk, tool, steps, f"{point}:{idx}")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, points))


def is_sound(trial: Trial) -> bool:
    """Killed where it was to be, resumed to its end, and no law broken.

    Law 4 is not judged where no report was published; the check itself must count then.
    """
    was_killed = trial.first.killed or trial.crash_at is None
    no_law_broken = all(verdict.verdict != BROKEN for verdict in trial.verdicts)
    return was_killed and trial.second.code == 0 and no_law_broken


def step_rows(trial: Trial, idx: int) -> list[str]:
    """The journal of one step as lines of evidence: seq, run, kind, attempt."""
    query = "SELECT seq, run_id, kind, attempt FROM journal WHERE step_idx = ? ORDER BY seq"
    rows = trial.journal.sql(query, [idx]).itertuples(index=False)
    return [f"seq {r.seq}  {r.kind}  run {r.run_id}  attempt {r.attempt}" for r in rows]

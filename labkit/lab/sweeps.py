"""A learner's own tool in a plan, killed at crash points and judged like any other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from threading import Event
from typing import Any, TypeVar

from labkit.errors import LabkitError, storage_faults
from labkit.journal.laws import BROKEN
from labkit.lab.checks import Desk
from labkit.lab.folder import RUN_IDS, Folder
from labkit.lab.handing import hand_over
from labkit.lab.process import NotReady
from labkit.lab.trials import Trial, crash_and_resume

__all__ = [
    "FETCH",
    "Unending",
    "cut_tool",
    "ending",
    "give_notes",
    "give_plan",
    "is_sound",
    "raised",
    "side_by_side",
    "step_rows",
    "try_tool",
]

AT_ONCE = 2
LIMIT_S = 8.0  # for a whole run; one takes a fifth of a second
NOTES = "input/notes.txt"
FETCH = {"tool": "fetch", "input": {"path": NOTES}}
CUT = "\n\nfrom labkit.lab.scenarios import halfway\n\nhalfway.watch({text!r})\n"

Steps = Sequence[dict[str, Any]]
T = TypeVar("T")


class Unending(LabkitError):
    """An agent had not ended, so it was killed; the message says how long it had."""

    exit_code = 64


def give_plan(folder: Folder, steps: Steps) -> None:
    """Writes the plan of these steps into the folder."""
    _give(folder, "plan.json", json.dumps({"goal": "An exercise", "steps": list(steps)}))


def give_notes(folder: Folder, text: str, name: str = NOTES) -> None:
    """Writes notes for a `fetch`, in place of those that the notebook shows."""
    _give(folder, name, text)


def try_tool(
    desk: Desk, tool: Callable[..., Any], steps: Steps, crash_at: str | None, notes: str = ""
) -> Trial:
    """One trial with the tool at hand, in a fresh folder; with other notes than the usual ones.

    Raises NotSelfContained, and Unending for a tool that does not return.
    """
    folder = _prepare(desk, (crash_at or "no-crash").replace(":", "-"), steps, notes)
    return _trial(folder, crash_at, hand_over(tool, folder))


def cut_tool(desk: Desk, tool: Callable[..., Any], steps: Steps, text: str) -> Trial:
    """One trial in which the tool itself is killed: its file is there, `text` is not yet in it.

    A tool without such a moment between two of its lines is not killed. Raises as `try_tool`.
    """
    folder = _prepare(desk, "half-written", steps)
    return _trial(folder, None, hand_over(tool, folder, CUT.format(text=text)))


def side_by_side(trials: Iterable[Callable[[], T]]) -> list[T]:
    """Makes the trials, two at a time; the first that raises ends what has not begun.

    An interrupt does not wait for what has begun: whoever opened the folders closes them.
    """
    failed = Event()

    def one(trial: Callable[[], T]) -> T:
        if failed.is_set():  # never reached in the list of results: an earlier one has raised
            raise CancelledError
        try:
            return trial()
        except BaseException:
            failed.set()
            raise

    pool, waits = ThreadPoolExecutor(AT_ONCE), True
    try:
        return list(pool.map(one, trials))
    except KeyboardInterrupt:
        failed.set()
        waits = False
        raise
    finally:
        pool.shutdown(wait=waits, cancel_futures=True)


def is_sound(trial: Trial, laws: Collection[int] = range(1, 7)) -> bool:
    """Killed where it was to be, resumed to the end of its task, and none of the laws broken.

    Law 4 is not judged where no report was published; the check itself must count then.
    """
    was_killed = trial.first.killed or trial.crash_at is None
    no_law_broken = not any(v.verdict == BROKEN for v in trial.verdicts if v.law in laws)
    return was_killed and trial.second.code == 0 and no_law_broken and _is_done(trial)


def ending(trial: Trial) -> str:
    """How a trial that is not sound ended, for its learner: a law, or the last words of a run."""
    law = next((v for v in trial.verdicts if v.verdict == BROKEN and v.law != 4), None)
    if law:
        return f"law {law.law} is broken: {law.reason}."
    if trial.second.code == 0 and not _is_done(trial):  # os._exit(0) in the tool
        return "exit 0, and the task is not done."
    if trial.second.code == 0:
        return f"the first run was not killed at {trial.crash_at}: {trial.first!r}."
    return f"{trial.second!r}. {trial.second.output.strip()}"


def raised(trial: Trial) -> str:
    """What the learner's function raised first, as a sentence; "" if it raised nothing.

    An error that names no class is the agent's own: of an output that is no JSON, say.
    """
    errors = trial.journal.sql("""
        SELECT run_id, json_extract(data, '$.error') AS error FROM journal
        WHERE kind = 'step_error' ORDER BY seq LIMIT 1""")
    if errors.empty or not re.match(r"[A-Z]\w*: ", errors.error[0]):
        return ""
    run = "first" if errors.run_id[0] == RUN_IDS[0] else "second"
    return f"Your function raised {errors.error[0]} in the {run} run; mend it, run the cell again."


def step_rows(trial: Trial, idx: int) -> list[str]:
    """The journal of one step as lines of evidence: seq, run, kind, attempt."""
    query = "SELECT seq, run_id, kind, attempt FROM journal WHERE step_idx = ? ORDER BY seq"
    rows = trial.journal.sql(query, [idx]).itertuples(index=False)
    return [f"seq {r.seq}  {r.kind}  run {r.run_id}  attempt {r.attempt}" for r in rows]


def _prepare(desk: Desk, name: str, steps: Steps, notes: str = "") -> Folder:
    folder = desk.fresh(name)
    give_plan(folder, steps)
    if notes:
        give_notes(folder, notes)
    return folder


def _trial(folder: Folder, crash_at: str | None, options: str) -> Trial:
    try:
        return crash_and_resume(folder, crash_at, options=options, timeout_s=LIMIT_S)
    except NotReady:
        ended = f"an agent with your tool had not ended after {LIMIT_S:g} s and was killed"
        raise Unending(f"{ended}: a loop without an end, perhaps") from None


def _is_done(trial: Trial) -> bool:
    """A tool can leave the process with exit 0; the journal tells."""
    done = "SELECT count(*) AS n FROM journal WHERE kind = 'task_done'"
    return bool(trial.journal.sql(done).n[0] == 1)


def _give(folder: Folder, name: str, text: str) -> None:
    with storage_faults(f"cannot write {name}"):
        (folder.path / name).write_text(text, encoding="utf-8")

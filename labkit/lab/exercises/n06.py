"""Effects once: a publisher killed in each of its calls, a table of reports, and a key."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from labkit.errors import LabkitError, ensure
from labkit.lab.checks import Desk, Judgement, ask, broken, held, not_judged
from labkit.lab.evidence import journal, witness
from labkit.lab.exercises import published
from labkit.lab.folder import Folder
from labkit.lab.handing import hand_over, source_of
from labkit.lab.sweeps import is_sound
from labkit.lab.trials import POINTS, TASK, Trial

__all__ = ["ex1", "ex2", "ex3"]

AT_ONCE = 2
ONCE = (
    "A report is published once: under its own name, whole or not at all, never in place of "
    "another's, and on the disk before the function returns (promise 4)."
)


def ex1(publish: Any, desk: Desk) -> Judgement:
    """`publish(folder, name, content)` is killed in each of its calls, and in three agents."""
    source_of(publish)
    if not _takes(publish, "artifacts", "notes-2.md", b"content"):
        return not_judged("The check calls publish(folder, name, content); keep its first line.")
    seen = published.look_at(publish, desk)
    fault = published.fault_in_calls(seen)
    # Agents take time, so they are run only for what the calls alone do not show.
    points = ["after_effect"] if published.is_doubled(seen) else [] if fault else list(POINTS)
    trials = published.run_agents(publish, desk, points)
    if fault := published.fault_in_agents(trials) or fault:
        return broken(fault.seen, ONCE, fault.rows)
    reason = (
        f"Killed in {len(seen.once)} places of one call, and in an agent at each crash point, it "
        "published one whole report and left another task's file alone."
    )
    return held(reason, ONCE, published.rows_of(seen, trials[1]))


def _takes(function: Any, *given: Any) -> bool:
    try:
        inspect.signature(function).bind(*given)
    except TypeError:
        return False
    return True


# Exercise 2: how many reports?


class Row(NamedTuple):
    """One row of the table: which agent, killed where, in how many runs, and why it ends so."""

    unsafe: bool
    crash_at: str
    kills: int
    why: str


ROWS = {
    "unsafe, before_effect:2": Row(
        True, "before_effect:2", 1, "The kill came before the append; only the second run made it."
    ),
    "unsafe, after_effect:2": Row(
        True, "after_effect:2", 1, "Both runs called the tool, and each call appends."
    ),
    "unsafe, after_effect:2 in two runs": Row(
        True, "after_effect:2", 2, "Three runs called the tool, and each call appends."
    ),
    "unsafe, after_commit:2": Row(
        True,
        "after_commit:2",
        1,
        "The step was committed, so the second run did not call its tool.",
    ),
    "unsafe, after_effect:1": Row(
        True, "after_effect:1", 1, "Step 1 ran twice, but the effect is in step 2."
    ),
    "safe, after_effect:2 in two runs": Row(
        False, "after_effect:2", 2, "Three runs called the tool with one key; two found its file."
    ),
}
COUNTED = "A step may run twice or more; only its key makes that one effect (promise 4)."


def ex2(reports: Any, desk: Desk) -> Judgement:
    """`reports` maps each row of the table to a number; agents are killed and witnessed."""
    if not isinstance(reports, dict) or set(reports) != set(ROWS):
        return not_judged("Keep the table as it was, a dict with its six names; fill in numbers.")
    if any(number is ... for number in reports.values()):
        return not_judged('A "..." is still there. Put a number in its place, run the cell.')
    if wrong := [number for number in reports.values() if type(number) is not int]:
        return not_judged(f"{wrong[0]!r} is no whole number; write how many reports, as in 1.")
    for (name, row), folder in _counted(desk):
        found = len(witness(folder))
        if reports[name] != found:
            seen = f"{name}: you say {reports[name]}, and a reader finds {found}. {row.why}"
            return broken(seen, COUNTED, _rows(folder, int(row.crash_at[-1])))
    seen = f"Your numbers are what a reader found after {len(ROWS)} agents were killed."
    return held(seen, COUNTED, _rows(folder, 2))


def _counted(desk: Desk) -> Iterator[tuple[tuple[str, Row], Folder]]:
    """Each row with the folder of its agent, a few at a time: after a wrong number none is run."""
    rows = list(ROWS.items())
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for first in range(0, len(rows), AT_ONCE):
            some = rows[first : first + AT_ONCE]
            yield from zip(
                some, pool.map(lambda item: _kill_again(desk, item[1]), some), strict=True
            )


def _kill_again(desk: Desk, row: Row) -> Folder:
    """An agent that is killed in so many runs, and then runs to its end.

    Raises LabkitError if it was not killed or did not end well: then nothing can be counted.
    """
    folder = desk.fresh(f"{'unsafe' if row.unsafe else 'safe'}-{row.crash_at}".replace(":", "-"))
    effects = {"AGENT_UNSAFE_EFFECTS": "1"} if row.unsafe else {}
    folder.start(f"agent create {TASK} plan.json", {}).finish()
    for _ in range(row.kills):
        crash = {**effects, "AGENT_CRASH_AT": row.crash_at}
        ended = folder.start(f"agent run {TASK}", crash).finish()
        ensure(ended.killed, LabkitError(f"the agent was not killed at {row.crash_at} ({ended!r})"))
    last = folder.start(f"agent run {TASK}", effects).finish()
    ensure(last.code == 0, LabkitError(f"the last run of an agent ended with {last!r}"))
    return folder


def _rows(folder: Folder, idx: int) -> list[str]:
    """The journal of one step, and what the witness saw."""
    query = "SELECT seq, run_id, kind, attempt FROM journal WHERE step_idx = ? ORDER BY seq"
    rows = journal(folder).sql(query, [idx]).itertuples(index=False)
    lines = [f"seq {r.seq}  {r.kind}  run {r.run_id}  attempt {r.attempt}" for r in rows]
    return [*lines, f"a reader finds: {', '.join(witness(folder)) or 'nothing'}"]


# Exercise 3: a key.

KEY = (
    "A key is the same in every attempt of one step, and no other step of any task has it "
    "(promise 4)."
)
TASKS = ("notes", "notes-1", "a", "a1", "a-1", "A", "week.7", "x" * 100)
PLACES = tuple(itertools.product(TASKS, (0, 1, 2, 11, 12, 111)))  # a task and a step
# Of a file's name many systems take 255 bytes; a temporary one has 17 before and after the key.
LONGEST = 238

# Attempt 2 is made in another process, and as if a day had passed.
KEYED = """


def report_for_the_check(input, ctx, idem_key):
    import sqlite3

    from labkit.files import publish_once
    from labkit.lab.scenarios import tomorrow

    task_id, _, idx = idem_key.rpartition("-")
    question = "SELECT attempts FROM steps WHERE task_id = ? AND idx = ?"
    attempt = sqlite3.connect("state.db").execute(question, (task_id, idx)).fetchone()[0]
    with tomorrow.clock(days=attempt - 1):
        key = {name}(task_id, int(idx), attempt)
    return [publish_once("artifacts", key + ".md", ctx[0]["text"].encode())]
"""


def ex3(key_for: Any, desk: Desk) -> Judgement:
    """`key_for(task_id, idx, attempt)` names the effects of many tasks, and of a killed agent."""
    source_of(key_for)
    if not _takes(key_for, "notes", 2, 1):
        return not_judged("The check calls key_for(task_id, idx, attempt); keep its first line.")
    if wrong := _no_text(key_for):
        return not_judged(wrong, KEY)
    hand_over(key_for, desk.fresh("source"))  # says what it lacks before anything is started
    for look in (_unstable, _no_name, _shared):
        for fault in look(key_for):
            return broken(fault, KEY)
    (trial,) = published.run_agents(key_for, desk, ["after_effect"], KEYED)
    return _judge_agent(trial)


def _no_text(key_for: Callable[..., Any]) -> str:
    for place in PLACES:
        if not isinstance(key := ask(key_for, *place, 1), str):
            return f"It returned {key!r:.80}, of type {type(key).__name__}. A key is a text."
    return ""


def _unstable(key_for: Callable[..., Any]) -> Iterator[str]:
    key = ask(key_for, TASK, 2, 1)
    if key != ask(key_for, TASK, 2, 1):
        yield (
            "Called two times for one task, step and attempt, it gave two keys. It is made of "
            "time or of chance, and a second attempt can never find the file of the first."
        )
    for attempt in (2, 3):
        if key != (other := ask(key_for, TASK, 2, attempt)):
            yield (
                f"Attempt 1 of step 2 has the key {key!r}, attempt {attempt} has {other!r}. The "
                "second attempt looks for another name and publishes a second report."
            )


def _no_name(key_for: Callable[..., Any]) -> Iterator[str]:
    """What is no file's name on some system, or is one that no reader sees."""
    for task_id, idx in PLACES:
        key = ask(key_for, task_id, idx, 1)
        if not key.isprintable() or not re.fullmatch(r'[^. /\\<>"|?*][^/\\<>"|?*]*', key):
            yield (
                f"{key!r} is no good name for a file. A slash makes it a file in a folder that "
                "nobody made, and a dot in front hides it: use letters, digits, hyphens."
            )
        elif len(key.encode()) > LONGEST:
            yield f"A key of {len(key.encode())} bytes is too long for the name of a file."


def _shared(key_for: Callable[..., Any]) -> Iterator[str]:
    first: dict[str, tuple[str, int]] = {}
    for place in PLACES:
        task_id, idx = first.setdefault(key := ask(key_for, *place, 1), place)
        if (task_id, idx) != place:
            yield (
                f"Step {idx} of task {task_id} and step {place[1]} of task {place[0]} have one "
                f"key, {key!r}. The one that comes later finds a file under its name that is not "
                "its own."
            )


def _judge_agent(trial: Trial) -> Judgement:
    found, rows = published.artifacts_of(trial), published.rows_of_agent(trial)
    ensure(trial.first.code, LabkitError(f"the agent was not killed at {trial.crash_at}"))
    if len(found) > 1:
        seen = (
            "An agent was killed after its effect. A day later another process ran the step "
            f"again, got another key, and a reader finds {len(found)} reports. Something in the "
            "key belongs to the process or to the day."
        )
        return broken(seen, KEY, rows)
    if not is_sound(trial, laws=(1, 2, 3, 5, 6)) or not found:
        said = trial.second.output.strip().rpartition("\n")[2]
        return broken(f"An agent with your keys: {trial.second!r}. {said}", KEY, rows)
    reason = (
        f"{len(PLACES)} steps of {len(TASKS)} tasks have {len(PLACES)} keys, and an agent that was "
        "killed after its effect found its report again, a day later."
    )
    return held(reason, KEY, rows)

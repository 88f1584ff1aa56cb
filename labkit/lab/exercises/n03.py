"""Reading the journal: a query, a function and a repaired query, each asked of two journals.

The first is made as the notebook makes its own; the second comes from other kills, tasks and
failures, and is never shown, so that an answer which only knows the first is found out.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from labkit.errors import BadInput
from labkit.journal import Journal
from labkit.journal.fold import lanes, pair
from labkit.journal.reading import Event
from labkit.lab.checks import Desk, Judgement, ask, broken, held, not_judged
from labkit.lab.folder import BETWEEN_STARTS_S, FIRST_START, Folder
from labkit.lab.process import NotReady, Process
from labkit.lab.tables import Row, list_columns, list_rows, say

__all__ = ["HIDDEN", "SHOWN", "Start", "ex1", "ex2", "ex3"]

HOUR_S = 3600
ROWS_SHOWN = 6
THERE = "It is right on this notebook's journal, and wrong on another one, of other kills. "


class Start(NamedTuple):
    """One process of a scenario. `spoilt` is an encoding of the notes that `fetch` cannot read.

    `meanwhile` is a process that does all of its work while this one reads its notes.
    """

    command: str
    agent: Mapping[str, str] = MappingProxyType({})
    spoilt: bool = False
    meanwhile: Start | None = None


EARLIER = str(FIRST_START - HOUR_S)
WITH_MEMO = str(FIRST_START + BETWEEN_STARTS_S)  # two tasks at one time, in runs of one id

SHOWN = (
    Start("agent create notes plan.json"),
    Start("agent run notes", {"AGENT_CRASH_AT": "after_effect:1"}),
    Start("agent run notes", {"AGENT_CRASH_AT": "before_effect:2"}),
    Start("agent run notes", {"LABKIT_CLOCK": EARLIER}),
    Start("agent create letter plan.json", spoilt=True),
    Start("agent run letter", spoilt=True),
    Start("agent run --retry letter", {"AGENT_CRASH_AT": "after_effect:2"}),
)
HIDDEN = (
    Start("agent create memo plan.json"),
    Start("agent run memo", {"AGENT_CRASH_AT": "after_commit:0"}),  # its last event: step_finished
    Start("agent create bill plan.json"),
    Start(
        "agent run bill",
        {"AGENT_MAX_ATTEMPTS": "2", "LABKIT_CLOCK": WITH_MEMO},
        spoilt=True,
        meanwhile=Start("agent run memo", {"AGENT_CRASH_AT": "after_effect:1"}),
    ),
    Start("agent run memo", {"AGENT_CRASH_AT": "before_effect:1", "LABKIT_CLOCK": EARLIER}),
    Start("agent run memo"),
)


class Truth(NamedTuple):
    """What an exercise asks of a journal.

    The first `keys` columns name a row. `rows` gives each row with the events that prove it;
    `about` gives the events that speak about a row which is not among them.
    """

    rule: str
    columns: tuple[str, ...]
    keys: int
    rows: Callable[[list[Event]], dict[Row, list[Event]]]
    about: Callable[[list[Event], Row], list[Event]]
    why: Callable[[list[Event], Row], str]
    lacks: Callable[[list[Event], Row], str] = lambda events, row: ""  # why a row may be missing


def ex1(query: Any, desk: Desk) -> Judgement:
    """`query` lists the runs whose last event is no end."""
    return _ask_query(query, desk, SILENT)


def ex2(answer: Any, desk: Desk) -> Judgement:
    """`answer(events)` counts what happened to each step, in pandas."""
    return _judge(desk, COUNTED, lambda journal: ask(answer, journal.events()))


def ex3(took: Any, desk: Desk) -> Judgement:
    """`took` times the attempts that their own run ended."""
    return _ask_query(took, desk, TIMED)


def _ask_query(query: Any, desk: Desk, truth: Truth) -> Judgement:
    if not isinstance(query, str):
        kind = type(query).__name__
        return not_judged(f"This is a {kind}. Give the text of the query, not what it returns.")

    def give(journal: Journal) -> pd.DataFrame | Judgement:
        try:
            return journal.sql(query)
        except BadInput as error:
            return not_judged(f"{error}.", truth.rule)

    return _judge(desk, truth, lambda journal: ask(give, journal))


def _judge(desk: Desk, truth: Truth, give: Callable[[Journal], Any]) -> Judgement:
    shown, hidden = _journals(desk)
    for journal, where in ((shown, ""), (hidden, THERE)):
        table = give(journal)
        if isinstance(table, Judgement):
            return table
        if complaint := _form(table, truth) or _rows(table, truth, journal.read(), where):
            return complaint
    counts = [len(truth.rows(journal.read())) for journal in (shown, hidden)]
    reason = "{} rows of this notebook's journal and {} of another one, all of them right."
    return held(reason.format(*counts), truth.rule)


def _form(table: Any, truth: Truth) -> Judgement | None:
    asked = ", ".join(truth.columns)
    if not isinstance(table, pd.DataFrame):
        kind = type(table).__name__
        return not_judged(f"Your function returns a {kind}; a DataFrame with {asked} is asked.")
    given = list_columns(table)
    if any(given.count(name) != 1 for name in truth.columns):  # more columns do no harm
        names = ", ".join(given) or "none"
        return not_judged(f"Its columns are {names}; asked are {asked}.", truth.rule)
    return None


def _rows(table: pd.DataFrame, truth: Truth, events: list[Event], where: str) -> Judgement | None:
    """The first complaint about the rows, with the events that show it."""
    wanted = truth.rows(events)
    given = Counter(list_rows(table, truth.columns))
    key = {row[: truth.keys]: row for row in wanted}
    for row in given:
        if row in wanted:
            continue
        if (right := key.get(row[: truth.keys])) and right not in given:
            return _other_value(truth, events, row, right, where)
        words = f"This row does not belong: {say(truth.columns, row)}. {truth.why(events, row)}"
        return broken(where + words, truth.rule, _lines(truth.about(events, row)))
    for row, times in given.items():
        if times > 1:
            words = f"This row stands {times} times: {say(truth.columns, row)}."
            return broken(where + words, truth.rule, _lines(wanted[row]))
    for row in wanted:
        if row not in given:
            none = "" if given else "It gives no row. "
            words = f"{none}This row is missing: {say(truth.columns, row)}."
            words += truth.lacks(events, row) if given else ""
            return broken(where + words, truth.rule, _lines(wanted[row]))
    return None


def _other_value(truth: Truth, events: list[Event], row: Row, right: Row, where: str) -> Judgement:
    pairs = zip(truth.columns, row, right, strict=True)
    wrong = [(name, given, told) for name, given, told in pairs if given != told]
    parts = [f"{name} is {'missing' if g is None else g}, not {t}" for name, g, t in wrong]
    of_row = say(truth.columns[: truth.keys], row[: truth.keys])
    words = f"For {of_row} your {', '.join(parts)}. {truth.why(events, row)}"
    return broken(where + words, truth.rule, _lines(truth.rows(events)[right]))


def _lines(events: Sequence[Event]) -> list[str]:
    """The journal's rows as evidence; of many the first and the last."""
    cut = len(events) - ROWS_SHOWN
    lines = [_line(event) for event in events]
    return lines if cut <= 0 else [*lines[: ROWS_SHOWN - 1], f"... {cut} more", lines[-1]]


def _line(e: Event) -> str:
    step = "" if e.step_idx is None else f"  step {e.step_idx}  attempt {e.attempt}"
    return f"seq {e.seq}  {e.kind}  {e.task_id}  run {e.run_id or 'none'}{step}  ts {e.ts:.0f}"


def _silent_rows(events: list[Event]) -> dict[Row, list[Event]]:
    at = {event.seq: event for event in events}
    return {
        (lane.task_id, lane.run_id, at[lane.last_seq].kind): [at[lane.last_seq]]
        for lane in lanes(events)
        if lane.ended is None
    }


def _last_of_run(events: list[Event], row: Row) -> list[Event]:
    return [e for e in events if (e.task_id, e.run_id) == row[:2]][-1:]


def _why_not_silent(events: list[Event], row: Row) -> str:
    if row[1] is None:
        return "task_created is written before any run: its run_id is missing."
    last = _last_of_run(events, row)
    if not last:
        return "The journal has no such run of this task."
    return f"The last event of this run is {last[0].kind}."


def _of_two_tasks(events: list[Event], row: Row) -> str:
    """A word on runs of two tasks that share an id, where the other one wrote later."""
    later = [e for e in events if e.run_id == row[1] and e.seq > _last_of_run(events, row)[0].seq]
    if not later or row[2] != "step_started":  # of another kind: more likely that was overlooked
        return ""
    return f" Two tasks have a run {row[1]}: a run is named by task_id and run_id together."


def _counted_rows(events: list[Event]) -> dict[Row, list[Event]]:
    """Starts, errors and recoveries of each step that was started."""
    steps: dict[tuple[Any, ...], list[Event]] = {}
    for event in events:
        if event.kind in _COUNTED:
            steps.setdefault((event.task_id, event.step_idx), []).append(event)
    return {
        (*step, *(sum(e.kind == kind for e in of_step) for kind in _COUNTED)): of_step
        for step, of_step in steps.items()
    }


_COUNTED = ("step_started", "step_error", "step_recovered")


def _of_step(events: list[Event], row: Row) -> list[Event]:
    return [e for e in events if e.kind in _COUNTED and (e.task_id, e.step_idx) == row[:2]]


def _why_not_counted(events: list[Event], row: Row) -> str:
    of_step = _of_step(events, row)
    if not of_step:
        return "The journal has no start of such a step."
    starts, errors, recoveries = row[2:]
    if not all(isinstance(count, int) for count in row[2:]):
        return "Each count is a whole number, and 0 where nothing was found."
    right = Counter(event.kind for event in of_step)
    if starts == max(e.attempt or 0 for e in of_step) != right["step_started"]:
        return "After a retry the attempts of a step are numbered from 1 again."
    if errors == starts - 1 != right["step_error"]:
        return "A second attempt says that the first went wrong, not how: ask for the kind."
    if recoveries != right["step_recovered"]:
        return "A recovery is an event of its own, which the next run writes."
    return ""


def _timed_rows(events: list[Event]) -> dict[Row, list[Event]]:
    at = {event.seq: event for event in events}
    return {
        _timed(at[a.started_seq], at[a.ended_seq]): [at[a.started_seq], at[a.ended_seq]]
        for a in pair(events)[0]
        if a.ended_seq is not None and a.ended_by == a.owner
    }


def _timed(start: Event, end: Event) -> Row:
    of = (start.task_id, start.run_id, start.step_idx, start.attempt)
    return (*of, round(end.ts - start.ts, 6))


def _of_attempt(events: list[Event], row: Row) -> list[Event]:
    """The start and whatever ended it, by this run or another; nothing for no attempt."""
    for a in pair(events)[0]:
        if (a.task_id, a.run_id, a.step_idx, a.attempt) == row[:4]:
            return [e for e in events if e.seq in (a.started_seq, a.ended_seq)]
    return []


def _why_not_timed(events: list[Event], row: Row) -> str:
    found = _of_attempt(events, row)
    if not found:
        return "The journal has no such attempt."
    if len(found) == 1:
        return "No event ends this attempt."
    if found[1].run_id != row[1]:
        return f"Run {found[1].run_id} ended this attempt, by its own clock."
    return "Its end is that of another attempt: which columns tell attempts apart?"


def _apart(events: list[Event], row: Row) -> str:
    start, end = _of_attempt(events, row)
    if end.seq == start.seq + 1:
        return ""
    return " Another task wrote between the two: the next seq need not be of this attempt."


SILENT = Truth(
    "A run that comes to its end leaves task_done or task_failed as its last event. A run that was "
    "killed leaves whatever came last.",
    ("task_id", "run_id", "kind"), 2,
    _silent_rows, _last_of_run, _why_not_silent, _of_two_tasks,
)  # fmt: skip
COUNTED = Truth(
    "Each start, each error and each recovery of a step is one event (promise 5); a step is named "
    "by its task and its index.",
    ("task_id", "step_idx", "starts", "errors", "recoveries"), 2,
    _counted_rows, _of_step, _why_not_counted,
)  # fmt: skip
TIMED = Truth(
    "Two times can be compared where one clock made both: the start and the end of one attempt, "
    "both written by the same run.",
    ("task_id", "run_id", "step_idx", "attempt", "seconds"), 4,
    _timed_rows, _of_attempt, _why_not_timed, _apart,
)  # fmt: skip


def _journals(desk: Desk) -> list[Journal]:
    """The two of this notebook, made by the first check that needs them: reading changes none."""
    made = _make_journals(desk.open_folder)
    if not all(os.path.exists(journal.path) for journal in made):
        _make_journals.cache_clear()
        made = _make_journals(desk.open_folder)
    return made


@lru_cache(maxsize=1)
def _make_journals(open_folder: Callable[[str], Folder]) -> list[Journal]:
    """Both at once, each in a folder of its own."""
    folders = [open_folder("check-shown"), open_folder("check-other")]
    with ThreadPoolExecutor(len(folders)) as pool:
        return list(pool.map(_play, folders, (SHOWN, HIDDEN)))


def _play(folder: Folder, starts: Iterable[Start]) -> Journal:
    """Runs one process after another. Raises NotReady where one was not killed as it was to be."""
    notes = folder.path / "input" / "notes.txt"
    text = notes.read_bytes()
    for start in starts:
        notes.write_bytes(b"\xff" + text if start.spoilt else text)
        if start.meanwhile:
            _interleave(folder, start, start.meanwhile, notes)
        else:
            _finish(start, folder.start(start.command, start.agent))
    return Journal(folder.database)


def _finish(start: Start, process: Process) -> None:
    result = process.finish()
    if result.killed != ("AGENT_CRASH_AT" in start.agent):
        raise NotReady(f"{start.command}: {result!r}, which this check did not want")


def _interleave(folder: Folder, outer: Start, inner: Start, notes: Path) -> None:
    """Two agents in an order that no clock decides: the notes of the outer one are a pipe.

    It has begun to read when its step is in the journal, and reads on when the inner one has ended.
    """
    text, pipe, file = notes.read_bytes(), notes.with_name("pipe"), notes.with_name("file")
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)  # both ends: neither this open nor that of the agent waits
    try:
        notes.rename(file)
        pipe.rename(notes)
        process = folder.start(outer.command, outer.agent)
        process.wait_for("step_started", 0)
        _finish(inner, folder.start(inner.command, inner.agent))
        os.write(writer, text)
        file.rename(notes)  # for a second attempt, and for one that comes late to the first
    finally:
        os.close(writer)
    _finish(outer, process)

"""What somebody asks of a journal that he opens for the first time: what is in it, one event with
all that stands around it, and whether the file is still the one he opened.

Each function reads one snapshot and gives plain records; a `Journal` gives the same as frames.
Here, unlike elsewhere, a value of a kind that no agent writes is no error: whoever looks for what
went wrong wants to see it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from labkit.errors import BadInput, NotFound, UsageError
from labkit.journal.chart import Source, path_of
from labkit.journal.reading import (
    EVENT_COLUMNS,
    Event,
    Marks,
    Reader,
    marks,
    plain,
    read_tasks,
    snapshot,
)

__all__ = [
    "CUT", "Contents", "Glance", "Neighbour", "Run", "Task", "contents", "fields", "find_journals",
    "glance", "lines", "neighbours", "pretty", "row", "rows", "seqs",
]  # fmt: skip

CUT = 200  # characters of the data in a list
MAX_SEQ = 2**63 - 1
KIN = 50  # neighbours at most
PRETTY = 20_000_000  # characters
# Of SQLite's machine: the view of a file that somebody made may have no end. 25 for each event
# that is counted; a glance takes a few hundred.
STEPS, GLANCE_STEPS = 300_000_000, 10_000_000
MAX_EXACT = 2**53  # beyond it a float, as in a picture, takes two neighbours for one
ALTERED = "the journal was altered by hand, or is none of an agent"
WIDTH = 56  # characters of a line in a list
LEAST, MOST = 5, 24  # of what is cut in it


class Task(NamedTuple):
    """A task, or a durable run. `status` is None where the table has no row for it, `events` is 0
    where the journal has none."""

    id: str
    status: str | None
    events: int

    @property
    def summary(self) -> str:
        return f"{plain(str(self.id), 30)}: {self.status or 'no row'}, {self.events:,} events"


class Run(NamedTuple):
    """A run of a task; of a durable run an advance, which is named by its owner, as `ann#1`."""

    task_id: str
    name: str
    events: int


class Contents(NamedTuple):
    """How much a journal holds; tasks and runs in the order of their first events. Of a journal
    without events `first_seq` is 1 and `last_seq` is 0."""

    is_durable: bool
    events: int
    last_seq: int
    tasks: tuple[Task, ...]
    runs: tuple[Run, ...]
    kinds: dict[str, int]
    first_seq: int = 1

    @property
    def oddity(self) -> str:
        """What no agent writes, in a sentence; empty where there is nothing of that kind."""
        if self.first_seq < 1:
            return f"An agent counts from 1, but its first seq is {self.first_seq}: {ALTERED}."
        if self.last_seq > MAX_EXACT:
            return f"No agent comes as far as seq {self.last_seq}: {ALTERED}."
        return ""

    @property
    def summary(self) -> str:
        """In one sentence, and another one where there is something odd."""
        if self == NOTHING:
            return "0 events: an empty file, or a journal in which nothing is yet."
        system, word = ("durable runs", "run") if self.is_durable else ("the restart agent", "task")
        tasks = f"{len(self.tasks):,} {word}{'' if len(self.tasks) == 1 else 's'}"
        events = f"{self.events:,} event{'' if self.events == 1 else 's'}"
        return f"{events}, {tasks}; a journal of {system}. {self.oddity}".rstrip()


NOTHING = Contents(False, 0, 0, (), (), {})


class Neighbour(NamedTuple):
    why: str
    event: Event


class Glance(NamedTuple):
    """A journal at one moment. The others are for the next glance: the file's place on its disk,
    how large and how old it was, its last row, and how many rows it had, where they were counted.
    """

    last_seq: int
    is_replaced: bool
    file: tuple[int, int]
    marks: Marks
    last: tuple[Any, ...]
    events: int | None


def contents(source: Source, before: Contents | None = None) -> Contents:
    """Counts events by task, run and kind. With what it said `before` of the same journal it looks
    at the newer ones only. Raises what `snapshot` raises."""
    known = before or NOTHING
    newer, values = _newer(None if before is None else before.last_seq)
    with _bounded(source, STEPS) as reader:
        query = f"""SELECT task_id, {_run_of(reader)}, kind,
            count(*), count(seq), max(seq), min(seq)
            FROM journal WHERE {newer} GROUP BY 1, 2, 3 ORDER BY min(seq)"""
        groups = _rows(reader, query, *values)
        statuses = {task.id: task.status for task in read_tasks(reader)}
        is_durable = reader.is_durable
    # The greatest and the least of some seqs are silent about a row that has none.
    has_none = any(count != numbered for _, _, _, count, numbered, *_ in groups)
    ends = [seq for *_, last, first in groups for seq in (last, first)]
    seqs_seen = _whole([None] if has_none else ends)
    of_task = Counter({task.id: task.events for task in known.tasks})
    of_run = Counter({(run.task_id, run.name): run.events for run in known.runs})
    of_kind = Counter(known.kinds)
    for task, run, kind, count, *_ in groups:
        of_task[task] += count
        of_kind[kind] += count
        if run is not None:
            of_run[task, run] += count
    names = dict.fromkeys([*of_task, *statuses])
    return Contents(
        is_durable,
        of_task.total(),
        max(seqs_seen, default=known.last_seq),
        tuple(Task(name, statuses.get(name), of_task[name]) for name in names),
        tuple(Run(task, run, count) for (task, run), count in of_run.items()),
        dict(of_kind),
        known.first_seq if known.events else min(seqs_seen, default=1),
    )


def seqs(
    source: Source,
    task: str | None = None,
    *,
    run: str | None = None,
    kinds: Collection[str] = (),
    after: int | None = None,
    until: int = MAX_SEQ,
) -> list[int]:
    """The `seq` of the events of a task, a run and some kinds; all of them by default. With
    `after < seq <= until`."""
    newer, values = _newer(after)
    places = ", ".join("?" * len(kinds))
    with _bounded(source, STEPS) as reader:
        # What is no whole number is listed too, so that it is refused and not left out.
        query = f"""SELECT seq FROM journal
            WHERE {newer} AND (seq <= ? OR typeof(seq) <> 'integer')
            AND (? IS NULL OR task_id = ?) AND (? IS NULL OR {_run_of(reader)} = ?)
            AND (? OR kind IN ({places})) ORDER BY seq"""
        chosen = (until, task, task, run, run, not kinds, *kinds)
        return _whole(seq for (seq,) in _rows(reader, query, *values, *chosen))


def rows(source: Source, chosen: Sequence[int]) -> list[Event]:
    """These events in their order, with the first 200 characters of each text."""
    where = "seq IN (SELECT value FROM json_each(?)) ORDER BY seq"
    with _bounded(source, STEPS) as reader:
        return list(_events(reader, where, json.dumps(list(chosen))))


def row(source: Source, seq: int) -> Event:
    """One event with all its data. Raises UsageError where there is none."""
    with _bounded(source, STEPS) as reader:
        return _row(reader, seq)


def neighbours(source: Source, seq: int) -> list[Neighbour]:
    """The event, those just before and after it, and at most 50 others of its attempt and its step
    (of its run, where it has no step). Raises UsageError where there is no such event."""
    with _bounded(source, STEPS) as reader:
        it = _row(reader, seq)
        near = {
            "before": _events(reader, "seq < ? ORDER BY seq DESC LIMIT 1", seq),
            "this": _events(reader, "seq = ?", seq),
            "after": _events(reader, "seq > ? ORDER BY seq LIMIT 1", seq),
        }
        found = [(why, event) for why, events in near.items() for event in events]
        found += [(_likeness(event, it), event) for event in _kin(reader, it)]
    words: dict[int, list[str]] = {}
    for why, event in found:
        words.setdefault(event.seq, []).append(why)
    event_of = {event.seq: event for _, event in found}
    return [Neighbour(", ".join(words[at]), event_of[at]) for at in sorted(event_of)]


def glance(source: Source, before: Glance | None = None, busy_s: float | None = None) -> Glance:
    """The last `seq` of the file, and whether it is another file than that of `before`, or no
    longer holds its events. Cheap, for looking again and again: it counts them only where the file
    has changed and there is no newer one. Raises StorageBusy where it is locked for `busy_s`
    seconds, 0 for at once."""
    path = path_of(source)
    seen = marks(path)
    with _bounded(path, GLANCE_STEPS, busy_s) as reader:
        greatest = _rows(reader, "SELECT max(seq) FROM journal")
        [last_seq] = _whole(seq for (seq,) in greatest if seq is not None) or [0]
        last = _identity(reader, last_seq)
        events = _count(reader, last_seq, seen, before)
        kept = before is None or _identity(reader, before.last_seq) == before.last
        place = os.stat(path)
    file = place.st_dev, place.st_ino
    counted = before is None or None in (events, before.events) or events == before.events
    is_same = counted and kept and (before is None or before.file == file)
    return Glance(last_seq, not is_same, file, seen, last, events)


def lines(events: Iterable[Event], *, with_task: bool = False, width: int = WIDTH) -> list[str]:
    """Each event as one line of a list: kind, step, attempt, who, and the task where asked for.

    One below the other. Where that is wider than `width` characters, the widest columns are cut, in
    the middle, since of an id the beginning and the end tell the most; the kind last of all.
    """
    rows = [_words(event, with_task) for event in events]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(widths) + 2 * len(widths) - 2 > width and max(widths) > LEAST:
        widest = max(widths[1:]) if max(widths[1:]) > LEAST else widths[0]
        widths[len(widths) - 1 - widths[::-1].index(widest)] -= 1
    return ["  ".join(map(_fitted, words, widths)).rstrip() for words in rows]


def fields(event: Event) -> list[tuple[str, object]]:
    """The columns of an event, and its time as a person reads it."""
    try:
        time = datetime.fromtimestamp(event.ts, UTC).isoformat(" ", "milliseconds")
    except (TypeError, ValueError, OverflowError, OSError):
        time = "no time"
    found: list[tuple[str, object]] = list(event._asdict().items())
    return [*found[:2], ("ts in UTC", time), *found[2:]]


def pretty(data: object, limit: int = PRETTY) -> str:
    """JSON text with a line for each field; what is no JSON as it is. What comes after `limit`
    characters is left out, and a line says so."""
    found: list[str] = []
    try:
        whole = json.loads(data)  # type: ignore[arg-type]
        # In pieces: a million numbers in 900 lists, each in a line of its own, take gigabytes.
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(whole):
            found.append(piece)
            limit -= len(piece)
            if limit < 0:
                return f"{''.join(found)}\n… (cut here)"
    except (ValueError, TypeError, RecursionError):
        return str(data)
    return "".join(found)


def find_journals(folder: str | os.PathLike[str], limit: int = 200) -> list[str]:
    """The databases in a folder and below, the newest first, seen from the folder.

    By their names only (`*.db`): to open each would disturb whoever has it open. Raises NotFound.
    """
    root = os.fspath(folder)
    if not os.path.isdir(root):
        raise NotFound(f"there is no folder {root}; run a notebook, which makes one")
    found = [os.path.join(at, name) for at, _, names in os.walk(root) for name in names]
    databases = [(_changed_at(path), path) for path in found if path.endswith(".db")]
    newest = sorted(databases, key=lambda each: (-each[0], each[1]))[:limit]
    return [os.path.relpath(path, root) for _, path in newest]


def _whole(seqs: Iterable[Any]) -> list[int]:
    """By its `seq` everything else is found, so this column may not be of another kind."""
    found = list(seqs)
    if {*map(type, found)} - {int}:
        wrong = next(seq for seq in found if type(seq) is not int)
        shown = plain(str(wrong), 30)
        raise BadInput(
            f"event {shown}: its seq is no whole number; the journal was altered by hand"
        )
    return found


@contextmanager
def _bounded(source: Source, steps: int, busy_s: float | None = None) -> Iterator[Reader]:
    """A snapshot that raises BadInput where so many steps do not come to an end."""
    with snapshot(path_of(source), busy_s) as reader:
        reader.bound(steps)
        yield reader


def _newer(after: int | None) -> tuple[str, tuple[int, ...]]:
    """Only without a limit below is each row of the view read, also one whose seq is none."""
    return ("TRUE", ()) if after is None else ("seq > ?", (after,))


def _rows(reader: Reader, query: str, *values: Any) -> list[tuple[Any, ...]]:
    return list(reader.tuples(query, values)) if reader.has_journal else []


def _count(reader: Reader, last_seq: int, seen: Marks, before: Glance | None) -> int | None:
    if before is not None:
        if last_seq != before.last_seq:
            return None
        if seen == before.marks and before.events is not None:
            return before.events
    return next((count for (count,) in _rows(reader, "SELECT count(*) FROM journal")), 0)


def _changed_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:  # gone since, or a link to nothing
        return 0.0


def _run_of(reader: Reader) -> str:
    return "owner" if reader.is_durable else "run_id"


def _events(reader: Reader, where: str, *values: Any, cut: int | None = CUT) -> Iterator[Event]:
    data = "data" if cut is None else f"substr(data, 1, {cut})"
    query = f"SELECT {', '.join(EVENT_COLUMNS[:-1])}, {data} FROM journal WHERE {where}"
    found = reader.tuples(query, values) if reader.has_journal else iter(())
    return map(Event._make, found if cut is None else map(_shorten, found))


def _shorten(values: Sequence[Any]) -> list[Any]:
    return [value[:CUT] if isinstance(value, (str, bytes)) else value for value in values]


def _row(reader: Reader, seq: int) -> Event:
    found = next(_events(reader, "seq = ?", seq, cut=None), None)
    if found is None:
        raise UsageError(f"no event has seq {seq}; journal.seqs() lists those that there are")
    return found


def _kin(reader: Reader, it: Event) -> Iterator[Event]:
    """The others of its step, or of its run where it has no step; the nearest first."""
    key = (it.owner if reader.is_durable else it.run_id) if it.step_idx is None else it.step_idx
    column = f"step_idx IS NULL AND {_run_of(reader)}" if it.step_idx is None else "step_idx"
    where = f"task_id = ? AND {column} = ? AND seq <> ? ORDER BY abs(seq * 1.0 - ?) LIMIT {KIN}"
    return _events(reader, where, it.task_id, key, it.seq, it.seq)


def _likeness(event: Event, it: Event) -> str:
    if it.step_idx is None:
        return "same run"
    return "same attempt" if event.attempt == it.attempt else "same step"


def _identity(reader: Reader, seq: int) -> tuple[Any, ...]:
    query = "SELECT seq, ts, task_id, run_id, owner, kind FROM journal WHERE seq = ?"
    return next(reader.tuples(query, (seq,)), ()) if reader.has_journal else ()


def _words(event: Event, with_task: bool) -> list[str]:
    step = "" if event.step_idx is None else f"{event.step_idx} {event.step or ''}".strip()
    attempt = "" if event.attempt is None else f"#{event.attempt}"
    who = (event.owner if event.is_durable else event.run_id) or ""
    words = [event.kind, step, attempt, who, *([event.task_id] if with_task else [])]
    return [_short(str(word), MOST) for word in words]


def _short(text: str, limit: int) -> str:
    """As one line, cut in its middle."""
    text = plain(f"{text[:CUT]}", CUT)
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def _fitted(word: str, width: int) -> str:
    return f"{_short(word, width):<{width}}"

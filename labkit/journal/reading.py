"""Reads the rows of a journal, read-only and each time from one snapshot; everything above this
module is pure.

A journal is opened for each reading and closed again. Rejected: one connection for the life of a
`Journal`. It would go on reading a file that was meanwhile replaced, and a notebook's kernel would
hold the database open while the learner's own cells copy or delete it.
"""

from __future__ import annotations

import gc
import json
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

from labkit.database import Database
from labkit.errors import BadInput, NotFound, StorageBusy, StorageFault, UnknownTask

__all__ = [
    "EVENT_COLUMNS",
    "Bounds",
    "Event",
    "Marks",
    "Reader",
    "StepRow",
    "TaskRow",
    "Words",
    "collector_off",
    "limited",
    "marks",
    "open_journal",
    "plain",
    "read_columns",
    "read_events",
    "read_steps",
    "read_tasks",
    "snapshot",
    "unknown_task",
]

EVENT_COLUMNS = (
    "seq", "ts", "task_id", "run_id", "owner", "kind", "step_idx", "step", "attempt", "data",
)  # fmt: skip


class Event(NamedTuple):
    """One row of the view `journal`. `ts` is in Unix seconds, `data` is JSON text."""

    seq: int
    ts: float
    task_id: str
    run_id: str | None
    owner: str | None
    kind: str
    step_idx: int | None
    step: str | None
    attempt: int | None
    data: str

    @property
    def is_durable(self) -> bool:
        """Of a durable run, which is a task by itself. A run of the restart agent is a part of
        one, and the creation of a task is of no run."""
        return self.run_id == self.task_id

    def detail(self, name: str, kind: type = object) -> Any:
        """One field of the data, or None. Raises BadInput where it is of another kind."""
        try:
            value = json.loads(self.data).get(name)
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise BadInput(
                f"event {self.seq}: its data is not a JSON object; the journal was altered by hand"
            ) from None
        if value is not None and not isinstance(value, kind):
            raise BadInput(f"event {self.seq}: {name!r} in its data is no {kind.__name__}")
        return value


class Words(dict[str | None, int]):
    """A column of words that come again and again: each once, and in `codes` its number for every
    row. Of a million events this is a third of the memory, and each word is looked at once.
    """

    def __init__(self, words: Sequence[str | None] = ()) -> None:
        self.codes: list[int] = []
        self.extend(words)

    def __missing__(self, word: str | None) -> int:
        return self.setdefault(word, len(self))

    def extend(self, words: Sequence[str | None]) -> None:
        if words and words.count(words[0]) == len(words):  # one task, one run: a third of the time
            self.codes += [self[words[0]]] * len(words)
        else:
            self.codes += map(self.__getitem__, words)


class TaskRow(NamedTuple):
    id: str
    status: str


class StepRow(NamedTuple):
    """A step as its table has it, without the payloads, which may be large."""

    task_id: str
    idx: int
    tool: str
    status: str
    attempts: int
    has_output: bool
    deduplicated: bool


class Bounds(NamedTuple):
    """Where a query ends by itself: after so many steps of SQLite's machine, whatever the machine
    below it; after so many rows, or characters in them. No value may be longer than `value` bytes,
    and no row have more than `columns`, since a row is in memory as a whole.
    """

    steps: int = 100_000_000  # three to five seconds of a processor
    rows: int = 200
    characters: int = 20_000_000
    value: int = 20_000_000
    columns: int = 100


class Reader(Database):
    """A read-only connection that gives plain tuples, and the names of a query's columns."""

    _elsewhere = 0.0  # processor time of whoever took the rows, between two pieces of them

    def query(
        self, sql: str, values: Sequence[Any], bounds: Bounds | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]], bool]:
        """The names and rows of a statement that someone typed, and whether these are all its rows.
        Raises BadInput for a mistake, and where it goes beyond the steps of its bounds.
        """
        # A query may have no end. Python obeys Ctrl-C only where it is called, so it is, often.
        is_over = self.bound(_limits.get().steps if bounds is None else bounds.steps)
        if bounds:
            self._sql.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bounds.value)
            self._sql.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, bounds.columns)
        try:
            cursor = self._cursor(sql, values)
            names = [column[0] for column in cursor.description or ()]
            return names, *_take(cursor, bounds)
        except UnicodeDecodeError as error:  # SQLite quotes a damaged schema
            raise self._fault(error) from error
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if bounds and is_over() and _is_interrupt(error):
                raise BadInput(_ENDLESS.format(bounds.steps // 1_000_000)) from error
            raise self._refusal(error) from error

    def bound(self, steps: int | None) -> Callable[[], bool]:
        """Ends what is read from now on after so many steps of SQLite's machine, or after the
        processor time in which it takes them: one step may make, or look through, a text of
        20 million characters. What is done with the rows takes no part in that time. Nor is a value
        read that is longer than VALUE. The answer says whether the end has come."""
        if steps is None:
            self._sql.set_progress_handler(lambda: False, TICK)
            return lambda: False
        ticks = iter(range(steps // TICK))
        end = time.thread_time() - self._elsewhere + steps * STEP_S

        def is_over() -> bool:
            return next(ticks, None) is None or time.thread_time() - self._elsewhere > end

        self._sql.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE)
        self._sql.set_progress_handler(is_over, TICK)
        return is_over

    def tuples(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        for piece in self.pieces(sql, values):
            yield from piece

    def pieces(self, sql: str, values: Sequence[Any]) -> Iterator[list[tuple[Any, ...]]]:
        """The rows, 250 at a time: with 700 new tuples at once the garbage collector begins."""
        try:
            cursor = self._cursor(sql, values)
            while piece := cursor.fetchmany(250):
                left = time.thread_time()
                yield piece
                self._elsewhere += time.thread_time() - left
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> BaseException:
        if _is_interrupt(error):
            return BadInput(_NO_END.format(self.path))
        if _code(error) == sqlite3.SQLITE_TOOBIG:
            return BadInput(_TOO_BIG.format(self.path, VALUE // 1_000_000))
        if _code(error) == sqlite3.SQLITE_NOTADB:  # most often a file that somebody took for one
            return StorageFault(f"{self.path} is no journal, or a damaged one: {error}")
        fault = super()._fault(error)
        return StorageBusy(_LOCKED.format(self.path)) if isinstance(fault, StorageBusy) else fault

    def _cursor(self, sql: str, values: Sequence[Any]) -> sqlite3.Cursor:
        cursor = self._sql.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, values)

    def _refusal(self, error: Exception) -> BaseException:
        """A mistake is for the one who typed to mend; a fault of the storage stays one."""
        code = _code(error) or sqlite3.SQLITE_ERROR
        if code == sqlite3.SQLITE_READONLY:
            return BadInput("a journal is read-only here: this statement would write; use SELECT")
        if _is_interrupt(error):
            return BadInput("the query was stopped before its end")
        if code in _MISTAKES:
            return BadInput(f"SQLite cannot run this query: {error}")
        return self._fault(error)

    @property
    def is_durable(self) -> bool:
        """True for a file of durable runs, False for one of the restart agent."""
        return bool(self.value("PRAGMA application_id") == DURABLE)

    @property
    def has_journal(self) -> bool:
        query = "SELECT count(*) FROM sqlite_schema WHERE type = 'view' AND name = 'journal'"
        return bool(self.value(query))


class Limits(NamedTuple):
    """Of each reading: the seconds that it waits for a lock, ten where None, and the steps of
    SQLite's machine after which it ends, where it would else have no end."""

    busy_s: float | None = None
    steps: int | None = None


NO_LIMITS = Limits()
_limits: ContextVar[Limits] = ContextVar("limits", default=NO_LIMITS)


@contextmanager
def limited(busy_s: float, steps: int) -> Iterator[None]:
    """Every reading in here is limited, whoever asks for it: for a panel, whose waiting stops all
    else in its notebook. Rejected: two more parameters of each function that reads."""
    token = _limits.set(Limits(busy_s, steps))
    try:
        yield
    finally:
        _limits.reset(token)


@contextmanager
def snapshot(path: str, busy_s: float | None = None) -> Iterator[Reader]:
    """All that is read inside it is of one moment.

    Raises NotFound for a missing file, StorageFault for one that cannot be read or has no journal,
    StorageBusy for one that another program keeps locked for `busy_s` seconds; if none are given,
    for those of `limited`, or ten.
    """
    limits = _limits.get()
    reader = open_journal(path, limits.busy_s if busy_s is None else busy_s)
    try:
        if limits.steps is not None:
            reader.bound(limits.steps)
        reader.execute("BEGIN")
        # A creation that was killed leaves a file without any schema object: no rows, no fault.
        if not reader.has_journal and reader.value("SELECT count(*) FROM sqlite_schema"):
            raise StorageFault(f"{path} has no view `journal`: another program made it")
        yield reader
    finally:
        reader.close()


def open_journal(path: str, busy_s: float | None = None) -> Reader:
    """Opens for reading, also in a folder that cannot be written. Raises as `snapshot`."""
    if not os.path.exists(path):
        raise NotFound(f"{path} does not exist, and was not created; check the path")
    if os.path.isdir(path):
        raise StorageFault(f"{path} is a folder; name the journal that lies in it")
    try:
        return Reader(path, "ro", busy_s)
    except StorageFault as fault:
        if getattr(fault.__cause__, "sqlite_errorcode", 0) not in _NO_INDEX:
            raise
    # WAL needs an index beside the file. Without a -wal the file is whole by itself; with one, its
    # newest rows are missing from it, and `immutable` would hide that.
    if os.path.exists(f"{path}-wal"):
        raise StorageFault(
            f"{path} has a -wal beside it, in a folder that cannot be written; "
            "copy both files to a folder of yours and open the copy"
        )
    return Reader(path, "ro&immutable=1", busy_s)


def read_events(
    reader: Reader, task: str | None = None, *, after: int | None = None, until: int | None = None
) -> Iterator[Event]:
    """The events in their order, those of one task or all, with `after < seq <= until`."""
    where, values = _of_task("task_id", task)
    if after is not None:  # else also what somebody numbered below 1
        where, values = f"{where} AND seq > ?", (*values, after)
    if until is not None:
        where, values = f"{where} AND seq <= ?", (*values, until)
    query = f"{_SELECT} WHERE {where} ORDER BY seq"
    pieces = reader.pieces(query, values) if reader.has_journal else ()
    for piece in pieces:
        _require_types(list(zip(*piece, strict=True)))
        yield from map(_EVENT_OF, piece)


def read_columns(reader: Reader, task: str | None = None) -> list[list[Any] | Words]:
    """The events as ten columns: what a frame is made of, without a million records in between."""
    where, values = _of_task("task_id", task)
    columns: list[list[Any] | Words] = [
        Words() if name in _REPEATED else [] for name in EVENT_COLUMNS
    ]
    query = f"{_SELECT} WHERE {where} ORDER BY seq"
    for piece in reader.pieces(query, values) if reader.has_journal else ():
        parts = list(zip(*piece, strict=True))
        _require_types(parts, _SINGLE)
        for column, part in zip(columns, parts, strict=True):
            column.extend(part)
    for name, column in zip(EVENT_COLUMNS, columns, strict=True):
        if isinstance(column, Words) and not _are_right(name, list(column)):
            for _ in read_events(reader, task):
                pass  # it looks at each row, and raises at the wrong one
    return columns


def read_tasks(reader: Reader, task: str | None = None) -> list[TaskRow]:
    """Tasks, or runs: what a journal's `task_id` names."""
    if reader.is_durable:
        where, values = _of_task("run_id", task)
        query = f"SELECT run_id, status FROM runs WHERE {where} ORDER BY seq"
    else:
        where, values = _of_task("id", task)
        query = f"SELECT id, status FROM tasks WHERE {where} ORDER BY created_at, id"
    return [TaskRow(*row) for row in _rows(reader, query, values)]


def read_steps(reader: Reader, task: str | None = None) -> list[StepRow]:
    """The steps of the restart agent. None of a durable run, whose steps `run_rows` reads."""
    if reader.is_durable:
        return []
    where, values = _of_task("task_id", task)
    query = f"""SELECT task_id, idx, tool, status, attempts, output IS NOT NULL,
        CASE WHEN json_valid(output) THEN json_extract(output, '$.deduplicated') IS TRUE END
        FROM steps WHERE {where} ORDER BY task_id, idx"""
    rows = _rows(reader, query, values)
    return [StepRow._make((*row[:5], bool(row[5]), bool(row[6]))) for row in rows]


def unknown_task(reader: Reader, task: str) -> UnknownTask:
    """The error that names the tasks, or runs, there are, the first ten of them."""
    word = "run" if reader.is_durable else "task"
    known = [plain(str(row.id)) for row in read_tasks(reader)]
    more = f" and {len(known) - 10} more" if len(known) > 10 else ""
    there = f"it has {', '.join(known[:10])}{more}" if known else "it holds none yet"
    return UnknownTask(f"no {word} {plain(task)!r} in this journal; {there}")


Marks = tuple[tuple[int, ...], ...]


def marks(*paths: str) -> Marks:
    """Differs as soon as one of these files has changed, or the -wal beside it."""
    found: list[tuple[int, ...]] = []
    for file in [each for path in paths for each in (path, f"{path}-wal")]:
        try:
            at = os.stat(file)
            found.append((at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns))
        except (OSError, ValueError):  # it is not there, or no system has such a name
            found.append(())
    return tuple(found)


def plain(text: str, limit: int = 60) -> str:
    """Text of a journal as one short line, without what a terminal would obey."""
    kept = text[: limit + 1]  # of 10 million characters the others would take a second
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in kept)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _take(
    cursor: Iterator[tuple[Any, ...]], bounds: Bounds | None
) -> tuple[list[tuple[Any, ...]], bool]:
    """The rows within the bounds, and whether there is no other."""
    if bounds is None:
        return list(cursor), True
    found: list[tuple[Any, ...]] = []
    room = bounds.characters
    for row in cursor:
        if len(found) == bounds.rows or room < 0:
            return found, False
        found.append(row)
        room -= sum(len(value) for value in row if isinstance(value, (str, bytes)))
    return found, True


def _is_interrupt(error: Exception) -> bool:
    return _code(error) == sqlite3.SQLITE_INTERRUPT


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


@contextmanager
def collector_off() -> Iterator[None]:
    """Rows hold no cycles, and looking for some among a million takes a tenth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _require_types(columns: list[tuple[Any, ...]], names: Collection[str] = EVENT_COLUMNS) -> None:
    """Raises BadInput for a value that no agent writes: SQLite keeps any in any column.

    By columns, since a million rows are to be looked through in a fraction of a second.
    """
    for name, values in zip(EVENT_COLUMNS, columns, strict=True):
        if name in names and not _are_right(name, values):
            at = next(i for i, value in enumerate(values) if not _are_right(name, [value]))
            raise BadInput(
                f"event {columns[0][at]}: its {name} is no {_TYPES[name][1]}; "
                "the journal was altered by hand"
            )


def _are_right(name: str, values: Sequence[Any]) -> bool:
    right = _TYPES[name][0].issuperset(map(type, values))
    return right and (name != "ts" or _are_times(values))


def _are_times(values: Sequence[float]) -> bool:
    return min(values) >= YEAR_1 and max(values) < YEAR_10000


def _rows(reader: Reader, query: str, values: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    return reader.tuples(query, values) if reader.has_journal else iter(())


def _of_task(column: str, task: str | None) -> tuple[str, tuple[Any, ...]]:
    return ("TRUE", ()) if task is None else (f"{column} = ?", (task,))


# Words of the other columns come again and again; these are kept as they are.
_SINGLE = frozenset({"seq", "ts", "step_idx", "attempt", "data"})
_REPEATED = frozenset(EVENT_COLUMNS) - _SINGLE
_EVENT_OF = partial(tuple.__new__, Event)  # what Event._make does, three times as fast
_NUMBER, _TEXT = frozenset({int, float}), frozenset({str})
_TYPES = {
    **dict.fromkeys(("task_id", "kind", "data"), (_TEXT, "text")),
    **dict.fromkeys(("run_id", "owner", "step"), (_TEXT | {type(None)}, "text")),
    **dict.fromkeys(("step_idx", "attempt"), (frozenset({int, type(None)}), "whole number")),
    "seq": (frozenset({int}), "whole number"),
    "ts": (_NUMBER, "time in Unix seconds"),
}
YEAR_1, YEAR_10000 = -62_135_596_800, 253_402_300_800  # what a calendar can say
_MISTAKES = (
    sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_TOOBIG,
)  # fmt: skip
TICK = 1_000  # steps of SQLite's machine between two calls of Python
STEP_S = 1e-7  # of processor time for a step, on the average; most take a third of it
VALUE = 100_000_000  # bytes
_LOCKED = "{} is locked by another program; nothing is lost, try again when that has ended"
_NO_END = "{} was not read to its end: its view `journal` is too large, or has no end"
_TOO_BIG = "{} holds a value of more than {} million bytes, which no agent writes"
_ENDLESS = (
    "the query was stopped before its end, after {} million steps of SQLite or what takes as long; "
    "narrow it with WHERE, or run it in a cell: journal.sql(...)"
)
_SELECT = f"SELECT {', '.join(EVENT_COLUMNS)} FROM journal"
DURABLE = 0x6C6B6431  # the application_id of its files
_NO_INDEX = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY_CANTINIT,
    sqlite3.SQLITE_READONLY_DIRECTORY,
)

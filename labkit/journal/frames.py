"""A journal as pandas frames, with one table of dtypes, and the verbs of a `Journal`."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from labkit.errors import BadInput
from labkit.journal import explore, jsonl
from labkit.journal.explore import Contents, Glance
from labkit.journal.fold import KINDS, RUN_KINDS, Attempt, Lane, TaskNow, fold, lanes, pair
from labkit.journal.laws import BROKEN, Verdict, Witness, judge_file
from labkit.journal.reading import (
    EVENT_COLUMNS,
    Bounds,
    Event,
    Words,
    collector_off,
    read_columns,
    read_events,
    snapshot,
)
from labkit.journal.run_rows import RunRows, RunStepRow, read_rows
from labkit.journal.story import tell

__all__ = ["DTYPES", "Answer", "Journal", "Standing", "Verdicts"]

BOUNDS = Bounds()

Dtypes = dict[str, str | tuple[str, ...]]

# One table for every frame. Integers are nullable, since NaN would turn a step's index into 1.0;
# ids are strings, never objects; `data`, `input` and `output` stay JSON text: parsing a million
# costs seconds, and SQL reads a field as `data ->> '$.reason'`, pandas as
# `frame["data"].map(json.loads)`.
DTYPES: Dtypes = {
    "seq": "Int64", "started_seq": "Int64", "ended_seq": "Int64",
    "first_seq": "Int64", "last_seq": "Int64",
    "step_idx": "Int64", "idx": "Int64", "attempt": "Int64", "attempts": "Int64",
    "recovered": "Int64",
    "ts": "time", "started_at": "time", "ended_at": "time", "first_at": "time", "last_at": "time",
    "task_id": "string", "run_id": "string", "owner": "string", "ended_by": "string",
    "step": "string", "tool": "string",
    "data": "string", "input": "string", "output": "string",
    "kind": KINDS,
    "status": ("pending", "running", "done", "failed"),
    "ended": ("finished", "error", "interrupted", "recovered", "done", "failed"),
}  # fmt: skip

RUN_DTYPES: Dtypes = {  # of durable runs: other words, and more of them
    **DTYPES,
    "step_id": "string", "name": "string", "effect": "string", "checkpoint": "string",
    "error_code": "string",
    "kind": RUN_KINDS,
    "type": ("CONTEXT", "MODEL", "TOOL"),
    "status": ("CREATED", "RUNNING", "WAITING", "SUCCEEDED", "REJECTED", "FAILED", "CANCELLED"),
    "ended": (
        "finished", "error", "uncertain", "recovered", "confirmed", "waiting", "done", "rejected",
        "failed", "cancelled",
    ),
}  # fmt: skip


class Standing(NamedTuple):
    """Tasks and steps as they stood after one event."""

    tasks: pd.DataFrame
    steps: pd.DataFrame

    def near(self, step_idx: int | None, rows: int = 200) -> pd.DataFrame:
        """At most so many of the steps, those around one of them."""
        first = max(0, min((step_idx or 0) - rows // 2, len(self.steps) - rows))
        return self.steps.iloc[first : first + rows]


class Answer(NamedTuple):
    """What a bounded query gave; `is_whole` is False where it has more rows than these."""

    frame: pd.DataFrame
    is_whole: bool


class Verdicts(tuple[Verdict, ...]):
    """The verdicts in the order of the laws; `.frame()` is the table, and what a notebook shows."""

    @property
    def broken(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self if verdict.verdict == BROKEN)

    def frame(self) -> pd.DataFrame:
        rows = [(v.law, v.promise, v.verdict, v.reason) for v in self]
        return pd.DataFrame(rows, columns=["law", "promise", "verdict", "reason"]).set_index("law")

    def findings(self) -> pd.DataFrame:
        """What is broken: one row for each finding, with the `seq` of the events that show it."""
        rows = [(v.law, v.promise, f.text, list(f.seqs)) for v in self for f in v.findings]
        return pd.DataFrame(rows, columns=["law", "promise", "what", "seqs"])

    def of(self, seq: int) -> pd.DataFrame:
        """The findings that this event shows: those of the laws that it breaks."""
        found = self.findings()
        return found.loc[[seq in seqs for seqs in found["seqs"]]].reset_index(drop=True)

    def __repr__(self) -> str:
        return "\n".join(f"{v.law}  {v.promise}: {v.verdict} ({v.reason})" for v in self)

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None, "display.html.use_mathjax", False):
            return str(self.frame().to_html(escape=True))


class Journal:
    """The journal in an SQLite file, for reading only: of the restart agent or of durable runs.

    No method creates or changes a database (SQLite's own `-wal` and `-shm` may appear beside it).
    Each reads one snapshot and raises NotFound for a missing file, StorageFault for one that cannot
    be read, both also raised here. `task` limits a frame to one task; an unknown task gives an
    empty frame. A durable run is a task here, and each advance of it a run.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        with snapshot(self.path):
            pass

    def __repr__(self) -> str:
        return f"Journal({os.path.basename(self.path)!r})"

    def events(self, task: str | None = None) -> pd.DataFrame:
        """Every row of the view `journal`, by `seq`; `ts` in UTC, `data` as JSON text."""
        with snapshot(self.path) as reader, collector_off():
            dtypes = RUN_DTYPES if reader.is_durable else DTYPES
            return _frame(EVENT_COLUMNS, read_columns(reader, task), dtypes)

    def steps(self, task: str | None = None) -> pd.DataFrame:
        """The table of steps as it stands: task_id, idx, tool, status, attempts, input, output.

        Of durable runs, whose payloads may be sealed: task_id, idx, step_id, type, name and
        effect (the tool's), status, checkpoint (the id of its attempt), error_code, attempts.
        """
        names = ("task_id", "idx", "tool", "status", "attempts", "input", "output")
        query = (
            f"SELECT {', '.join(names)} FROM steps WHERE ? IN (task_id, '') ORDER BY task_id, idx"
        )
        with snapshot(self.path) as reader:
            if reader.is_durable:
                return _run_steps(read_rows(reader, task))
            rows = list(reader.tuples(query, (task or "",))) if reader.has_journal else []
        return _frame(names, _columns(rows, names), DTYPES)

    def attempts(self, task: str | None = None) -> pd.DataFrame:
        """One row for each step_started; its `ended` columns are missing while it is open."""
        events = self.read(task)
        return _records(Attempt, pair(events)[0], events)

    def runs(self, task: str | None = None) -> pd.DataFrame:
        """One row for each run; `ended` is missing where its last entry is not an end."""
        events = self.read(task)
        return _records(Lane, lanes(events), events)

    def read(self, task: str | None = None, *, until: int | None = None) -> list[Event]:
        """The events as plain records, up to and including seq `until`."""
        with snapshot(self.path) as reader:
            return list(read_events(reader, task, until=until))

    def sql(self, query: str, params: Sequence[Any] = ()) -> pd.DataFrame:
        """The rows of one statement. Raises BadInput, in one line, for a write or a mistake."""
        return self._query(query, params, None).frame

    def ask(self, query: str, params: Sequence[Any] = (), bounds: Bounds = BOUNDS) -> Answer:
        """`sql` that ends by itself: its first 200 rows, and whether there are more.

        Raises BadInput as `sql` does, and for a query that is not done after 100 million steps of
        SQLite's machine, a count that is the same on every machine, or, where its steps cost more
        than steps do, after ten seconds of the processor.
        """
        return self._query(query, params, bounds)

    def _query(self, query: str, params: Sequence[Any], bounds: Bounds | None) -> Answer:
        word = _first_word(query)
        if word not in _READING:
            raise BadInput(
                f"{word or 'nothing'} is not a query: use SELECT, WITH, VALUES or EXPLAIN"
            )
        with snapshot(self.path) as reader:
            names, rows, is_whole = reader.query(query, params, bounds)
        columns = {i: _guess(column) for i, column in enumerate(_columns(rows, names))}
        return Answer(pd.DataFrame(columns).set_axis(names, axis=1), is_whole)

    def laws(self, witness: Witness | None = None, task: str | None = None) -> Verdicts:
        """The five promises, and that the tables equal the fold of the journal: see `laws`. Of
        durable runs four more: see `run_laws`."""
        return Verdicts(judge_file(self.path, witness, task))

    def at(self, seq: int, task: str | None = None) -> Standing:
        """Tasks and steps as they stood after event `seq`, from the events alone."""
        events = self.read(task, until=seq)
        return _standing(fold(events), _dtypes_of(events))

    def contents(self, before: Contents | None = None) -> Contents:
        """How much there is: tasks, runs, kinds of event. See `explore`, of which these are."""
        return explore.contents(self, before)

    def seqs(
        self,
        task: str | None = None,
        *,
        run: str | None = None,
        kinds: Collection[str] = (),
        after: int | None = None,
        until: int = explore.MAX_SEQ,
    ) -> list[int]:
        """The `seq` of the events of a task, of a run (of durable runs: an owner with its epoch,
        as `ann#1`), of some kinds; `after < seq <= until`."""
        return explore.seqs(self, task, run=run, kinds=kinds, after=after, until=until)

    def rows(self, seqs: Sequence[int]) -> pd.DataFrame:
        """These events as `events` has them, with the first 200 characters of each text."""
        return _events_frame(explore.rows(self, seqs))

    def row(self, seq: int) -> Event:
        """One event with all its data. Raises UsageError where there is none."""
        return explore.row(self, seq)

    def neighbours(self, seq: int) -> pd.DataFrame:
        """The event with those before and after it, and those of its attempt and step; the column
        `why` says which. Raises UsageError."""
        found = explore.neighbours(self, seq)
        frame = _events_frame([each.event for each in found])
        frame.insert(1, "why", pd.array([each.why for each in found], dtype="string"))
        return frame

    def glance(self, before: Glance | None = None) -> Glance:
        """The last `seq`, and whether the file is another one than `before`: cheap."""
        return explore.glance(self, before)

    def story(self, task: str) -> str:
        """What happened to a task, one sentence on a line. Raises UnknownTask."""
        return tell(self.path, task)

    def follow(
        self,
        task: str | None = None,
        *,
        after: int = 0,
        poll_s: float = 0.1,
        stop: threading.Event | None = None,
    ) -> Iterator[Event]:
        """The events after seq `after`, then each new one soon after its commit, without end.

        It looks every `poll_s` seconds. Once `stop` is set, it gives what is there and ends.
        """
        told = stop or threading.Event()
        while True:
            last_look = told.is_set()
            with snapshot(self.path) as reader:
                fresh = list(read_events(reader, task, after=after))
            yield from fresh
            after = fresh[-1].seq if fresh else after
            if last_look:
                return
            told.wait(poll_s)

    def to_jsonl(self, path: str | os.PathLike[str]) -> None:
        """Writes tasks, steps and events as JSON Lines. Raises BadInput where the file exists."""
        jsonl.export(self.path, os.fspath(path))

    @classmethod
    def from_jsonl(cls, path: str | os.PathLike[str], database: str | os.PathLike[str]) -> Journal:
        """Makes a new database from what `to_jsonl` wrote. Raises NotFound and BadInput."""
        jsonl.load(os.fspath(path), os.fspath(database))
        return cls(database)


_READING = ("SELECT", "WITH", "VALUES", "EXPLAIN")
_SPACE = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)


def _first_word(query: str) -> str:
    """Needed, since ATTACH and VACUUM INTO make files even on a read-only connection."""
    start = _SPACE.match(query)
    words = re.match(r"\w+", query[start.end() if start else 0 :])
    return words[0].upper() if words else ""


def _columns(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> list[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else [() for _ in names]


def _events_frame(events: Sequence[Event]) -> pd.DataFrame:
    return _frame(EVENT_COLUMNS, _columns(events, EVENT_COLUMNS), _dtypes_of(events))


def _dtypes_of(events: Sequence[Event]) -> Dtypes:
    return RUN_DTYPES if events and events[0].is_durable else DTYPES


def _records(
    kind: type[Attempt] | type[Lane], records: Sequence[Any], events: Sequence[Event]
) -> pd.DataFrame:
    return _frame(kind._fields, _columns(records, kind._fields), _dtypes_of(events))


def _run_steps(rows: RunRows) -> pd.DataFrame:
    tried = Counter((attempt.run_id, attempt.step_id) for attempt in rows.attempts)
    records = [(*step, tried[step.run_id, step.step_id]) for step in rows.steps]
    names = ("task_id", *RunStepRow._fields[1:], "attempts")
    return _frame(names, _columns(records, names), RUN_DTYPES)


def _frame(
    names: Sequence[str], columns: Sequence[Sequence[Any] | Words], dtypes: Dtypes
) -> pd.DataFrame:
    typed = zip(names, columns, strict=True)
    frame = {name: _typed(name, column, dtypes[name]) for name, column in typed}
    return pd.DataFrame(frame, copy=False)


def _typed(name: str, values: Sequence[Any] | Words, dtype: str | tuple[str, ...]) -> Any:
    try:
        if isinstance(dtype, tuple):
            return _categories(values, dtype)
        if isinstance(values, Words):
            return pd.array(list(values), dtype=dtype).take(np.array(values.codes, dtype=np.intp))
        if dtype == "time":
            return _times(values)
        return _integers(values) if dtype == "Int64" else pd.array(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"column {name} was altered by hand: {error}") from None


def _categories(values: Sequence[str | None] | Words, known: tuple[str, ...]) -> Any:
    """Categories in the order of `known`; what is not among them comes after."""
    words = values if isinstance(values, Words) else Words(values)
    all_known = [word for word in dict.fromkeys([*known, *words]) if word is not None]
    order = {word: code for code, word in enumerate(all_known)}
    codes = np.array([order.get(word, -1) for word in words], dtype="int32")
    return pd.Categorical.from_codes(codes[np.array(words.codes, dtype=np.intp)], all_known)


def _integers(values: Sequence[int | None]) -> Any:
    """By way of floats, which is three times as fast and exact up to 2**53."""
    numbers = np.array(values, dtype=float)
    missing = np.isnan(numbers)
    whole = np.where(missing, 0, numbers)
    if len(values) and np.abs(whole).max() >= 2**53:
        return pd.array(values, dtype="Int64")
    return pd.arrays.IntegerArray(whole.astype("int64"), missing)


def _times(seconds: Sequence[float | None]) -> Any:
    """Unix seconds as UTC timestamps, to the microsecond: a float of today holds no more."""
    number = np.array(seconds, dtype=float)
    missing = np.isnan(number)
    whole = np.where(missing, 0, np.round(number * 1e6)).astype("int64").astype("datetime64[us]")
    return pd.DatetimeIndex(np.where(missing, np.datetime64("NaT"), whole), tz="UTC")


def _guess(values: Sequence[Any]) -> Any:
    """The dtype of a query's column: what its values are, never what it is called."""
    kinds = {type(value).__name__ for value in values if value is not None}
    dtypes = {"int": "Int64", "float": "Float64", "str": "string"}
    return pd.array(values, dtype=dtypes.get(kinds.pop(), object) if len(kinds) == 1 else object)


def _standing(tasks: dict[str, TaskNow], dtypes: Dtypes) -> Standing:
    rows = [
        (name, idx, step.step, step.status, step.attempts)
        for name, task in tasks.items()
        for idx, step in enumerate(task.steps)
    ]
    names = ("task_id", "idx", "step", "status", "attempts")
    statuses = [(name, task.status) for name, task in tasks.items()]
    return Standing(
        _frame(("task_id", "status"), _columns(statuses, ("task_id", "status")), dtypes),
        _frame(names, _columns(rows, names), dtypes),
    )

"""What a timeline shows, before it is drawn: lanes, bars, marks, and the sentence that says it.

The figure, the text twin and the table twin are all made from one `Chart`, so they cannot disagree.

In a durable run a lane is an owner, with all its advances: a lane for each epoch would hide that it
was the same worker that came back.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from labkit.errors import LabkitError, UsageError
from labkit.journal.fold import Attempt, Lane, fold, lanes, pair, split_owner
from labkit.journal.reading import (
    Event,
    Reader,
    collector_off,
    plain,
    read_events,
    read_steps,
    snapshot,
    unknown_task,
)

__all__ = [
    "AT_WORK", "ENDINGS", "EPOCH", "KILLED", "MAX_LANES", "OUTCOMES", "WITHOUT_ENTRY", "Bar",
    "Chart", "Mark", "Source", "make_chart", "path_of", "read_chart",
]  # fmt: skip

MAX_LANES = 1000

# What became of an attempt. "no entry" is an attempt without an end of its own: still open, or
# recovered later by another run, which cannot know when it ended.
# The last two are of durable runs: the application's answer, and an end that proves nothing.
OUTCOMES = ("finished", "deduplicated", "error", "no entry", "answered", "uncertain")

WITHOUT_ENTRY, KILLED, AT_WORK = "ended without an entry", "killed", "at work"
ENDINGS = ("done", "failed", "waiting", "rejected", "cancelled", KILLED, WITHOUT_ENTRY, AT_WORK)
EPOCH = "epoch "  # and its number: a mark in the lane of a durable run


class HasPath(Protocol):
    path: str


Source = HasPath | str | os.PathLike[str]


class Bar(NamedTuple):
    """One attempt. It has no length (end = begin) where its own lane never says how it ended."""

    lane: int
    outcome: str
    step_idx: int | None
    step: str | None
    attempt: int | None
    begin_seq: int
    end_seq: int
    begin_at: float
    end_at: float


class Mark(NamedTuple):
    """A point in a lane: recovery, error, interrupted, deduplication, or how the lane ends. In a
    durable run also resolution, cancel requested, where an epoch begins, and how each ends.
    """

    lane: int
    what: str
    step_idx: int | None
    step: str | None
    attempt: int | None
    seq: int
    at: float


class Chart(NamedTuple):
    """`hidden` is the number of lanes beyond MAX_LANES, which have no bars and no marks. `names`
    are those of the lanes, and `spans` when somebody was at work in them: of a durable run each
    advance, with the number of its lane.
    """

    task: str
    status: str
    lanes: list[Lane]
    endings: list[str]
    bars: list[Bar]
    marks: list[Mark]
    first_seq: int
    last_seq: int
    first_at: float
    hidden: int
    names: list[str]
    spans: list[tuple[int, Lane]]
    is_durable: bool

    @property
    def summary(self) -> str:
        """The picture in one sentence, the same at each reading of the same journal."""
        outcomes = Counter(bar.outcome for bar in self.bars)
        seen = Counter(mark.what for mark in self.marks)
        attempts = ", ".join(f"{outcomes[word]} {word}" for word in OUTCOMES if outcomes[word])
        parts = [
            *self._workers(),
            _count(len(self.bars), "attempt") + (f" ({attempts})" if attempts else ""),
            _plural(seen["recovery"], "recovery", "recoveries"),
        ]
        parts += [_plural(seen[word], *name) for word, name in _SEEN_IN_RUNS.items() if seen[word]]
        parts += [f"{seen[word]} {word}" for word in (WITHOUT_ENTRY, KILLED, AT_WORK) if seen[word]]
        more = f" {self.cap_sentence}" if self.hidden else ""
        return f"Timeline of {self.subject} ({self.standing}): {', '.join(parts)}.{more}"

    def _workers(self) -> Iterator[str]:
        yield _count(len(self.lanes), "owner" if self.is_durable else "run")
        if self.is_durable:
            yield _count(len(self.spans), "advance")

    @property
    def subject(self) -> str:
        return f"{'run' if self.is_durable else 'task'} {plain(self.task)}"

    @property
    def standing(self) -> str:
        """The status. After a kill the tables go on saying "running", since nothing tells them."""
        silent = self.status.lower() == "running" and AT_WORK not in self.endings
        return f"{self.status}, as the tables say" if silent else self.status

    @property
    def cap_sentence(self) -> str:
        total = len(self.lanes) + self.hidden
        lanes = "owners" if self.is_durable else "runs"
        return f"Only the first {len(self.lanes):,} of {total:,} {lanes} are shown."


def read_chart(
    source: Source,
    task: str,
    *,
    killed: Collection[str] = (),
    at_work: Collection[str] = (),
    until: int | None = None,
) -> Chart:
    """The chart of one task, from one snapshot; with `until`, as it stood after that seq.

    A journal cannot say that a process was killed, or that it is alive: whoever started it can, by
    the run ids in `killed` and `at_work`. About an earlier moment the journal itself can: an owner
    with a later entry was at work. Raises UnknownTask, UsageError where the task begins after
    `until`, and what `snapshot` raises.
    """
    with collector_off(), snapshot(path_of(source)) as reader:
        events = list(read_events(reader, task, until=until))
        if not events:
            raise _no_events(reader, task, until)
        deduplicated = {step.idx for step in read_steps(reader, task) if step.deduplicated}
        later = set() if until is None else _owners_after(reader, task, until)
        return make_chart(events, deduplicated, {*killed} - later, {*at_work} | later)


def path_of(source: Source) -> str:
    """The path of a journal, or the path itself."""
    return os.fspath(source if isinstance(source, (str, os.PathLike)) else source.path)


def _no_events(reader: Reader, task: str, until: int | None) -> LabkitError:
    first = next((event.seq for event in read_events(reader, task)), None)
    if until is None or first is None:
        return unknown_task(reader, task)
    return UsageError(f"{plain(task)!r} has no event up to seq {until}: it begins with seq {first}")


def _owners_after(reader: Reader, task: str, seq: int) -> set[str]:
    query = "SELECT DISTINCT owner FROM journal WHERE task_id = ? AND seq > ? AND owner NOT NULL"
    return {owner for (owner,) in reader.tuples(query, (task, seq))}


def make_chart(
    events: list[Event],
    deduplicated: Collection[int],
    killed: Collection[str] = (),
    at_work: Collection[str] = (),
) -> Chart:
    """The chart of the events of one task. Pure."""
    advances = lanes(events)
    every_lane = _by_name(advances)
    shown = every_lane[:MAX_LANES]
    name_of = {lane.owner: index for index, lane in enumerate(shown)}
    number = {a.owner: n for a in advances if (n := name_of.get(_name(a.owner))) is not None}
    ends = [(a, _ending(a, killed, at_work)) for a in advances if a.owner in number]
    endings = {number[advance.owner]: word for advance, word in ends}  # that of the last one stays
    tasks, name = fold(events), events[0].task_id
    return Chart(
        name,
        tasks[name].status if name in tasks else "never created",
        shown,
        [endings[index] for index in range(len(shown))],
        list(_bars(pair(events)[0], number, deduplicated)),
        [*_marks(events, number, deduplicated), *_last_marks(ends, number)],
        events[0].seq,
        events[-1].seq,
        events[0].ts,
        len(every_lane) - len(shown),
        _names(shown, advances),
        [(number[advance.owner], advance) for advance, _ in ends],
        events[0].is_durable,
    )


def _name(owner: str) -> str:
    return split_owner(owner)[0]


def _by_name(advances: Sequence[Lane]) -> list[Lane]:
    """One lane for each owner, under whatever epochs. Of the restart agent nothing is joined."""
    found: dict[str, Lane] = {}
    for lane in advances:
        name = _name(lane.owner)
        first = found.get(name, lane)
        found[name] = lane._replace(
            owner=name,
            first_seq=first.first_seq,
            first_at=first.first_at,
            recovered=lane.recovered + (first.recovered if name in found else 0),
        )
    return list(found.values())


def _names(shown: Sequence[Lane], advances: Sequence[Lane]) -> list[str]:
    epochs: dict[str, list[str]] = {}
    for advance in advances:
        name, epoch = split_owner(advance.owner)
        epochs.setdefault(name, []).extend([] if epoch is None else [f"#{epoch}"])
    return [
        f"{plain(lane.owner, 24)} {plain(' '.join(epochs[lane.owner]), 24)}"
        if epochs[lane.owner]
        else f"run {plain(lane.owner, 24)}"
        for lane in shown
    ]


def _ending(lane: Lane, killed: Collection[str], at_work: Collection[str]) -> str:
    if lane.ended:
        return lane.ended
    names = (lane.owner, _name(lane.owner))
    if any(name in killed for name in names):
        return KILLED
    return AT_WORK if any(name in at_work for name in names) else WITHOUT_ENTRY


def _bars(
    attempts: list[Attempt], number: dict[str, int], deduplicated: Collection[int]
) -> Iterator[Bar]:
    for a in attempts:
        lane = number.get(a.owner or "")
        if lane is None:
            continue
        begin = a.started_seq, a.started_at
        end = begin  # only the lane's own entry can say when the attempt ended
        if a.ended_seq is not None and a.ended_at is not None and a.ended_by == a.owner:
            end = a.ended_seq, a.ended_at
        outcome = _outcome(a, deduplicated)
        yield Bar(lane, outcome, a.step_idx, a.step, a.attempt, begin[0], end[0], begin[1], end[1])


def _outcome(attempt: Attempt, deduplicated: Collection[int]) -> str:
    if attempt.ended == "finished":
        return "deduplicated" if attempt.step_idx in deduplicated else "finished"
    if attempt.ended == "recovered":  # by its own advance, which gave up, or by another
        return "uncertain" if attempt.ended_by == attempt.owner else "no entry"
    return _OUTCOME_OF.get(attempt.ended or "", "no entry")


def _marks(
    events: list[Event], number: dict[str, int], deduplicated: Collection[int]
) -> Iterator[Mark]:
    lane: int | None = None
    for event in events:
        # A request to cancel is of no advance: it stands in the lane that it meets.
        lane = lane if event.kind == "cancel_requested" else number.get(event.owner or "")
        what = _what(event, deduplicated)
        if lane is not None and what:
            yield Mark(lane, what, event.step_idx, event.step, event.attempt, event.seq, event.ts)


def _what(event: Event, deduplicated: Collection[int]) -> str | None:
    if event.kind == "step_error":
        return "interrupted" if event.detail("interrupted") else "error"
    if event.kind == "step_finished":
        return "deduplication" if event.step_idx in deduplicated else None
    if event.kind == "run_started":
        epoch = split_owner(event.owner or "")[1]
        return None if epoch is None else f"{EPOCH}{epoch}"
    return _MARK_OF.get(event.kind)


def _last_marks(ends: list[tuple[Lane, str]], number: dict[str, int]) -> Iterator[Mark]:
    for lane, ending in ends:
        if ending != "interrupted":  # its own entry has that mark already
            at = number[lane.owner]
            yield Mark(at, ending, None, None, None, lane.last_seq, lane.last_at)


_OUTCOME_OF = {
    "error": "error", "interrupted": "error", "uncertain": "uncertain",
    "confirmed": "answered", "rejected": "answered",
}  # fmt: skip
_MARK_OF = {
    "step_recovered": "recovery",
    "run_resolved": "resolution",
    "cancel_requested": "cancel requested",
}
_SEEN_IN_RUNS = {
    "resolution": ("resolution", "resolutions"),
    "cancel requested": ("request to cancel", "requests to cancel"),
    "waiting": ("wait", "waits"),
}


def _count(number: int, word: str) -> str:
    return _plural(number, word, f"{word}s")


def _plural(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"

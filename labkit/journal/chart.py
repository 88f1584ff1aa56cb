"""What a timeline shows, before it is drawn: lanes, bars, marks, and the sentence that says it.

The figure, the text twin and the table twin are all made from one `Chart`, so they cannot disagree.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple, Protocol

from labkit.journal.fold import Attempt, Lane, fold, lanes, pair
from labkit.journal.reading import (
    Event,
    plain,
    read_events,
    read_steps,
    snapshot,
    unknown_task,
)

__all__ = ["MAX_LANES", "OUTCOMES", "Bar", "Chart", "Mark", "Source", "make_chart", "read_chart"]

MAX_LANES = 1000

# What became of an attempt. "no entry" is an attempt without an end of its own: still open, or
# recovered later by another run, which cannot know when it ended.
OUTCOMES = ("finished", "deduplicated", "error", "no entry")

WITHOUT_ENTRY, KILLED, AT_WORK = "ended without an entry", "killed", "at work"


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
    """A point in a lane: recovery, error, interrupted, deduplication, or how the lane ends."""

    lane: int
    what: str
    step_idx: int | None
    step: str | None
    attempt: int | None
    seq: int
    at: float


class Chart(NamedTuple):
    """`hidden` is the number of lanes beyond MAX_LANES, which have no bars and no marks."""

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

    @property
    def summary(self) -> str:
        """The picture in one sentence, the same at each reading of the same journal."""
        outcomes = Counter(bar.outcome for bar in self.bars)
        seen = Counter(mark.what for mark in self.marks)
        attempts = ", ".join(f"{outcomes[word]} {word}" for word in OUTCOMES if outcomes[word])
        parts = [
            _count(len(self.lanes), "run"),
            _count(len(self.bars), "attempt") + (f" ({attempts})" if attempts else ""),
            _plural(seen["recovery"], "recovery", "recoveries"),
        ]
        parts += [f"{seen[word]} {word}" for word in (WITHOUT_ENTRY, KILLED, AT_WORK) if seen[word]]
        more = f" {self.cap_sentence}" if self.hidden else ""
        return f"Timeline of task {plain(self.task)} ({self.standing}): {', '.join(parts)}.{more}"

    @property
    def standing(self) -> str:
        """The status. After a kill the tables go on saying "running", since nothing tells them."""
        silent = self.status == "running" and AT_WORK not in self.endings
        return f"{self.status}, as the tables say" if silent else self.status

    @property
    def cap_sentence(self) -> str:
        total = len(self.lanes) + self.hidden
        return f"Only the first {len(self.lanes):,} of {total:,} runs are shown."


def read_chart(
    source: Source,
    task: str,
    *,
    killed: Collection[str] = (),
    at_work: Collection[str] = (),
) -> Chart:
    """The chart of one task, from one snapshot.

    A journal cannot say that a process was killed, or that it is alive: whoever started it can, by
    the run ids in `killed` and `at_work`. Raises UnknownTask, and what `snapshot` raises.
    """
    path = source if isinstance(source, (str, os.PathLike)) else source.path
    with snapshot(os.fspath(path)) as reader:
        events = list(read_events(reader, task))
        if not events:
            raise unknown_task(reader, task)
        deduplicated = {step.idx for step in read_steps(reader, task) if step.deduplicated}
    return make_chart(events, deduplicated, killed, at_work)


def make_chart(
    events: list[Event],
    deduplicated: Collection[int],
    killed: Collection[str] = (),
    at_work: Collection[str] = (),
) -> Chart:
    """The chart of the events of one task. Pure."""
    every_lane = lanes(events)
    shown = every_lane[:MAX_LANES]
    endings = [_ending(lane, killed, at_work) for lane in shown]
    number = {lane.owner: index for index, lane in enumerate(shown)}
    tasks, name = fold(events), events[0].task_id
    return Chart(
        name,
        tasks[name].status if name in tasks else "never created",
        shown,
        endings,
        list(_bars(pair(events)[0], number, deduplicated)),
        [*_marks(events, number, deduplicated), *_last_marks(shown, endings)],
        events[0].seq,
        events[-1].seq,
        events[0].ts,
        len(every_lane) - len(shown),
    )


def _ending(lane: Lane, killed: Collection[str], at_work: Collection[str]) -> str:
    if lane.ended:
        return lane.ended
    if lane.owner in killed:
        return KILLED
    return AT_WORK if lane.owner in at_work else WITHOUT_ENTRY


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
    return "error" if attempt.ended in ("error", "interrupted") else "no entry"


def _marks(
    events: list[Event], number: dict[str, int], deduplicated: Collection[int]
) -> Iterator[Mark]:
    for event in events:
        lane, what = number.get(event.owner or ""), None
        if event.kind == "step_recovered":
            what = "recovery"
        elif event.kind == "step_error":
            what = "interrupted" if event.detail("interrupted") else "error"
        elif event.kind == "step_finished" and event.step_idx in deduplicated:
            what = "deduplication"
        if lane is not None and what:
            yield Mark(lane, what, event.step_idx, event.step, event.attempt, event.seq, event.ts)


def _last_marks(shown: list[Lane], endings: list[str]) -> Iterator[Mark]:
    for number, (lane, ending) in enumerate(zip(shown, endings, strict=True)):
        if ending != "interrupted":  # its own entry has that mark already
            yield Mark(number, ending, None, None, None, lane.last_seq, lane.last_at)


def _count(number: int, word: str) -> str:
    return _plural(number, word, f"{word}s")


def _plural(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"

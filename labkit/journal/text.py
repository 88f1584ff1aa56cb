"""The timeline for a terminal: the same chart in plain characters."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import TypeVar

from labkit.journal.chart import (
    AT_WORK,
    ENDINGS,
    EPOCH,
    KILLED,
    WITHOUT_ENTRY,
    Bar,
    Chart,
    Mark,
    Source,
    read_chart,
)

__all__ = ["timeline_text"]

COLUMNS = 80

Part = TypeVar("Part", Bar, Mark)

_FILL = {
    "finished": "=", "deduplicated": ":", "error": "x", "no entry": "/",
    "answered": "+", "uncertain": "~",
}  # fmt: skip
_MARKS = {
    "recovery": "R", "error": "E", "interrupted": "I",
    "done": "!", "failed": "F", KILLED: "K", WITHOUT_ENTRY: "?", AT_WORK: ">",
    "resolution": "A", "cancel requested": "C", "waiting": "W", "rejected": "J", "cancelled": "X",
}  # fmt: skip
_WORDS = {
    "=": "= finished", ":": ": finished, its effect was there already (deduplicated)",
    "x": "x error or interrupted", "/": "/ without an entry of its end",
    "+": "+ answered by the application, without a call",
    "~": "~ uncertain: whether it had its effect, nobody can say",
    "R": "R recovery", "E": "E error", "I": "I interrupted", "!": "! done", "F": "F failed",
    "K": "K killed", "?": "? ended without an entry", ">": "> at work",
    "A": "A the application's answer", "C": "C cancel requested", "W": "W waiting for an answer",
    "J": "J rejected", "X": "X cancelled", "#": "# epoch of a lease",
}  # fmt: skip


def timeline_text(
    journal: Source,
    task: str,
    *,
    width: int = 100,
    killed: Collection[str] = (),
    at_work: Collection[str] = (),
    until: int | None = None,
) -> str:
    """The timeline by order, one line for each lane, at most `width` columns for the bars.

    Arguments and errors are those of `timeline`.
    """
    chart = read_chart(journal, task, killed=killed, at_work=at_work, until=until)
    scale = _Scale(chart, width)
    bars, marks = _by_lane(chart.bars), _by_lane(chart.marks)
    lanes = [
        _draw(scale, scale.column(lane.last_seq), bars.get(number, []), marks.get(number, []))
        for number, lane in enumerate(chart.lanes)
    ]
    margin = max(map(len, chart.names), default=0)
    length = max(map(len, lanes), default=0)
    lines = [
        f"{name:<{margin}}  {lane:<{length}}  {ending}"
        for name, lane, ending in zip(chart.names, lanes, chart.endings, strict=True)
    ]
    return "\n".join([*_wrap(chart.summary.split(" ")), *lines, *_wrap(_legend(lanes))])


def _wrap(parts: list[str]) -> list[str]:
    """Lines that fit the narrowest terminal, however wide the bars are; no part is divided."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 1 + len(part) <= COLUMNS:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return lines


class _Scale:
    """From `seq` to a column: up to 5 for each event, fewer where that is too wide."""

    def __init__(self, chart: Chart, width: int) -> None:
        self._first = chart.first_seq
        self._cell = min(5.0, width / max(1, chart.last_seq - chart.first_seq + 1))

    def column(self, seq: int) -> int:
        return int((seq - self._first) * self._cell)

    def ends(self, bar: Bar) -> tuple[int, int]:
        """The columns of a bar's brackets. A bar without length takes three fifths of a cell."""
        begin = self.column(bar.begin_seq)
        if bar.end_seq == bar.begin_seq:
            return begin, begin + max(1, int(self._cell * 0.6))
        return begin, max(begin, self.column(bar.end_seq) - 1)


def _by_lane(parts: list[Part]) -> dict[int, list[Part]]:
    found: dict[int, list[Part]] = {}
    for part in parts:
        found.setdefault(part.lane, []).append(part)
    return found


def _draw(scale: _Scale, edge: int, bars: list[Bar], marks: list[Mark]) -> str:
    cells: dict[int, str] = {}
    for bar in bars:
        edge = max(edge, _draw_bar(cells, scale, bar))
    last = max((mark.seq for mark in marks), default=0)
    for mark in marks:
        at = scale.column(mark.seq)
        if mark.what.startswith(EPOCH):
            cells.update(enumerate("#" + mark.what.removeprefix(EPOCH), at))
        elif mark.what in ENDINGS:
            # An advance that ended before the lane did has its mark after its own last bar.
            after = next(column for column in count(at) if column not in cells)
            cells[edge if mark.seq == last else after] = _MARKS[mark.what]
        elif mark.what != "deduplication":  # its bar has the pattern already
            cells[at] = _MARKS[mark.what]
    return "".join(cells.get(column, " ") for column in range(max(cells, default=-1) + 1))


def _draw_bar(cells: dict[int, str], scale: _Scale, bar: Bar) -> int:
    """Returns the first column after the bar."""
    begin, end = scale.ends(bar)
    for column in range(begin, end + 1):
        cells[column] = _FILL[bar.outcome]
    if end - begin >= 2:
        label = str(bar.step_idx)[: end - begin - 1]
        cells.update({begin: "["} | {begin + 1 + i: c for i, c in enumerate(label)})
        if bar.outcome != "no entry":  # nothing closes it
            cells[end] = "]"
    return end + 1


def _legend(lanes: list[str]) -> list[str]:
    used = set("".join(lanes))
    parts = [f"{word}," for character, word in _WORDS.items() if character in used]
    if parts:
        parts[-1] = parts[-1][:-1]
    return ["[n attempt at step n, by order of entries;", *parts] if "[" in used else parts

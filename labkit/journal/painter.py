"""Draws a chart on a matplotlib figure.

All bars of one outcome are one path. Rejected: a call for each bar, since 100,000 take minutes; a
PolyCollection, which takes one minute where they are hatched. Text from a journal is never read as
mathematics, and a character that the font lacks is shown as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import font_manager
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from labkit.journal.chart import (
    AT_WORK,
    ENDINGS,
    EPOCH,
    KILLED,
    OUTCOMES,
    WITHOUT_ENTRY,
    Bar,
    Chart,
    Mark,
)
from labkit.journal.explore import MAX_EXACT
from labkit.journal.fold import Lane
from labkit.journal.reading import plain

__all__ = ["FACES", "SIZES", "Size", "paint"]

# Four colours of Okabe and Ito that reach 3:1 on white and on JupyterLab's dark background (their
# orange, sky blue and yellow do not). None is the only sign: each has a pattern, and its word.
FACES = {
    "finished": ("#0072B2", ""),
    "deduplicated": ("#009E73", ".."),
    "error": ("#D55E00", "xx"),
    "no entry": ("#CC79A7", "//"),
}
RUN_FACES = FACES | {  # of a durable run; the same colours under patterns of their own
    "answered": ("#009E73", "++"),
    "uncertain": ("#CC79A7", "\\\\"),
}
WORDS = {
    "finished": "finished",
    "deduplicated": "deduplicated: its effect was there already",
    "error": "error or interrupted",
    "no entry": "no entry of its end",
    "answered": "answered by the application",
    "uncertain": "uncertain: nobody can say",
}
MARKERS = {
    "recovery": "<",
    "error": "v",
    "interrupted": "s",
    "deduplication": "D",
    "done": "o",
    "failed": "P",
    KILLED: "X",
    WITHOUT_ENTRY: "X",
    AT_WORK: ">",
    "resolution": "*",
    "cancel requested": "|",
    "waiting": "d",
    "rejected": "p",
    "cancelled": "h",
}
MAX_BARS_WITH_NAMES = 60  # beyond it, a name rarely fits, and each try costs time
MAX_BARS_WITH_EDGES = 300  # beyond it a bar has few pixels, and its edge would hide its neighbour
SCREEN = 7.2  # inches at 100 pixels each: the height of a projector's screen
SHORTEST = 0.006  # of a bar, as a share of all that is shown: 5 pixels


class Size(NamedTuple):
    """Inches, and points for the font. A room's picture fits a screen of 1280 x 720, and a panel's
    stands on it beside other things. `around` is for title, axis and legend, in inches for each
    point of the font."""

    width: float
    lane: float
    font: float
    around: float = 0.17


SIZES = {
    "notebook": Size(9.6, 0.62, 9.5), "room": Size(12.4, 0.95, 15), "panel": Size(6.6, 0.5, 9.5),
    "room panel": Size(11.0, 0.52, 13, 0.13),
}  # fmt: skip


class Ink(NamedTuple):
    text: str
    paper: str
    line: str


Floats = npt.NDArray[np.float64]
INKS = {False: Ink("black", "white", "#767676"), True: Ink("white", "#111111", "#8a8a8a")}


def paint(figure: Figure, chart: Chart, *, by: str, size: Size, dark: bool) -> None:
    """Lanes, bars, marks, words and a legend; `by` is "order" or "time"."""
    painter = _Painter(figure, chart, by, size, INKS[dark])
    painter.lanes()
    painter.bars()
    painter.marks()
    if painter.names_steps:
        painter.step_names()
        painter.epochs()
    if painter.names_endings:
        painter.endings()
    painter.x_axis()
    painter.y_axis()
    painter.title()
    painter.legend()


class _Painter:
    def __init__(self, figure: Figure, chart: Chart, by: str, size: Size, ink: Ink) -> None:
        self.figure, self.chart, self.by, self.size, self.ink = figure, chart, by, size, ink
        # A float cannot tell larger ones apart: of such a journal it counts from the first.
        is_exact = max(abs(chart.first_seq), abs(chart.last_seq)) <= MAX_EXACT
        self.zero = 0 if is_exact else chart.first_seq
        figure.set_facecolor(ink.paper)
        self.axes = figure.add_subplot(facecolor=ink.paper)
        self._measure_height()
        self._measure_width()

    def _measure_height(self) -> None:
        lanes, font = len(self.chart.lanes), self.size.font
        around = font * self.size.around
        lane = _lane_height(lanes, self.size, around)
        self.height = lane * max(1, lanes) + around
        self.figure.set_size_inches(self.size.width, self.height)
        line = font * 1.1 / 72
        self.names_endings = lane >= line
        few = len(self.chart.bars) <= MAX_BARS_WITH_NAMES
        self.has_edges = len(self.chart.bars) <= MAX_BARS_WITH_EDGES
        self.names_steps = few and lane >= 2.2 * line

    def _measure_width(self) -> None:
        self.y = np.array([bar.lane for bar in self.chart.bars], dtype=float)
        left, right = self._bar_ends()
        # A clock may jump back: the first entry need not be leftmost.
        first = self._x(self.chart.first_seq, self.chart.first_at)
        places = np.concatenate([left, right, *self._lane_ends(), [first]])
        self.first = float(places.min())
        half = 0.5 if self.by == "order" else 5e-4  # of an event, of a millisecond
        last = max(float(places.max()), self.first + 2 * half)
        shortest = max((last - self.first) * SHORTEST, half if self.by == "order" else 0)
        self.left, self.right = left, np.maximum(right, left + shortest)
        begun = [bar.begin_seq for bar in self.chart.bars]
        self._ends_of_bars = dict(zip(begun, self.right.tolist(), strict=True))
        self.edges = self._right_edges()
        self.last = max([last, *self.edges])
        self.span = self.last - self.first
        self._leave_room_for_words()

    def _leave_room_for_words(self) -> None:
        """At the right, for how the lanes end, and for the name of the last bar in each. In inches,
        by the width of a usual letter."""
        self.letter = self.size.font * 0.6 / 72
        across = self.size.width - self.size.font * 0.2  # without the names of the runs
        words = np.array([len(word) for word in self.chart.endings]) * self.letter + 0.3
        needed = [*(self.edges - self.first) * across / (across - words)]
        if self.names_steps:
            for bar, left in {bar.lane: (bar, left) for bar, left in self._bars()}.values():
                name = len(_name_of(bar)) * self.letter + 0.05
                if name < across / 3:  # of a longer one, which would press all bars, the number
                    needed.append((left - self.first) * across / (across - name))
        self.end = self.first + float(max([self.span, *needed]))
        self.inches = across / (self.end - self.first)

    def _x(self, seq: int, at: float) -> float:
        return float(seq - self.zero) if self.by == "order" else at - self.chart.first_at

    def _bar_ends(self) -> tuple[Floats, Floats]:
        bars, zero, start = self.chart.bars, self.zero, self.chart.first_at
        if self.by == "order":
            ends: list[Any] = [(b.begin_seq - zero, b.end_seq - zero) for b in bars]
        else:
            ends = [(b.begin_at - start, b.end_at - start) for b in bars]
        a, b = np.array(ends, dtype=float).reshape(-1, 2).T
        return np.minimum(a, b), np.maximum(a, b)

    def _lane_ends(self) -> tuple[Floats, Floats]:
        return self._ends_of(self.chart.lanes)

    def _ends_of(self, lanes: list[Lane]) -> tuple[Floats, Floats]:
        first = [self._x(lane.first_seq, lane.first_at) for lane in lanes]
        last = [self._x(lane.last_seq, lane.last_at) for lane in lanes]
        return np.array(first, dtype=float), np.array(last, dtype=float)

    def _right_edges(self) -> Floats:
        """Where each lane ends in the picture: at its last entry, or right of its last bar."""
        edges = self._lane_ends()[1]
        np.maximum.at(edges, self.y.astype(int), self.right)
        return edges

    def lanes(self) -> None:
        y = np.array([lane for lane, _ in self.chart.spans], dtype=float)
        first, last = self._ends_of([span for _, span in self.chart.spans])
        lines = np.stack([np.stack([first, y], 1), np.stack([last, y], 1)], 1)
        collection = LineCollection(list(lines), colors=self.ink.line, linewidths=1.2, zorder=1)
        self.axes.add_collection(collection, autolim=False)

    def bars(self) -> None:
        outcome_of = np.array([bar.outcome for bar in self.chart.bars])
        for outcome in OUTCOMES:
            chosen = outcome_of == outcome
            if chosen.any():
                face, hatch = RUN_FACES[outcome]
                torn = outcome == "no entry"
                patch = PathPatch(
                    self._outline(chosen, torn), facecolor=face, edgecolor=self.ink.paper,
                    linewidth=0.6 if self.has_edges else 0, hatch=hatch, snap=not torn, zorder=2,
                )  # fmt: skip
                patch.set_in_layout(False)
                self.axes.add_artist(patch)

    def _outline(self, chosen: Any, torn: bool) -> Path:
        """A rectangle for each bar. One without an end is torn off: its length is unknown."""
        bars = self.left[chosen], self.right[chosen], self.y[chosen]
        left, right, y = bars if self.has_edges else _joined(*bars)
        tooth = np.minimum((right - left) / 3, self.span * SHORTEST)
        edge = [right, right - tooth, right, right - tooth, right] if torn else [right, right]
        height = np.linspace(-0.22, 0.22, len(edge))
        x_of_corners = np.stack([left, *edge, left, left], axis=1)
        y_of_corners = y[:, None] + np.array([-0.22, *height, 0.22, -0.22])
        codes = np.full(x_of_corners.shape, Path.LINETO, dtype=Path.code_type)
        codes[:, 0], codes[:, -1] = Path.MOVETO, Path.CLOSEPOLY
        return Path(np.stack([x_of_corners, y_of_corners], axis=2).reshape(-1, 2), codes.ravel())

    def marks(self) -> None:
        size = self.size.font * 0.75 if self.names_endings else 3
        for what in dict.fromkeys(mark.what for mark in self.chart.marks if _is_drawn(mark)):
            marks = [mark for mark in self.chart.marks if mark.what == what]
            self.axes.plot(
                [self._place(mark) for mark in marks],
                [m.lane for m in marks],
                linestyle="", marker=MARKERS[what], markersize=size, color=self.ink.text,
                markeredgecolor=self.ink.paper, markeredgewidth=0.7 if self.has_edges else 0,
                zorder=3, in_layout=False,
            )  # fmt: skip

    def _place(self, mark: Mark) -> float:
        """How a lane ends stands at its end; how an earlier advance in it ends, after its bar."""
        if mark.what not in ENDINGS:
            return self._x(mark.seq, mark.at)
        if mark.seq == self.chart.lanes[mark.lane].last_seq:
            return float(self.edges[mark.lane])
        return float(self._ends_of_bars.get(mark.seq, self._x(mark.seq, mark.at)))

    def epochs(self) -> None:
        """Below the lane, where an advance took the lease."""
        for mark in self.chart.marks:
            if mark.what.startswith(EPOCH):
                text = mark.what.replace(EPOCH, "#")
                self._write(self._x(mark.seq, mark.at), mark.lane + 0.27, text, "top")

    def step_names(self) -> None:
        """Above each bar as many of its words as fit before the next bar, by a usual letter."""
        for bar, left, room in self._rooms():
            for text in (_name_of(bar), f"{bar.step_idx}{_again(bar)}"):
                if len(text) * self.letter <= room * self.inches:
                    self._write(left, bar.lane - 0.27, text, "bottom")
                    break

    def _bars(self) -> list[tuple[Bar, float]]:
        """Each bar, and its left."""
        return list(zip(self.chart.bars, self.left.tolist(), strict=True))

    def _rooms(self) -> Iterator[tuple[Bar, float, float]]:
        """Each bar, its left, and how far it is from there to the next bar of its lane."""
        following = dict.fromkeys(range(len(self.chart.lanes)), self.end)
        for bar, left in reversed(self._bars()):
            yield bar, left, following[bar.lane] - left
            following[bar.lane] = left

    def endings(self) -> None:
        gap = self.size.font * 0.009 / self.inches
        for y, (edge, word) in enumerate(zip(self.edges, self.chart.endings, strict=True)):
            self._write(edge + gap, y, word, "center")

    def _write(self, x: float, y: float, text: str, side: str) -> None:
        self.axes.text(
            x, y, _drawable(text), fontsize=self.size.font, color=self.ink.text, va=side,
            parse_math=False, zorder=4,
        )  # fmt: skip

    def x_axis(self) -> None:
        by_order = self.by == "order"
        self.axes.set_xlim(self.first - self.span * 0.02, self.end)
        each = by_order and self.span <= 15  # few entries: each has its number
        locator = MaxNLocator(nbins=15 if each else 10, steps=[1, 2, 5, 10], integer=by_order)
        ticks = locator.tick_values(self.first, self.last)
        self.axes.set_xticks([tick for tick in ticks if self.first <= tick <= self.last])
        self.axes.tick_params(axis="x", colors=self.ink.text, labelsize=self.size.font, length=3)
        whose = "run" if self.chart.is_durable else "task"
        counted = f"seq {-self.zero:+}" if self.zero else "seq"
        order, time = f"order of entries ({counted})", f"seconds since the {whose}'s first entry"
        word = order if by_order else time
        again = [bar for bar in self.chart.bars if (bar.attempt or 1) > 1]
        if again and self.names_steps:
            bar = again[0]
            word += f"; {bar.step_idx} #{bar.attempt} is step {bar.step_idx}, attempt {bar.attempt}"
        self.axes.set_xlabel(word, fontsize=self.size.font, color=self.ink.text)
        for side, spine in self.axes.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_color(self.ink.line)

    def y_axis(self) -> None:
        lanes = self.chart.lanes
        self.axes.set_ylim(max(1, len(lanes)) - 0.4, -0.75)  # the first run is on top
        lines = self.height * 72 / (self.size.font * 1.4)  # of text that fit above each other
        shown = range(0, len(lanes), max(1, -int(-len(lanes) // lines)))
        names = [_drawable(self.chart.names[y]) for y in shown]
        self.axes.set_yticks(list(shown), names, parse_math=False)
        self.axes.tick_params(
            axis="y", labelcolor=self.ink.text, labelsize=self.size.font, length=0
        )

    def title(self) -> None:
        subject = _drawable(self.chart.subject)
        text = f"{subject[0].upper()}{subject[1:]}: {self.chart.standing}"
        if self.chart.hidden:
            text += f"\n{self.chart.cap_sentence}"
        self.axes.set_title(
            text, fontsize=self.size.font * 1.15, color=self.ink.text, loc="left", parse_math=False
        )

    def legend(self) -> None:
        """What the picture does not say in words of its own."""
        outcomes = {bar.outcome for bar in self.chart.bars}
        handles: list[Any] = [
            Patch(
                facecolor=face, hatch=hatch, edgecolor=self.ink.paper, label=WORDS[outcome]
            )
            for outcome, (face, hatch) in RUN_FACES.items()
            if outcome in outcomes
        ]  # fmt: skip
        marks = {mark.what for mark in self.chart.marks}
        if self.names_endings:
            marks -= {*ENDINGS} & {*self.chart.endings}
        handles += [
            Line2D(
                [], [], linestyle="", marker=MARKERS[what], markersize=self.size.font * 0.75,
                color=self.ink.text, label=what,
            )
            for what in MARKERS
            if what in marks
        ]  # fmt: skip
        self.figure.legend(
            handles=handles, loc="outside lower left", ncols=3, frameon=False,
            labelcolor=self.ink.text, fontsize=self.size.font, handlelength=1.6,
        )  # fmt: skip


def _name_of(bar: Bar) -> str:
    return f"{bar.step_idx} {plain(bar.step or '')}{_again(bar)}"


def _again(bar: Bar) -> str:
    return f" #{bar.attempt}" if (bar.attempt or 1) > 1 else ""


def _is_drawn(mark: Mark) -> bool:
    return not mark.what.startswith(EPOCH)  # it is written, where there is room


def _lane_height(lanes: int, size: Size, around: float) -> float:
    """In inches. All on one screen; where that is too thin, 8 pixels, and the page scrolls."""
    return max(0.08, min(size.lane, (SCREEN - around) / max(1, lanes)))


def _joined(left: Floats, right: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Bars that overlap in one lane as one: without edges they look so, and 100,000 are a few."""
    order = np.lexsort((left, y))
    left, right, y = left[order], right[order], y[order]
    lane = y * 2 * (right.max() - left.min())  # apart from the lane before, however far that goes
    reached = np.maximum.accumulate(lane + right)
    first = np.flatnonzero(np.append(True, lane[1:] + left[1:] > reached[:-1]))
    return left[first], np.maximum.reduceat(right, first), y[first]


def _drawable(text: str) -> str:
    return "".join(c if _has_glyph(c) else "\N{REPLACEMENT CHARACTER}" for c in text)


@cache
def _has_glyph(character: str) -> bool:
    font = font_manager.get_font(font_manager.findfont(font_manager.FontProperties()))
    return bool(font.get_char_index(ord(character)))

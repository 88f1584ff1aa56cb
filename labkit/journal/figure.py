"""The timeline as a figure, and as a table.

matplotlib's objects are used directly, never `pyplot`, which keeps every figure alive until it is
told to close it. All bars of one outcome are one PolyCollection: a call for each bar takes minutes
for 100,000.
"""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from labkit.errors import UsageError
from labkit.journal.chart import (
    AT_WORK,
    KILLED,
    OUTCOMES,
    WITHOUT_ENTRY,
    Bar,
    Chart,
    Source,
    plain,
    read_chart,
)

__all__ = ["Timeline", "timeline", "timeline_table"]

# Four colours of Okabe and Ito that reach 3:1 on white and on JupyterLab's dark background (their
# orange, sky blue and yellow do not). None is the only sign: each has a pattern, and the legend its
# word.
FACES = {
    "finished": ("#0072B2", ""),
    "deduplicated": ("#009E73", ".."),
    "error": ("#D55E00", "xx"),
    "no entry": ("#CC79A7", "//"),
}
WORDS = {
    "finished": "finished",
    "deduplicated": "finished, effect was there already (deduplicated)",
    "error": "error or interrupted",
    "no entry": "no entry of its end",
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
}
MAX_LABELS = 60  # beyond it, words in the picture are noise
MIN_BAR = {"order": 0.5, "time": 0.008}  # in events; as a share of the whole time


class Style(NamedTuple):
    """Sizes: inches, and points for fonts."""

    width: float
    lane: float
    font: float


STYLES = {"notebook": Style(9.6, 0.62, 9.5), "room": Style(12.4, 0.95, 15)}
INK = {False: ("black", "white", "#767676"), True: ("white", "#111111", "#8a8a8a")}


class Timeline(Figure):
    """A figure whose display is an image with alternative text, and whose plain text is the
    sentence.

    A stored output is thus readable without the image, and a test compares the sentence.
    """

    chart: Chart

    @property
    def summary(self) -> str:
        return self.chart.summary

    @property
    def table(self) -> pd.DataFrame:
        return _table(self.chart)

    def __repr__(self) -> str:
        return self.summary

    def _repr_html_(self) -> str:
        image = base64.b64encode(self.png()).decode()
        alt = html.escape(self.summary, quote=True)
        return f'<img alt="{alt}" style="max-width:100%" src="data:image/png;base64,{image}">'

    def png(self) -> bytes:
        file = io.BytesIO()
        # No software name: the same journal gives the same bytes with every version.
        self.savefig(file, format="png", metadata={"Software": None})
        return file.getvalue()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes PNG or SVG, by the ending of the name. Raises UsageError for another ending."""
        ending = os.path.splitext(os.fspath(path))[1].lower()
        if ending not in (".png", ".svg"):
            raise UsageError(
                f"cannot save a timeline as {ending or 'a name without ending'}: use .png or .svg"
            )
        no_name: dict[str, Any] = {"Software": None} if ending == ".png" else {"Date": None}
        with mpl.rc_context({"svg.hashsalt": "labkit"}):  # else the ids in an SVG differ each time
            self.savefig(os.fspath(path), metadata=no_name)


def timeline(
    journal: Source,
    task: str,
    *,
    by: str = "order",
    style: str = "notebook",
    dark: bool = False,
    killed: Collection[str] = (),
    at_work: Collection[str] = (),
) -> Timeline:
    """One lane for each run, a bar for each attempt, marks for recovery, error, deduplication and
    the run's end.

    `by` is "order" (of the entries) or "time" (seconds since the task's first entry). `style` is
    "notebook", or "room" for a projector. The background is white unless `dark`: a stored image
    cannot know the reader's theme. A run whose last entry is not an end "ended without an entry";
    "killed" and "at work" are what the caller knows, by run ids. At most 1,000 lanes, and a
    sentence that says so. Raises UnknownTask, and UsageError for an unknown `by` or `style`.
    """
    _require("by", by, ("order", "time"))
    _require("style", style, STYLES)
    chart = read_chart(journal, task, killed=killed, at_work=at_work)
    return _draw(chart, by, STYLES[style], dark)


def timeline_table(
    journal: Source,
    task: str,
    *,
    killed: Collection[str] = (),
    at_work: Collection[str] = (),
) -> pd.DataFrame:
    """The timeline as a table: one row for each bar and each mark, lane by lane. Arguments as in
    `timeline`.
    """
    return _table(read_chart(journal, task, killed=killed, at_work=at_work))


def _table(chart: Chart) -> pd.DataFrame:
    owners = [lane.owner for lane in chart.lanes]
    bars = [
        (b.lane, owners[b.lane], "attempt", b.step_idx, b.step, b.attempt, b.outcome,
         b.begin_seq, b.end_seq, b.begin_at - chart.first_at, b.end_at - chart.first_at)
        for b in chart.bars
    ]  # fmt: skip
    marks = [
        (m.lane, owners[m.lane], m.what, m.step_idx, m.step, m.attempt, None,
         m.seq, m.seq, m.at - chart.first_at, m.at - chart.first_at)
        for m in chart.marks
    ]  # fmt: skip
    names = [
        "lane",
        "owner",
        "what",
        "step_idx",
        "step",
        "attempt",
        "outcome",
        "begin_seq",
        "end_seq",
    ]
    frame = pd.DataFrame([*bars, *marks], columns=[*names, "begin_s", "end_s"])
    whole = dict.fromkeys(("lane", "step_idx", "attempt", "begin_seq", "end_seq"), "Int64")
    words = dict.fromkeys(("owner", "what", "step", "outcome"), "string")
    frame = frame.astype({**whole, **words, "begin_s": "float64", "end_s": "float64"})
    return frame.sort_values(["lane", "begin_seq", "end_seq"], kind="stable", ignore_index=True)


def _require(name: str, value: str, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise UsageError(f"{name}={value!r}: use one of {', '.join(allowed)}")


def _draw(chart: Chart, by: str, style: Style, dark: bool) -> Timeline:
    ink, paper, grey = INK[dark]
    figure = Timeline(
        figsize=(style.width, _height(chart, style)), dpi=100, facecolor=paper, layout="constrained"
    )
    FigureCanvasAgg(figure)
    figure.chart = chart
    axes = figure.add_subplot(facecolor=paper)
    scale = _Scale(chart, by)
    _draw_lanes(axes, chart, scale, grey)
    _draw_bars(axes, chart, scale, paper)
    _draw_marks(axes, chart, scale, ink, paper)
    if len(chart.bars) <= MAX_LABELS:
        _draw_step_names(axes, chart, scale, style, ink)
    if len(chart.lanes) <= MAX_LABELS:
        _draw_endings(axes, chart, scale, style, ink)
    _draw_frame(axes, chart, scale, style, ink, grey)
    _draw_legend(figure, chart, style, ink, paper)
    return figure


def _height(chart: Chart, style: Style) -> float:
    """Many lanes get thin ones, never less than 8 pixels: the page scrolls."""
    lanes = max(1, len(chart.lanes))
    lane = style.lane if lanes <= 8 else max(0.08, style.lane * 8 / lanes)
    return lanes * lane + style.font * 0.17


class _Scale:
    """From events to x: the `seq` itself, or seconds since the first entry."""

    def __init__(self, chart: Chart, by: str) -> None:
        self.by, self._chart = by, chart
        places = [self.of(lane.last_seq, lane.last_at) for lane in chart.lanes]
        self.first = self.of(chart.first_seq, chart.first_at)
        self.last = max([*places, self.first + (1 if by == "order" else 1e-3)])
        self.shortest = MIN_BAR[by] * (1 if by == "order" else self.last - self.first)

    def of(self, seq: int, at: float) -> float:
        return float(seq) if self.by == "order" else at - self._chart.first_at

    def ends(self, bar: Bar) -> tuple[float, float]:
        """Left and right, with a length that can be seen. A clock may jump back; a bar does not."""
        a, b = self.of(bar.begin_seq, bar.begin_at), self.of(bar.end_seq, bar.end_at)
        return min(a, b), max(a, b, min(a, b) + self.shortest)


def _draw_lanes(axes: Axes, chart: Chart, scale: _Scale, grey: str) -> None:
    lines = [
        [(scale.of(lane.first_seq, lane.first_at), y), (scale.of(lane.last_seq, lane.last_at), y)]
        for y, lane in enumerate(chart.lanes)
    ]
    axes.add_collection(LineCollection(lines, colors=grey, linewidths=1.2, zorder=1), autolim=False)


def _draw_bars(axes: Axes, chart: Chart, scale: _Scale, paper: str) -> None:
    for outcome in OUTCOMES:
        colour, hatch = FACES[outcome]
        bars = [bar for bar in chart.bars if bar.outcome == outcome]
        if bars:
            axes.add_collection(
                PolyCollection(
                    _corners(bars, scale), facecolors=colour, edgecolors=paper, linewidths=0.6,
                    hatch=hatch, zorder=2, label=WORDS[outcome], in_layout=False,
                ),
                autolim=False,
            )  # fmt: skip


def _corners(bars: list[Bar], scale: _Scale) -> Any:
    ends = np.array([scale.ends(bar) for bar in bars])
    y = np.array([bar.lane for bar in bars], dtype=float)
    left, right, top, bottom = ends[:, 0], ends[:, 1], y - 0.22, y + 0.22
    return np.stack(
        [
            np.stack(corner, axis=1)
            for corner in ((left, top), (right, top), (right, bottom), (left, bottom))
        ],
        axis=1,
    )


def _draw_marks(axes: Axes, chart: Chart, scale: _Scale, ink: str, paper: str) -> None:
    edge = _right_edges(chart, scale)
    size = 7 if len(chart.lanes) <= MAX_LABELS else 3
    for what in dict.fromkeys(mark.what for mark in chart.marks):
        marks = [mark for mark in chart.marks if mark.what == what]
        axes.plot(
            [edge[m.lane] if m.step_idx is None else scale.of(m.seq, m.at) for m in marks],
            [m.lane for m in marks],
            linestyle="", marker=MARKERS[what], markersize=size, color=ink,
            markeredgecolor=paper, markeredgewidth=0.7, zorder=3, in_layout=False, clip_on=False,
        )  # fmt: skip


def _right_edges(chart: Chart, scale: _Scale) -> list[float]:
    """Where each lane ends in the picture: at its last entry, or at the right of its last bar."""
    edge = [scale.of(lane.last_seq, lane.last_at) for lane in chart.lanes]
    for bar in chart.bars:
        edge[bar.lane] = max(edge[bar.lane], scale.ends(bar)[1])
    return edge


def _draw_step_names(axes: Axes, chart: Chart, scale: _Scale, style: Style, ink: str) -> None:
    """Above each bar as many of its words as fit before the next bar."""
    inch = (style.width - 2.5) / (scale.last - scale.first) / 1.25
    letter = style.font * 0.62 / 72
    for bar, room in _rooms(chart, scale):
        again = f" #{bar.attempt}" if (bar.attempt or 1) > 1 else ""
        words = (
            f"{bar.step_idx} {plain(bar.step or '')}{again}",
            f"{bar.step_idx}{again}",
            str(bar.step_idx),
        )
        for text in words:
            if len(text) * letter <= room * inch or text == words[-1]:
                left = scale.ends(bar)[0]
                _write(axes, left, bar.lane - 0.27, text, style.font, ink, va="bottom")
                break


def _rooms(chart: Chart, scale: _Scale) -> Iterator[tuple[Bar, float]]:
    following: dict[int, float] = {}
    for bar in reversed(chart.bars):
        left = scale.ends(bar)[0]
        yield bar, following.get(bar.lane, scale.last * 1.25) - left
        following[bar.lane] = left


def _draw_endings(axes: Axes, chart: Chart, scale: _Scale, style: Style, ink: str) -> None:
    gap = (scale.last - scale.first) * 0.015
    for y, (edge, ending) in enumerate(zip(_right_edges(chart, scale), chart.endings, strict=True)):
        _write(axes, edge + gap, y, ending, style.font, ink, va="center")


def _write(axes: Axes, x: float, y: float, text: str, size: float, ink: str, va: str) -> None:
    axes.text(x, y, _drawable(text), fontsize=size, color=ink, va=va, parse_math=False, zorder=4)


def _draw_frame(axes: Axes, chart: Chart, scale: _Scale, style: Style, ink: str, grey: str) -> None:
    span = scale.last - scale.first
    axes.set_xlim(
        scale.first - span * 0.02, scale.last + span * 0.25
    )  # room for the words at the right
    axes.set_ylim(len(chart.lanes) - 0.4, -0.75)  # the first run is on top
    thin = max(1, round(len(chart.lanes) * style.font / 72 * 1.2 / (_height(chart, style) - 0.5)))
    shown = range(0, len(chart.lanes), thin)
    names = [_drawable(f"run {plain(chart.lanes[y].owner, 24)}") for y in shown]
    axes.set_yticks(list(shown), names, fontsize=style.font, color=ink, parse_math=False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=scale.by == "order"))
    axes.tick_params(colors=ink, labelsize=style.font, length=3)
    axes.tick_params(axis="y", length=0)
    word = (
        "order of entries (seq)" if scale.by == "order" else "seconds since the task's first entry"
    )
    axes.set_xlabel(word, fontsize=style.font, color=ink)
    title = f"Task {_drawable(plain(chart.task))}: {chart.status}"
    if chart.hidden:
        title += f"\n{chart.cap_sentence}"
    axes.set_title(title, fontsize=style.font * 1.15, color=ink, loc="left", parse_math=False)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(grey)


def _draw_legend(figure: Figure, chart: Chart, style: Style, ink: str, paper: str) -> None:
    outcomes = {bar.outcome for bar in chart.bars}
    marks = dict.fromkeys(mark.what for mark in chart.marks)
    handles: list[Any] = [
        Patch(facecolor=FACES[name][0], hatch=FACES[name][1], edgecolor=paper, label=WORDS[name])
        for name in OUTCOMES
        if name in outcomes
    ]
    handles += [
        Line2D([], [], linestyle="", marker=MARKERS[what], color=ink, markersize=6, label=what)
        for what in MARKERS
        if what in marks
    ]
    figure.legend(
        handles=handles, loc="outside lower left", ncols=4, frameon=False, labelcolor=ink,
        fontsize=style.font, handlelength=1.6, columnspacing=1.4,
    )  # fmt: skip


def _drawable(text: str) -> str:
    """A character that the font lacks becomes a mark for it; matplotlib would warn about each."""
    return "".join(c if _has_glyph(c) else "\N{REPLACEMENT CHARACTER}" for c in text)


@cache
def _has_glyph(character: str) -> bool:
    font = font_manager.get_font(font_manager.findfont(font_manager.FontProperties()))
    return bool(font.get_char_index(ord(character)))

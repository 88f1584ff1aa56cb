"""The timeline as a figure, and as a table.

The figure is matplotlib's own object, never one of `pyplot`, which keeps every figure alive until
it is told to close it.
"""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Collection
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image  # matplotlib brings it

from labkit.errors import UsageError
from labkit.journal.chart import Chart, Source, read_chart
from labkit.journal.painter import SIZES, paint

__all__ = ["Timeline", "draw", "timeline", "timeline_table"]

COLOURS = 64


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
        # Not savefig, which comes to the same bytes and draws twice: a room waits for this picture.
        canvas: Any = FigureCanvasAgg(self)
        canvas.print_png(file, metadata={"Software": None})
        return file.getvalue()

    def small_png(self) -> bytes:
        """The same picture in 64 colours, in about a third of the bytes: for a panel, which sends
        a new one at each change."""
        canvas: Any = self.canvas
        canvas.draw()
        image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        file = io.BytesIO()
        image.quantize(COLOURS, dither=Image.Dither.NONE).save(file, "png", optimize=True)
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
    until: int | None = None,
) -> Timeline:
    """One lane for each run, a bar for each attempt, marks for recovery, error, deduplication and
    the run's end.

    `by` is "order" (of the entries) or "time" (seconds since the task's first entry). `style` is
    "notebook", or "room" for a projector. The background is white unless `dark`: a stored image
    cannot know the reader's theme. A run whose last entry is not an end "ended without an entry";
    "killed" and "at work" are what the caller knows, by run ids. With `until` it is the picture as
    it was after that seq. At most 1,000 lanes, and a sentence that says so. Raises UnknownTask, and
    UsageError for an unknown `by` or `style`, or a task that begins after `until`.
    """
    _require("by", by, ("order", "time"))
    _require("style", style, SIZES)
    chart = read_chart(journal, task, killed=killed, at_work=at_work, until=until)
    return draw(chart, by=by, style=style, dark=dark)


def draw(
    chart: Chart, *, by: str = "order", style: str = "notebook", dark: bool = False
) -> Timeline:
    """The figure of a chart; arguments as in `timeline`."""
    figure = Timeline(dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    figure.chart = chart
    paint(figure, chart, by=by, size=SIZES[style], dark=dark)
    return figure


def timeline_table(
    journal: Source,
    task: str,
    *,
    killed: Collection[str] = (),
    at_work: Collection[str] = (),
    until: int | None = None,
) -> pd.DataFrame:
    """One row for each bar and each mark, lane by lane. Arguments and errors as in `timeline`."""
    return _table(read_chart(journal, task, killed=killed, at_work=at_work, until=until))


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

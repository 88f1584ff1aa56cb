"""Small pictures: calls made again, the grid of crash points, and bars that a learner found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from labkit.errors import UsageError
from labkit.journal.figure import Timeline
from labkit.journal.laws import HELD
from labkit.journal.painter import FACES
from labkit.lab.trials import POINTS, Trial, place, tabulate

__all__ = ["Picture", "draw_bars", "draw_calls", "draw_grid", "draw_square"]

# The colours of the timelines. Each has a pattern and a word beside it, so none is the only sign.
NEEDED, AGAIN = "#0072B2", "#D55E00"
FONT = 10.5
BAR_COLUMNS = ("run_id", "step_idx", "begin_seq", "end_seq")


class Picture(Timeline):
    """Shown like a timeline: an image with its sentence as alternative text and as plain text."""

    def __init__(self, sentence: str, table: pd.DataFrame, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), dpi=100, facecolor="white", layout="constrained")
        FigureCanvasAgg(self)
        self._sentence, self._table = sentence, table

    @property
    def summary(self) -> str:
        return self._sentence

    @property
    def table(self) -> pd.DataFrame:
        return self._table


class Calls(NamedTuple):
    step: str
    needed: int
    again: int


def draw_calls(made: Mapping[str, int], calls_of: str = "tool calls") -> Picture:
    """A bar for each step: the one call that was needed, and the calls made again.

    `made` is the number of calls of each step, at least one; `calls_of` what stands below the axis.
    Raises UsageError.
    """
    if not made or min(made.values()) < 1:
        raise UsageError("lab.draw_calls: give each step with its number of calls, at least 1")
    calls = [Calls(step, 1, number - 1) for step, number in made.items()]
    again = sum(call.again for call in calls)
    sentence = f"{len(calls)} calls were needed, {len(calls) + again} were made: " + ", ".join(
        f"{call.step} {call.needed + call.again}" for call in calls
    )
    picture = Picture(f"{sentence}.", pd.DataFrame(calls).set_index("step"), 7.6, 2.3)
    axes = picture.add_subplot()
    rows = range(len(calls))
    axes.barh(rows, [c.needed for c in calls], color=NEEDED, edgecolor="white", label="needed")
    axes.barh(
        rows, [c.again for c in calls], left=[c.needed for c in calls], color=AGAIN,
        hatch="xx", edgecolor="white", label="made again",
    )  # fmt: skip
    axes.set_yticks(list(rows), [call.step for call in calls], fontsize=FONT)
    axes.invert_yaxis()  # the first step on top, as in the plan
    axes.set_xticks(range(max(made.values()) + 1))
    axes.set_xlabel(calls_of, fontsize=FONT)
    axes.spines[["top", "right"]].set_visible(False)
    picture.legend(loc="outside right upper", frameon=False, fontsize=FONT)
    return picture


def draw_grid(trials: Iterable[Trial]) -> Picture:
    """A square for each trial, crash points downwards, steps to the right, the judgement in it."""
    every = list({place(trial): trial for trial in trials}.values())
    if not every:
        raise UsageError("lab.draw_grid: give at least one trial")
    held = sum(trial.judgement == HELD for trial in every)
    sentence = f"Grid of {len(every)} kills: {held} held"
    sentence += "".join(
        f", {trial.crash_at} {trial.judgement}" for trial in every if trial.judgement != HELD
    )
    table = tabulate(every)
    picture = Picture(f"{sentence}.", table, 7.6, 3.2)
    axes = picture.add_subplot()
    for trial in every:
        point, idx = place(trial)
        words = f"{trial.judgement}\n{trial.count_reports()}"
        draw_square(axes, idx, POINTS.index(point), words, held=trial.judgement == HELD)
    axes.set_xlim(-0.5, len(table.columns) - 0.5)
    axes.set_ylim(len(POINTS) - 0.5, -0.5)
    axes.set_xticks(list(table.columns), [f"step {idx}" for idx in table.columns], fontsize=FONT)
    axes.set_yticks(range(len(POINTS)), POINTS, fontsize=FONT)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return picture


def draw_square(axes: Axes, x: int, y: int, words: str, *, held: bool) -> None:
    """One place of a grid, with the words in it."""
    colour, hatch = (NEEDED, "") if held else (AGAIN, "xx")
    corner = (x - 0.47, y - 0.44)
    axes.add_patch(Rectangle(corner, 0.94, 0.88, facecolor=colour, hatch=hatch, edgecolor="white"))
    # The words stand on white: a hatch behind letters makes both illegible.
    box = {"facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.35"}
    axes.text(x, y, words, ha="center", va="center", fontsize=FONT, bbox=box, parse_math=False)


def draw_bars(rows: pd.DataFrame) -> Picture:
    """A timeline of the rows and nothing else: one lane for each `run_id`, one bar for each row.

    It needs the columns run_id, step_idx, begin_seq, end_seq; where end_seq is missing, the bar is
    short and hatched. Raises UsageError.
    """
    if missing := [name for name in BAR_COLUMNS if name not in getattr(rows, "columns", ())]:
        raise UsageError(f"lab.draw_bars: give a table; it lacks {', '.join(missing)}")
    lanes = list(dict.fromkeys(map(str, rows.run_id)))
    sentence = f"Bars of {len(rows)} attempts in {len(lanes)} lanes"
    sentence += "".join(f"; run {lane}: {_bars_in_words(rows, lane)}" for lane in lanes)
    table = rows[list(BAR_COLUMNS)].reset_index(drop=True)
    picture = Picture(f"{sentence}.", table, 7.6, 0.7 + 0.62 * max(1, len(lanes)))
    axes = picture.add_subplot()
    for row in table.itertuples(index=False):
        _draw_bar(axes, lanes.index(str(row.run_id)), row)
    axes.set_yticks(range(len(lanes)), [f"run {lane}" for lane in lanes], fontsize=FONT)
    axes.set_ylim(max(1, len(lanes)) - 0.5, -0.8)  # the first run on top
    axes.use_sticky_edges = False
    axes.margins(x=0.06)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))
    axes.set_xlabel("order of entries (seq)", fontsize=FONT)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return picture


def _bars_in_words(rows: pd.DataFrame, lane: str) -> str:
    of_lane = rows[rows.run_id.astype("string") == lane]
    return ", ".join(
        f"step {row.step_idx} from {row.begin_seq}"
        + (" without an end" if pd.isna(row.end_seq) else f" to {row.end_seq}")
        for row in of_lane.itertuples()
    )


def _draw_bar(axes: Axes, lane: int, row: Any) -> None:
    is_open = bool(pd.isna(row.end_seq))
    length = 0.5 if is_open else max(0.5, row.end_seq - row.begin_seq)
    colour, hatch = FACES["no entry" if is_open else "finished"]
    axes.barh(lane, length, 0.46, row.begin_seq, color=colour, hatch=hatch, edgecolor="white")
    words = f"step {row.step_idx}{', no end' if is_open else ''}"
    axes.text(row.begin_seq, lane - 0.27, words, fontsize=FONT, va="bottom", parse_math=False)

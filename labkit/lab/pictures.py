"""The pictures that are no timeline: calls made again, and the grid of crash points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle

from labkit.errors import UsageError
from labkit.journal.figure import Timeline
from labkit.journal.laws import HELD
from labkit.lab.trials import POINTS, Trial, place, tabulate

__all__ = ["Picture", "draw_calls", "draw_grid"]

# The colours of the timelines. Each has a pattern and a word beside it, so none is the only sign.
NEEDED, AGAIN = "#0072B2", "#D55E00"
FONT = 10.5


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


def draw_calls(made: Mapping[str, int]) -> Picture:
    """A bar for each step: the one call that was needed, and the calls made again.

    `made` is the number of calls of each step, at least one. Raises UsageError.
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
    axes.set_xlabel("tool calls", fontsize=FONT)
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
        _square(axes, idx, POINTS.index(point), trial)
    axes.set_xlim(-0.5, len(table.columns) - 0.5)
    axes.set_ylim(len(POINTS) - 0.5, -0.5)
    axes.set_xticks(list(table.columns), [f"step {idx}" for idx in table.columns], fontsize=FONT)
    axes.set_yticks(range(len(POINTS)), POINTS, fontsize=FONT)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return picture


def _square(axes: Axes, x: int, y: int, trial: Trial) -> None:
    held = trial.judgement == HELD
    colour, hatch = (NEEDED, "") if held else (AGAIN, "xx")
    corner = (x - 0.47, y - 0.44)
    axes.add_patch(Rectangle(corner, 0.94, 0.88, facecolor=colour, hatch=hatch, edgecolor="white"))
    words = f"{trial.judgement}\n{trial.count_reports()}"
    # The words stand on white: a hatch behind letters makes both illegible.
    box = {"facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.35"}
    axes.text(x, y, words, ha="center", va="center", fontsize=FONT, bbox=box, parse_math=False)

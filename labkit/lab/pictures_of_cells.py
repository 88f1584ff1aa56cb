"""A picture of the crash matrix: a square for each trial, its word and what is outside in it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from labkit.errors import UsageError
from labkit.lab.cells import Outcome, summarize, tabulate
from labkit.lab.pictures import FONT, Picture, draw_square

__all__ = ["draw_cells"]

WIDTH = 14  # characters of a line in a square


def draw_cells(outcomes: Iterable[Outcome]) -> Picture:
    """Places downwards, steps to the right. Raises UsageError without an outcome."""
    every = list(outcomes)
    if not every:
        raise UsageError("draw_cells: give the outcomes of cells.run, at least one")
    table = tabulate(every)
    rows, columns = list(table.index), list(table.columns)
    words = [_in_square(each) for each in every]
    lines = 1 + max(text.count("\n") for text in words)
    width, height = 2.9 + 1.55 * len(columns), 0.6 + (0.22 + 0.2 * lines) * len(rows)
    picture = Picture(f"Grid of kills: {summarize(every)}", table, width, height)
    axes = picture.add_subplot()
    for each, text in zip(every, words, strict=True):
        at = columns.index(each.place.column), rows.index(each.place.row)
        draw_square(axes, *at, text, held=each.held)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)  # the first place on top
    axes.set_xticks(range(len(columns)), columns, fontsize=FONT)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(rows)), rows, fontsize=FONT)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return picture


def _in_square(outcome: Outcome) -> str:
    return "\n".join(textwrap.fill(line, WIDTH) for line in outcome.lines)

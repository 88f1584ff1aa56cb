"""The windows of a step: a run killed in each of them, and what was called again after it.

Between two neighbours of `runs.places` nothing happens, so a step has four windows: before its
attempt is stored, before its call, before its checkpoint is stored, and after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.patches import Rectangle

from labkit.errors import UsageError
from labkit.journal.bounded import LARGEST_LIST, read_text
from labkit.lab import verbs
from labkit.lab.pictures import AGAIN, FONT, NEEDED, Picture
from labkit.lab.process import NotReady
from labkit.lab.runs import Kill
from labkit.lab.scenarios import dispatch

__all__ = ["WINDOWS", "calls", "draw", "tabulate"]

WINDOWS = ("not begun", "attempt stored", "called", "checkpoint stored")
WAITS = "#CC79A7"
BEGUN = "the attempt of "


class Step(NamedTuple):
    """A step of the sweep: what its call is named by the witness, and its four kills."""

    name: str
    kills: Sequence[Kill]


def calls() -> dict[str, int]:
    """How often each call was made in this folder, as the witness has it, in order.

    Raises NotReady while nothing was called.
    """
    text = read_text(verbs.current_folder().path / dispatch.CALLS, LARGEST_LIST)
    if text is None:
        raise NotReady("nothing was called in this folder; run the cell that starts a run first")
    return dict(Counter(text.splitlines()))


def tabulate(kills: Sequence[Kill]) -> pd.DataFrame:
    """One row for each step, one column for each window: the calls of that step in both processes.

    `kills` is what `runs.sweep` gives. Raises UsageError for less.
    """
    rows = {step.name: [_in_words(step, kill) for kill in step.kills] for step in _steps(kills)}
    return pd.DataFrame.from_dict(rows, "index", columns=WINDOWS).rename_axis("step")


def draw(kills: Sequence[Kill]) -> Picture:
    """That table as squares, each with its word in it."""
    table = tabulate(kills)
    words = [str(word) for row in table.to_numpy() for word in row]
    again, waits = (sum(mark in word for word in words) for mark in ("2 calls", "waits"))
    sentence = (
        f"{len(table)} steps, killed in {len(WINDOWS)} windows each: {len(words)} kills; "
        f"called again {again}, waits {waits}, called once {len(words) - again - waits}."
    )
    picture = Picture(sentence, table, 8.4, 0.8 + 0.45 * len(table))
    axes = picture.add_subplot()
    for y, row in enumerate(table.to_numpy()):
        for x, word in enumerate(row):
            colour, hatch = _face(str(word))
            axes.add_patch(
                Rectangle((x - 0.47, y - 0.43), 0.94, 0.86, facecolor=colour, hatch=hatch,
                          edgecolor="white")
            )  # fmt: skip
            box = {"facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.25"}
            axes.text(x, y, word, ha="center", va="center", fontsize=FONT, bbox=box)
    axes.set_xlim(-0.5, len(WINDOWS) - 0.5)
    axes.set_ylim(len(table) - 0.5, -0.5)  # the first step on top
    axes.set_xticks(range(len(WINDOWS)), WINDOWS, fontsize=FONT)
    axes.set_yticks(range(len(table)), list(table.index), fontsize=FONT)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return picture


def _steps(kills: Sequence[Kill]) -> list[Step]:
    """The kill before an attempt is stored, and the three after it, for each step."""
    begun = [n for n, kill in enumerate(kills) if kill.place.startswith(BEGUN)]
    if not begun or begun[-1] + len(WINDOWS) > len(kills):
        raise UsageError("give what runs.sweep() returns: a kill at each place, in their order")
    names = dict.fromkeys(name for kill in kills for name in kill.calls)
    order = zip(begun, names, strict=True)  # each call is made by one step, in their order
    return [Step(name, kills[n : n + len(WINDOWS)]) for n, name in order]


def _in_words(step: Step, kill: Kill) -> str:
    number = kill.calls.count(step.name)
    words = f"{number} call{'' if number == 1 else 's'}"
    return words if kill.ends == "SUCCEEDED" else f"waits, {words}"


def _face(word: str) -> tuple[str, str]:
    if word.startswith("waits"):
        return WAITS, "//"
    return (AGAIN, "xx") if word == "2 calls" else (NEEDED, "")

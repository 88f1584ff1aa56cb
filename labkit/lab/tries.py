"""How often each step was tried, and what became of each try, as a picture."""

from __future__ import annotations

import pandas as pd
from matplotlib.ticker import MaxNLocator

from labkit.errors import UsageError
from labkit.journal.painter import FACES
from labkit.lab.pictures import FONT, Picture

__all__ = ["draw_attempts"]

WORDS = {"finished": "finished", "error": "error", "no entry": "no entry of its own run"}
NEEDED = ("task_id", "step_idx", "step", "run_id", "ended", "ended_by")


def draw_attempts(attempts: pd.DataFrame) -> Picture:
    """A bar for each step that was started: its attempts, by how their own run ended them.

    `attempts` is what `Journal.attempts()` gives. Raises UsageError for another table.
    """
    if not isinstance(attempts, pd.DataFrame) or not set(NEEDED) <= set(attempts.columns):
        raise UsageError("lab.draw_attempts: give what lab.journal().attempts() returns")
    table = _table(attempts)
    picture = Picture(_sentence(table), table, 7.6, 0.8 + 0.42 * max(1, len(table)))
    axes, left = picture.add_subplot(), pd.Series(0, table.index)
    for outcome, words in WORDS.items():
        colour, hatch = FACES[outcome]
        axes.barh(
            range(len(table)), table[outcome], left=left, color=colour, hatch=hatch,
            edgecolor="white", label=words,
        )  # fmt: skip
        left += table[outcome]
    axes.set_yticks(range(len(table)), list(table.index), fontsize=FONT)
    axes.invert_yaxis()  # the first step on top, as in the plan
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("attempts", fontsize=FONT)
    axes.spines[["top", "right"]].set_visible(False)
    picture.legend(loc="outside right upper", frameon=False, fontsize=FONT)
    return picture


def _table(attempts: pd.DataFrame) -> pd.DataFrame:
    own = attempts.ended_by.fillna("") == attempts.run_id.fillna("")
    outcome = attempts.ended.astype("string").replace("interrupted", "error")
    words = [f"{a.task_id} {a.step_idx} {a.step}" for a in attempts.itertuples()]
    step = pd.Series(words, attempts.index, dtype="string", name="step")
    counts = pd.crosstab(step, outcome.where(own, "no entry"))
    return counts.reindex(index=step.unique(), columns=list(WORDS), fill_value=0)


def _sentence(table: pd.DataFrame) -> str:
    parts = [
        f"{step} " + ", ".join(f"{number} {word}" for word, number in row.items() if number)
        for step, row in zip(table.index, table.to_dict("records"), strict=True)
    ]
    return f"{int(table.to_numpy().sum())} attempts: {'; '.join(parts)}."

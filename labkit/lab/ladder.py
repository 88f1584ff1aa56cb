"""Five publishers against four accidents, as a table and as a picture."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pandas as pd
from matplotlib.patches import Rectangle

from labkit.errors import LabkitError
from labkit.files import publish_once
from labkit.journal.laws import HELD
from labkit.lab.pictures import AGAIN, FONT, NEEDED, Picture
from labkit.lab.publishing import (
    OTHER,
    REPORT,
    Ask,
    Function,
    Made,
    Publish,
    folder_with,
    make,
    of_labkit,
    visible,
)
from labkit.lab.scenarios import publishers

__all__ = ["PUBLISHERS", "climb", "draw"]

PUBLISHERS: tuple[Publish, ...] = (
    publishers.append, publishers.in_place, publishers.by_rename, publishers.by_link, publish_once,
)  # fmt: skip
AT_ONCE = 2
NEVER = 10_000  # nobody makes so many calls: a kill that is asked for there kills nobody


def climb(*, kill: bool = True) -> pd.DataFrame:
    """Each publisher against each accident: "held", or what went wrong.

    Without `kill` nobody is killed, as with a hook gone blunt. Raises LabkitError if a kill was
    asked for and did not come.
    """
    functions = [of_labkit(publish) for publish in PUBLISHERS]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rows = list(pool.map(lambda function: _accidents(function, kill), functions))
    return pd.DataFrame(rows, index=[function.name for function in functions])


def draw(table: pd.DataFrame) -> Picture:
    """A square for each cell of that table, with its word in it."""
    held = {name: int((row == HELD).sum()) for name, row in table.iterrows()}
    counted = ", ".join(f"{name} {number}" for name, number in held.items())
    sentence = f"{len(table)} publishers, {len(table.columns)} accidents each; held: {counted}."
    picture = Picture(sentence, table, 8.4, 3.4)
    axes = picture.add_subplot()
    for y, row in enumerate(table.to_numpy()):
        for x, word in enumerate(row):
            colour, hatch = (NEEDED, "") if word == HELD else (AGAIN, "xx")
            axes.add_patch(
                Rectangle((x - 0.47, y - 0.44), 0.94, 0.88, facecolor=colour, hatch=hatch,
                          edgecolor="white")
            )  # fmt: skip
            box = {"facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.3"}
            axes.text(x, y, word, ha="center", va="center", fontsize=FONT, bbox=box)
    axes.set_xlim(-0.5, len(table.columns) - 0.5)
    axes.set_ylim(len(table) - 0.5, -0.5)  # the first publisher on top
    axes.set_xticks(range(len(table.columns)), list(table.columns), fontsize=FONT)
    axes.set_yticks(range(len(table)), list(table.index), fontsize=FONT)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return picture


def _accidents(function: Function, kill: bool) -> dict[str, str]:
    """Four accidents. The last is no trial: it is read from the order of the calls."""
    after, torn, taken = folder_with(""), folder_with(""), folder_with(OTHER)
    asks = [
        Ask(torn, die_at=0 if kill else NEVER, half=True),
        Ask(taken),
        Ask(after, die_after=kill),
    ]
    # Who saw the call return records it, and makes no other.
    half, other, *made = make(function, [*asks, Ask(after)] if kill else asks)
    if kill and not (half.killed and made[0].killed):
        raise LabkitError(f"{function.name} was not killed, so this table would prove nothing")
    return {
        "killed after it": _doubled(made[-1]),
        "killed in its write": _torn(half),
        "the name is taken": HELD if OTHER in other.files.values() else "replaced",
        "the power fails": _lost(made[0]),
    }


def _doubled(made: Made) -> str:
    number = sum(text.count(REPORT) for text in visible(made.files).values())
    return HELD if number == 1 else f"{number} reports"


def _torn(made: Made) -> str:
    whole = all(REPORT in text for text in visible(made.files).values())
    return HELD if whole else "half a report"


def _lost(made: Made) -> str:
    """What no call has forced to the disk before the function returned."""
    if "fsync file" not in made.calls:
        return "content lost"
    return HELD if "fsync folder" in made.calls else "name lost"

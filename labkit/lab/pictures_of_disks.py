"""Pictures of what a power cut leaves: sectors, calls that wait for an fsync, agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.patches import Rectangle

from labkit.journal.laws import HELD
from labkit.lab.pictures import AGAIN, FONT, NEEDED, Picture

if TYPE_CHECKING:
    from labkit.lab.images import Sight

__all__ = ["draw_sectors", "draw_table", "draw_waits"]

GREY = "#BBBBBB"
FACES = {"kept": (NEEDED, ""), "zeros": (AGAIN, "xx"), "missing": ("white", "")}


def draw_sectors(sights: Sequence[Sight]) -> Picture:
    """A row for each disk, a square for each sector of the report, a word in it."""
    rows = [sight.sectors or ("missing",) * 3 for sight in sights]
    labels = [_label(sight) for sight in sights]
    whole = sum(set(row) == {"kept"} for row in rows)
    sentence = f"{len(rows)} disks after the report was acknowledged, {whole} with all of it: "
    sentence += "; ".join(
        f"{label}{'' if row[0] == row[-1] and len(set(row)) == 1 else ' ' + ' '.join(row)}"
        for label, row in zip(labels, rows, strict=True)
    )
    columns = [f"sector {n}" for n in range(len(rows[0]))] if rows else []
    table = pd.DataFrame(rows, index=labels, columns=columns)
    picture = Picture(f"{sentence}.", table, 7.6, 0.7 + 0.34 * max(1, len(rows)))
    axes = picture.add_subplot()
    for y, row in enumerate(rows):
        for x, word in enumerate(row):
            colour, hatch = FACES[word]
            edge = GREY if word == "missing" else "white"
            corner = (x - 0.47, y - 0.42)
            axes.add_patch(
                Rectangle(corner, 0.94, 0.84, facecolor=colour, hatch=hatch, edgecolor=edge)
            )
            box = {"facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.15"}
            axes.text(x, y, word, ha="center", va="center", fontsize=FONT - 1.5, bbox=box)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(columns)), columns, fontsize=FONT)
    axes.set_yticks(range(len(rows)), labels, fontsize=FONT)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return picture


def _label(sight: Sight) -> str:
    return sight.finds if len(set(sight.sectors)) <= 1 and "zeros" not in sight.sectors else "torn"


def draw_waits(ops: Sequence[str], settled: Sequence[int | None]) -> Picture:
    """A bar for each call that changes the disk, up to the fsync after which it is there for good.

    A hatched bar has no such fsync: it is only in memory when the program says that it is done.
    """
    changes = [at for at, op in enumerate(ops) if not op.startswith(("fsync", "says"))]
    words = [
        f"{ops[at]} {'never' if (by := settled[at]) is None else f'by call {by}'}" for at in changes
    ]
    sentence = f"{len(changes)} calls and what forced each to the disk: {'; '.join(words)}."
    table = pd.DataFrame({"call": list(ops), "forced by": pd.array(settled, dtype="Int64")})
    picture = Picture(sentence, table, 7.6, 0.7 + 0.36 * max(1, len(ops)))
    axes = picture.add_subplot()
    for at, op in enumerate(ops):
        if at in changes:
            by = settled[at]
            colour, hatch = (AGAIN, "xx") if by is None else (NEEDED, "")
            end = len(ops) if by is None else by
            axes.barh(at, end - at, 0.6, at, color=colour, hatch=hatch, edgecolor="white")
        elif op.startswith("fsync"):
            axes.plot([at], [at], "D", color="black", markersize=6)
        else:
            axes.axvline(at, color="black", linestyle=":")
    axes.set_yticks(range(len(ops)), [f"{at}  {op}" for at, op in enumerate(ops)], fontsize=FONT)
    axes.set_ylim(len(ops) - 0.5, -0.7)
    axes.set_xticks(range(len(ops)))
    axes.set_xlabel("number of the call; a bar: only in memory", fontsize=FONT)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return picture


def draw_table(table: pd.DataFrame, what: str) -> Picture:
    """A square for each cell with its word; whatever is not held is hatched."""
    rows = [
        f"{name}: " + ", ".join(f"{column} {word}" for column, word in row.items())
        for name, row in table.iterrows()
    ]
    picture = Picture(f"{what}. {'; '.join(rows)}.", table, 7.6, 0.7 + 0.55 * len(table))
    axes = picture.add_subplot()
    for y, row in enumerate(table.to_numpy()):
        for x, word in enumerate(row):
            colour, hatch = (NEEDED, "") if word == HELD else (AGAIN, "xx")
            corner = (x - 0.48, y - 0.44)
            axes.add_patch(
                Rectangle(corner, 0.96, 0.88, facecolor=colour, hatch=hatch, edgecolor="white")
            )
            box = {"facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.3"}
            axes.text(x, y, word, ha="center", va="center", fontsize=FONT, bbox=box)
    axes.set_xlim(-0.5, len(table.columns) - 0.5)
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.set_xticks(range(len(table.columns)), list(table.columns), fontsize=FONT)
    axes.set_yticks(range(len(table)), list(table.index), fontsize=FONT)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return picture

"""What an original has become since a copy was handed out: the cells, by heading and number.

A copy carries a mark for each cell that it was handed out with. So a learner's own changes are told
from those of the original, and what the learner has already, or has deleted too, is no news.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from labkit.journal.reading import plain

__all__ = ["CELLS", "marks", "news"]

CELLS = "labkit_handed_out_cells"  # in a copy's metadata: "ID HASH" for each cell
LINES_MAX = 6

NotebookJSON = dict[str, Any]


class Cell(NamedTuple):
    """One cell. `number` counts all cells from 1; `under` is the heading above it, or its own."""

    mark: str
    number: int
    under: str


def marks(notebook: NotebookJSON) -> list[str]:
    """What a copy must carry so that `news` can be told later."""
    return [f"{name} {cell.mark}" for name, cell in _cells(notebook).items()]


def news(copy: NotebookJSON, original: NotebookJSON) -> list[str]:
    """A line for each heading under which the original has changed, of long lists the first few."""
    mine, new = _cells(copy), _cells(original)
    given = _given(copy)
    before = given or {name: cell.mark for name, cell in mine.items()}
    said = _by_heading(_changes(before, mine, new))
    if not said:
        return ["cells were moved, no text is new"]
    if not given:
        said.insert(0, "(an older labkit made this copy, so what you changed is in this list too)")
    more = len(said) - LINES_MAX
    return said if more <= 1 else [*said[:LINES_MAX], f"and under {more} more headings"]


def _changes(
    before: dict[str, str], mine: dict[str, Cell], new: dict[str, Cell]
) -> Iterator[tuple[str, Cell]]:
    for name, cell in new.items():
        if name in mine and mine[name].mark == cell.mark:
            continue
        if name not in before:
            yield "added", cell
        elif before[name] != cell.mark:
            yield "changed", cell
    for name, cell in mine.items():
        if name in before and name not in new:
            yield "of your copy removed", cell


def _by_heading(changes: Iterator[tuple[str, Cell]]) -> list[str]:
    found: dict[str, dict[str, list[int]]] = {}
    for how, cell in changes:
        found.setdefault(cell.under, {}).setdefault(how, []).append(cell.number)
    return [
        f'under "{under}": ' + ", ".join(f"{_numbers(cells)} {how}" for how, cells in kinds.items())
        for under, kinds in found.items()
    ]


def _numbers(numbers: list[int]) -> str:
    """[4] is "cell 4", [4, 5, 6, 9] is "cells 4-6, 9"."""
    breaks = [n for n, (a, b) in enumerate(pairwise(numbers), start=1) if b != a + 1]
    runs = [numbers[i:j] for i, j in pairwise([0, *breaks, len(numbers)])]
    shown = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"cell{'s' if len(numbers) > 1 else ''} {shown}"


def _cells(notebook: NotebookJSON) -> dict[str, Cell]:
    """By id; a cell without one, as another program may write it, is passed over."""
    found, under = {}, "the top"
    for number, cell in enumerate(notebook["cells"], start=1):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and (heading := re.search("^#+ (.+)", source, re.M)):
            under = plain(heading[1], 60)
        if isinstance(cell.get("id"), str):
            text = json.dumps([cell["cell_type"], source])
            mark = hashlib.sha256(text.encode()).hexdigest()[:16]
            found[cell["id"]] = Cell(mark, number, under)
    return found


def _given(copy: NotebookJSON) -> dict[str, str]:
    """The marks it came with; none in a copy of an earlier labkit, or after somebody's edit."""
    lines = copy["metadata"].get(CELLS)
    texts = [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
    return {name: mark for name, _, mark in (text.rpartition(" ") for text in texts)}

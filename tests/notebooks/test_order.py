"""Cells in the wrong order do no damage: each says what is missing, then all run as before."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from labkit.lab import content, regenerate
from labkit.lab.content import Notebook
from labkit.lab.places import originals

EACH = [
    pytest.param(entry, id=entry.number, marks=[] if entry.number == "01" else pytest.mark.proof)
    for entry in content.notebooks()
]
# A verb says which cell comes first; a variable that a cell above makes is not there yet.
ONE_LINE = {"NotReady", "UsageError", "NotFound", "NameError"}
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize("entry", EACH)
def test_backwards_then_forwards_in_one_kernel(entry: Notebook, tmp_path: Path) -> None:
    original = nbformat.read(originals() / entry.file, as_version=4)
    code = [cell for cell in original.cells if cell.cell_type == "code"]
    # As a learner does who opens it in the middle: lab is imported, nothing has begun.
    imported = nbformat.v4.new_code_cell("from labkit import lab")
    wrong = [imported, *code[::-1], code[0], *code[:0:-1]]  # before begin, then after it
    both = copy.deepcopy(original)
    both.cells = [copy.deepcopy(cell) for cell in [*wrong, *code]]
    for number, cell in enumerate(both.cells):
        cell.id = f"cell-{number}"
    regenerate.execute(both, tmp_path, allow_errors=True)
    backwards, forwards = both.cells[: len(wrong)], both.cells[len(wrong) :]
    named = {output.ename for cell in backwards for output in errors(cell)}
    assert named <= ONE_LINE
    assert "NotReady" in named  # else the cells were not run backwards
    for before, after in zip(code, forwards, strict=True):
        assert list(shown(after)) == list(shown(before)), before.source


def errors(cell: Any) -> list[Any]:
    return [output for output in cell.outputs if output.output_type == "error"]


def shown(cell: Any) -> Iterator[str]:
    """What nbval compares."""
    for output in cell.outputs:
        if output.output_type == "error":
            yield f"{output.ename}: {output.evalue}"
        yield from (output[name] for name in ("text",) if name in output)
        yield output.get("data", {}).get("text/plain", "")

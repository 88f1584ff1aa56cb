"""A notebook in which every exercise is solved: run in a kernel, every check holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from labkit.lab import content, regenerate
from labkit.lab.content import Notebook
from labkit.lab.places import originals
from labkit.lab.solutions import read_answers

# `make test` checks every answer in this process (tests/lab); a kernel for one is enough.
EACH = [
    pytest.param(entry, id=entry.number, marks=[] if entry.number == "00" else pytest.mark.proof)
    for entry in content.lessons()
]
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize("entry", EACH)
def test_solved_every_check_holds_and_nothing_else_changes(entry: Notebook, tmp_path: Path) -> None:
    text = (originals() / entry.file).read_text(encoding="utf-8")
    solved = nbformat.reads(text, as_version=4)
    exercises = content.exercises(entry.number)
    solve(solved, entry)
    regenerate.execute(solved, tmp_path)
    printed = {cell.id: printed_by(cell) for cell in solved.cells}
    for exercise in exercises:
        assert printed[exercise.id.replace(".", "-")].startswith(f"{exercise.id}  held")
    assert (
        f"Exercises: {len(exercises)} of {len(exercises)} held." in printed[f"{entry.number}-end"]
    )
    for cell in json.loads(text)["cells"]:  # an answer is the learner's; the rest stays as it was
        if not cell["id"].startswith((f"{entry.number}-ex", f"{entry.number}-end")):
            assert printed_by(cell) == printed[cell["id"]], cell["id"]


def solve(notebook: Any, entry: Notebook) -> None:
    for exercise in content.exercises(entry.number):
        (cell,) = (c for c in notebook.cells if c.id == exercise.id.replace(".", "-"))
        check = cell.source.splitlines()[-1]
        cell.source = f"{read_answers(exercise.id).solution}\n\n\n{check}"


def printed_by(cell: Any) -> str:
    return "".join("".join(output.get("text", "")) for output in cell.get("outputs", []))

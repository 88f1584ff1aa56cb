"""A cell that is run as it was handed out is nobody's try, and nothing of it is kept."""

import json
import linecache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labkit import lab
from labkit.lab import content, places, progress, shipped
from labkit.lab.shipped import is_as_shipped
from labkit.lab.solutions import read_answers


def given(name: str, source: str) -> object:
    """What a cell hands to the check, with a source that can be read as in a kernel."""
    file = f"<cell {abs(hash(source))}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    cell: dict[str, Any] = {"lab": SimpleNamespace(check=lambda *_: None)}
    exec(compile(source, file, "exec"), cell)
    return cell[name]


@pytest.mark.skipif(places.checkout() is None, reason="the originals are not here")
@pytest.mark.parametrize("exercise", content.exercises(), ids=lambda exercise: exercise.id)
def test_a_cell_as_it_was_handed_out_is_no_try(exercise: content.Exercise) -> None:
    """An exercise to repair comes with code that runs, and "Run All" runs it."""
    file = places.originals() / content.notebook(exercise.id[:2]).file
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    source = "".join(next(c["source"] for c in cells if c["id"] == exercise.id.replace(".", "-")))
    answers = read_answers(exercise.id)
    if exercise.kind == "repair":
        assert is_as_shipped(exercise.id, given(exercise.name, source))
        assert is_as_shipped(exercise.id, given(exercise.name, f"# a comment\n{source}"))
    assert not is_as_shipped(exercise.id, given(exercise.name, answers.solution))


REPAIR = "def to_do(steps):\n    # mend this: ...\n    return len(steps)"


def small_original(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    cell = {"id": "02-ex2", "source": f"import os\n{source}\n\nlab.check()".splitlines(True)}
    file = folder / content.notebook("02").file
    file.write_text(json.dumps({"cells": [{"id": "other", "source": ["x"]}, cell]}), "utf-8")
    monkeypatch.setattr(shipped, "originals", lambda: folder)


@pytest.mark.parametrize(
    ("source", "same"),
    [
        (REPAIR, True),
        (REPAIR.replace("# mend", "# I shall mend"), True),
        (REPAIR.replace("len(steps)", "(len( steps ))"), True),
        (REPAIR.replace("len(steps)", "len(steps) + 1"), False),
        (REPAIR.replace("steps", "rows"), False),
    ],
)
def test_a_function_is_compared_by_what_it_does(
    source: str, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_original(tmp_path, monkeypatch, REPAIR)
    assert is_as_shipped("02.ex2", given("to_do", source)) is same


@pytest.mark.parametrize(
    ("answer", "same"),
    [("SELECT 1", True), ("SELECT 2", False), ("SELECT", False), (None, False), (1, False)],
)
def test_a_value_is_compared_whole(
    answer: object, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_original(tmp_path, monkeypatch, 'to_do = """SELECT 1"""')
    assert is_as_shipped("02.ex2", answer) is same


@pytest.mark.parametrize("source", ["", "def other(): ...", "def to_do(:"])
def test_without_a_cell_that_can_be_read_everything_was_tried(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_original(tmp_path, monkeypatch, source)
    assert not is_as_shipped("02.ex2", given("to_do", REPAIR))


def is_odd() -> None: ...


class Odd:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError


@pytest.mark.parametrize(
    "answer",
    [Odd(), [Odd()], {"unsafe, before_effect:2": Odd()}, is_odd, lambda: 1, None, 5, "query", {}],
)
@pytest.mark.parametrize("exercise_id", ["02.ex1", "05.nope", "77.ex1", "03.ex3", "06.ex2"])
def test_an_odd_answer_is_not_as_shipped(exercise_id: str, answer: object) -> None:
    assert not is_as_shipped(exercise_id, answer)


@pytest.mark.proof
@pytest.mark.skipif(places.checkout() is None, reason="the originals are not here")
def test_a_check_of_what_was_handed_out_records_nothing(begun: Path) -> None:
    file = places.originals() / content.notebook("05").file
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    source = "".join(next(cell["source"] for cell in cells if cell["id"] == "05-ex2"))
    lab.check("05.ex2", given("publish", source))
    assert progress.checks() == {}
    lab.check("05.ex2", given("publish", source.replace('"a"', '"w"')))
    assert progress.checks()["05.ex2"]["tries"] == 1

"""Each exercise fails as shipped, its solution holds, and a wrong answer hears why it is wrong."""

from __future__ import annotations

import json
import linecache
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from labkit import lab
from labkit.lab import content
from labkit.lab.checks import Judgement
from labkit.lab.content import Exercise
from labkit.lab.places import originals
from labkit.lab.solutions import Wrong, read_answers
from labkit.lab.solutions import __file__ as solutions_file

ALL = content.exercises()
# `make test` tries these, one of each notebook and not the slowest; a check takes seconds, since it
# kills agents, and `make proof` tries all.
QUICK = {"06": "06.ex3", "08": "08.ex2", "09": "09.ex2"}
SAMPLE = {QUICK.get(entry.number, f"{entry.number}.ex1") for entry in content.lessons()}
KINDS = {"predict", "repair", "extend"}
each = pytest.mark.parametrize("exercise", ALL, ids=lambda exercise: exercise.id)
sample = pytest.mark.parametrize(
    "exercise",
    [
        pytest.param(each, id=each.id, marks=[] if each.id in SAMPLE else pytest.mark.proof)
        for each in ALL
    ],
)


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))


def answer(exercise: Exercise, source: str) -> Judgement:
    """The verdict on what a learner types into the cell, as IPython would run it."""
    file = f"<answer to {exercise.id}, {abs(hash(source))}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    cell: dict[str, Any] = {"lab": lab}
    exec(compile(source, file, "exec"), cell)
    return lab.check(exercise.id, cell[exercise.name])


def shipped(exercise: Exercise) -> str:
    """The cell of the original without its last line, which asks for the check."""
    file = originals() / content.notebook(exercise.id[:2]).file
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    source = next(c["source"] for c in cells if c["id"] == exercise.id.replace(".", "-"))
    return "".join(source[:-1])


@sample
def test_it_fails_as_shipped(exercise: Exercise) -> None:
    """All of them fail in the originals too, and nbval compares what they say."""
    lab.begin(exercise.id[:2])
    assert answer(exercise, shipped(exercise)).verdict in ("broken", "not judged")


@sample
def test_its_solution_holds_and_wrong_answers_hear_why(
    exercise: Exercise, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first of the wrong answers; `make proof` tries them all."""
    answers = read_answers(exercise.id)
    lab.begin(exercise.id[:2])
    capsys.readouterr()
    judgement = answer(exercise, answers.solution)
    assert judgement.verdict == "held", capsys.readouterr().out
    assert judgement.rule
    assert len(reject(exercise, answers.wrong[:1])) == 1


@pytest.mark.proof
@pytest.mark.timeout(300)
@each
def test_every_wrong_answer_hears_why(exercise: Exercise) -> None:
    lab.begin(exercise.id[:2])
    wrong = read_answers(exercise.id).wrong
    assert len(reject(exercise, wrong)) == len(wrong) >= 2


def reject(exercise: Exercise, answers: Sequence[Wrong]) -> set[str]:
    """Why each of them is wrong."""
    reasons = set()
    for wrong in answers:
        judgement = answer(exercise, wrong.source)
        reasons.add(judgement.reason)
        assert judgement.verdict in ("broken", "not judged"), wrong.source
        assert wrong.says in " ".join(judgement.reason.split()), judgement
    return reasons


@each
def test_it_has_minutes_a_kind_and_three_hints(exercise: Exercise) -> None:
    assert exercise.kind in KINDS
    assert 1 <= exercise.minutes <= 15
    assert exercise.asks
    assert len(exercise.hints) == 3


def test_each_notebook_has_two_or_three_exercises_and_each_answer_an_exercise() -> None:
    for notebook in content.lessons():
        assert len(content.exercises(notebook.number)) in (2, 3), notebook.number
    files = {path.stem for path in Path(solutions_file).parent.glob("[0-9]*.py")}
    assert files == {exercise.id.replace(".", "_") for exercise in ALL}

"""What `content.toml` says: the notebooks in order, their minutes, questions and exercises."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from labkit.errors import NotFound

__all__ = [
    "Exercise",
    "Notebook",
    "Question",
    "exercise",
    "exercises",
    "lessons",
    "notebook",
    "notebooks",
    "question",
    "questions",
]


class Notebook(NamedTuple):
    """One notebook. `number` has two digits and stands first in the file's name.

    `scenario` names the folder of `labkit.lab.scenarios` with its plan and its notes. `minutes` is
    0 where somebody uses it for as long as they like: it asks nothing and has no exercise.
    """

    number: str
    slug: str
    title: str
    minutes: int
    scenario: str = "notes"

    @property
    def file(self) -> str:
        return f"{self.number}-{self.slug}.ipynb"

    @property
    def length(self) -> str:
        """Its minutes, as a table shows them."""
        return str(self.minutes or "-")


class Question(NamedTuple):
    """One prediction. `options` maps a letter to what it claims; `answer` is one of the letters."""

    id: str
    options: dict[str, str]
    answer: str
    why: str


class Exercise(NamedTuple):
    """One exercise. `name` is what the learner's cell defines and hands to the check.

    `kind` is "predict", "repair" or "extend"; `asks` says in one line what is to be done; of the
    three hints the last explains the solution.
    """

    id: str
    kind: str
    minutes: int
    name: str
    asks: str
    hints: tuple[str, str, str]


def notebooks() -> list[Notebook]:
    """All notebooks, in reading order."""
    return [Notebook(**entry) for entry in _content()["notebook"]]


def lessons() -> list[Notebook]:
    """Those that are worked through, with predictions and exercises."""
    return [entry for entry in notebooks() if entry.minutes]


def notebook(number: str | int) -> Notebook:
    """The notebook of that number; 2 is 02. Raises NotFound."""
    for entry in notebooks():
        if str(number) in (entry.number, entry.number.removeprefix("0")):
            return entry
    known = ", ".join(entry.number for entry in notebooks())
    raise NotFound(f"there is no notebook {number!r}; choose one of {known}")


def questions(number: str) -> list[Question]:
    """The questions of one notebook, in its order."""
    return [entry for entry in _all_questions() if entry.id.startswith(f"{number}.")]


def question(question_id: str) -> Question:
    """The question of that id, such as "05.q1". Raises NotFound."""
    for entry in _all_questions():
        if entry.id == question_id:
            return entry
    known = ", ".join(entry.id for entry in _all_questions())
    raise NotFound(f"there is no question {question_id!r}; choose one of {known}")


def exercises(number: str = "") -> list[Exercise]:
    """The exercises of one notebook, in its order, or of all."""
    every = [
        Exercise(**{**entry, "hints": tuple(entry["hints"])})
        for entry in _content().get("exercise", [])
    ]
    return [entry for entry in every if entry.id.startswith(number and f"{number}.")]


def exercise(exercise_id: str) -> Exercise:
    """The exercise of that id, such as "05.ex1". Raises NotFound."""
    for entry in exercises():
        if entry.id == exercise_id:
            return entry
    known = ", ".join(entry.id for entry in exercises())
    raise NotFound(f"there is no exercise {exercise_id!r}; choose one of {known}")


def _all_questions() -> list[Question]:
    return [Question(**entry) for entry in _content()["question"]]


@cache
def _content() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads((files("labkit.lab") / "content.toml").read_text(encoding="utf-8"))

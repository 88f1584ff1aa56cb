"""Predict, then look: an answer is recorded before the run and laid beside what happened.

A slip of the learner is told in one line and is no error: "Run All" must come to its end.
"""

from __future__ import annotations

import textwrap

from labkit.errors import UsageError
from labkit.lab import content, progress
from labkit.lab.content import Question
from labkit.lab.process import NotReady

__all__ = ["NO_ANSWER", "Predictions"]

NO_ANSWER = "?"
COLUMNS = 80


class Predictions:
    """The answers given in this notebook since it began.

    `reveal` shows what was predicted in this kernel, not what an earlier one recorded: the
    original, which answers nothing, then prints the same for every learner.
    """

    def __init__(self, number: str) -> None:
        self._number = number
        self._given: dict[str, str] = {}  # before the reveal, where it is a prediction
        self._late: dict[str, str] = {}
        self._revealed: set[str] = set()

    def predict(self, question_id: str, letter: str) -> None:
        """A letter that is no option counts as no answer. Raises NotFound for the question."""
        asked = self._question(question_id)
        answer = str(letter).strip().lower()
        if answer not in asked.options:
            slip = "no answer yet" if answer == NO_ANSWER else f"{letter!r} is no option"
            print(f'{question_id}: {slip}. Put {_letters(asked)} for "?", or go on without.')
            answer = NO_ANSWER
        if question_id in self._revealed and answer != self._given[question_id]:
            self._answer_late(asked, answer)
            return
        if answer != NO_ANSWER:
            progress.record_prediction(question_id, answer)
            print(f"{question_id}: you predict {answer}, {asked.options[answer]}.")
        self._given[question_id] = answer

    def _answer_late(self, asked: Question, answer: str) -> None:
        """Shown by the next reveal, but no prediction: it is neither counted nor stored."""
        if answer != NO_ANSWER:
            self._late[asked.id] = answer
            print(f"{asked.id}: {answer}, {asked.options[answer]}, answered after the reveal.")

    def reveal(self, question_id: str, observed: object) -> None:
        """Raises NotReady before the prediction or the run, and for what the lab denies."""
        asked = self._question(question_id)
        if question_id not in self._given:
            raise NotReady(f'run the cell with lab.predict("{question_id}", ...) first')
        _require_observed(asked, observed)
        self._revealed.add(question_id)
        print(f"{question_id}  predicted  {_option(asked, self._given[question_id])}")
        if late := self._late.get(question_id):
            print(f"       {_option(asked, late)}  (answered after the reveal)")
        print(f"       observed   {_option(asked, asked.answer)}")
        print(textwrap.fill(" ".join(asked.why.split()), COLUMNS))

    def summary(self) -> str:
        asked = content.questions(self._number)
        answered = sum(self._given.get(entry.id, NO_ANSWER) != NO_ANSWER for entry in asked)
        return f"Predictions: {answered} of {len(asked)} answered before the reveal."

    def _question(self, question_id: str) -> Question:
        asked = content.question(question_id)
        if not question_id.startswith(f"{self._number}."):
            raise UsageError(f"{question_id} is asked in another notebook; this is {self._number}")
        return asked


def _letters(asked: Question) -> str:
    return ", ".join(asked.options)


def _option(asked: Question, letter: str) -> str:
    return "no answer" if letter == NO_ANSWER else f"{letter}  {asked.options[letter]}"


def _require_observed(asked: Question, observed: object) -> None:
    """The answer in content.toml is a claim; what the learner's own run showed decides."""
    expected = asked.options[asked.answer]
    if observed is None:
        raise NotReady(
            f"{asked.id}: give what your run showed, as the notebook does; "
            "run the cells between the prediction and this one first"
        )
    if str(observed) != expected:
        raise NotReady(
            f"{asked.id}: the lab expects {expected!r} and this run shows {str(observed)!r}; "
            "run all cells from lab.begin on again, in order"
        )

"""Predict, then look: an answer is recorded before the run and laid beside what happened."""

from __future__ import annotations

from labkit.errors import UsageError
from labkit.lab import content, progress
from labkit.lab.content import Question
from labkit.lab.process import NotReady

__all__ = ["NO_ANSWER", "Predictions"]

NO_ANSWER = "?"


class Predictions:
    """The answers given in this notebook since it began.

    `reveal` shows what was predicted in this kernel, not what an earlier one recorded: the
    original, which answers nothing, then prints the same for every learner.
    """

    def __init__(self, number: str) -> None:
        self._number = number
        self._given: dict[str, str] = {}

    def predict(self, question_id: str, letter: str) -> None:
        """Raises NotFound for an unknown question, UsageError for a letter that is no option."""
        asked = self._question(question_id)
        letters = ", ".join(asked.options)
        if letter == NO_ANSWER:
            print(f'{question_id}: no answer yet. Put {letters} for "?", or go on without.')
        elif letter not in asked.options:
            raise UsageError(f'{question_id}: {letter!r} is no option; use {letters} or "?"')
        else:
            progress.record_prediction(question_id, letter)
            print(f"{question_id}: you predict {letter}, {asked.options[letter]}.")
        self._given[question_id] = letter

    def reveal(self, question_id: str, observed: object) -> None:
        """Raises NotReady before the prediction, and for an observation that the lab denies."""
        asked = self._question(question_id)
        if question_id not in self._given:
            raise NotReady(f'run the cell with lab.predict("{question_id}", ...) first')
        _require_observed(asked, observed)
        print(f"{question_id}  predicted  {_option(asked, self._given[question_id])}")
        print(f"       observed   {_option(asked, asked.answer)}")
        print(asked.why.strip())

    def summary(self) -> str:
        asked = content.questions(self._number)
        answered = sum(self._given.get(entry.id, NO_ANSWER) != NO_ANSWER for entry in asked)
        return f"Predictions: {answered} of {len(asked)}."

    def _question(self, question_id: str) -> Question:
        asked = content.question(question_id)
        if not question_id.startswith(f"{self._number}."):
            raise UsageError(f"{question_id} is asked in another notebook; this is {self._number}")
        return asked


def _option(asked: Question, letter: str) -> str:
    return "no answer" if letter == NO_ANSWER else f"{letter}  {asked.options[letter]}"


def _require_observed(asked: Question, observed: object) -> None:
    """The answer in content.toml is a claim; what the learner's own run showed decides."""
    expected = asked.options[asked.answer]
    if observed is not None and str(observed) != expected:
        raise NotReady(
            f"{asked.id}: the lab expects {expected!r} and this run shows {str(observed)!r}; "
            "run all cells from lab.begin on again, in order"
        )

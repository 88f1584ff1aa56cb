"""A room votes: the hands beside the outcome, in words, and nothing is seen before."""

from __future__ import annotations

import pytest

from labkit.errors import UsageError
from labkit.lab.votes import OUTCOMES, Ballot, tabulate

HANDS = {"0 reports": 2, "1 report": 9, "2 reports": 14}


def rows(votes: dict[str, int], outcome: str) -> list[tuple[str, int, str]]:
    return [tuple(row) for row in tabulate(votes, outcome).itertuples()]


def test_the_outcome_is_marked_by_a_word_whoever_voted_for_it() -> None:
    assert rows(HANDS, "1 report") == [
        ("0 reports", 2, "-"), ("1 report", 9, "came so"), ("2 reports", 14, "-"),
    ]  # fmt: skip


def test_an_outcome_that_nobody_could_vote_for_has_a_row_of_its_own() -> None:
    assert rows(HANDS, "3 reports")[3:] == [("3 reports", 0, "came so")]
    assert [outcome for *_, outcome in rows(HANDS, "3 reports")[:3]] == ["-", "-", "-"]


@pytest.mark.parametrize("hands", [{}, {"1 report": 0}, {"0 reports": -1, "1 report": 5}])
def test_votes_that_nobody_gave_are_refused(hands: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="nobody has voted"):
        tabulate(hands, "1 report")


def test_a_ballot_hides_from_an_act_on_until_the_room_has_voted() -> None:
    ballot = Ballot()
    ballot.open()
    assert not ballot.hides(has_started=True)  # nobody asked for predictions
    ballot.turn(True)
    assert not ballot.hides(has_started=True)  # what the room has seen is not hidden again
    ballot.open()
    assert not ballot.hides(has_started=False)  # there is nothing to guess
    assert ballot.hides(has_started=True)
    with pytest.raises(UsageError):
        ballot.reveal({"1 report": 0}, "1 report")
    assert ballot.hides(has_started=True)
    assert list(ballot.reveal(HANDS, "1 report").votes) == [2, 9, 14]
    assert not ballot.hides(has_started=True)
    ballot.open()
    assert ballot.hides(has_started=True)
    ballot.turn(False)
    assert not ballot.hides(has_started=True)


def test_what_is_at_work_is_hidden_as_soon_as_predictions_are_asked_for() -> None:
    ballot = Ballot()
    ballot.turn(True, is_at_work=True)
    assert ballot.hides(has_started=True)


def test_what_is_given_up_is_not_to_be_guessed() -> None:
    ballot = Ballot()
    ballot.turn(True)
    ballot.open()
    ballot.close()
    assert (ballot.is_on, ballot.hides(has_started=True)) == (True, False)


def test_each_agent_has_answers_to_vote_for() -> None:
    assert all(len(set(answers)) == len(answers) > 1 for answers in OUTCOMES.values())

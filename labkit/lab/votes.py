"""A room votes on what an act will leave, before it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from labkit.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NO", "OUTCOMES", "YES", "Ballot", "tabulate"]

# In the words of `Stage.outcome`.
OUTCOMES = {
    "restart": ("0 reports", "1 report", "2 reports"),
    "durable": ("waits, 0 messages", "waits, 1 message", "0 messages", "1 message", "2 messages"),
}
YES, NO = "came so", "-"


class Ballot:
    """Whether the room is asked, and what it must not see before it has answered.

    Each outcome is guessed once: it is hidden from the act that brings it until it is revealed.
    """

    def __init__(self) -> None:
        self.is_on = self.is_open = False

    def turn(self, is_on: bool, *, is_at_work: bool = False) -> None:
        """Predictions are asked for from now on, or no more. What the room has seen is not hidden
        again; what an agent that is at work will leave it has not seen."""
        self.is_on, self.is_open = is_on, is_on and is_at_work

    def open(self) -> None:
        """An act whose outcome nobody knows: a new vote."""
        self.is_open = self.is_on

    def close(self) -> None:
        """What was to be guessed is given up."""
        self.is_open = False

    def hides(self, has_started: bool) -> bool:
        """Whether the outcome is hidden. Before a process has started there is none."""
        return self.is_open and has_started

    def reveal(self, votes: Mapping[str, int], outcome: str) -> pd.DataFrame:
        """The votes beside the outcome, which is hidden no more. Raises what `tabulate` raises."""
        table = tabulate(votes, outcome)
        self.is_open = False
        return table


def tabulate(votes: Mapping[str, int], outcome: str) -> pd.DataFrame:
    """One row for each answer: its votes, and in a word which one came. An outcome that nobody
    could vote for gets a row of its own.

    Raises UsageError for a number below 0, and where nobody has voted.
    """
    import pandas as pd

    if any(number < 0 for number in votes.values()) or not sum(votes.values()):
        raise UsageError("nobody has voted; count the hands for each answer, or switch Predict off")
    every = {**votes, outcome: votes.get(outcome, 0)}
    rows = [(answer, number, YES if answer == outcome else NO) for answer, number in every.items()]
    return pd.DataFrame(rows, columns=["answer", "votes", "outcome"]).set_index("answer")

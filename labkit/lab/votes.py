"""A room votes on what an act will leave, before it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from labkit.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OUTCOMES", "tabulate"]

# In the words of `Stage.outcome`.
OUTCOMES = {
    "restart": ("0 reports", "1 report", "2 reports"),
    "durable": ("waits, 0 messages", "waits, 1 message", "1 message", "2 messages"),
}


def tabulate(votes: Mapping[str, int], outcome: str) -> pd.DataFrame:
    """One row for each answer: its votes, and whether it came so. An outcome that nobody could
    vote for gets a row of its own.

    Raises UsageError for a number below 0, and where nobody has voted.
    """
    import pandas as pd

    if any(number < 0 for number in votes.values()) or not sum(votes.values()):
        raise UsageError("nobody has voted; count the hands for each answer first")
    rows = [(answer, number, answer == outcome) for answer, number in votes.items()]
    if outcome not in votes:
        rows.append((outcome, 0, True))
    return pd.DataFrame(rows, columns=["answer", "votes", "came so"]).set_index("answer")

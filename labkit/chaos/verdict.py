"""What one trial showed, and what all of them show. An undelivered injury shows nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from labkit.journal.laws import BROKEN, HELD

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BROKEN", "HELD", "UNKNOWN", "Report", "Verdict"]

UNKNOWN = "unknown"


class Verdict(NamedTuple):
    """One trial. `address` names the injury, `replay` is the command that makes it again."""

    how: str
    address: str
    outcome: str
    reason: str
    delivered: bool
    replay: str = ""

    def __str__(self) -> str:
        said = f"{self.outcome}: {self.how} {self.address}: {self.reason or 'all held'}"
        lines = [one_line(said)]
        return "\n".join([*lines, f"    {self.replay}"] if self.replay else lines)


class Report(NamedTuple):
    """The verdicts of one sweep. `planned` counts also what was never tried."""

    planned: int
    verdicts: tuple[Verdict, ...]

    def count(self, outcome: str) -> int:
        return sum(verdict.outcome == outcome for verdict in self.verdicts)

    @property
    def delivered(self) -> int:
        return sum(verdict.delivered for verdict in self.verdicts)

    @property
    def exit_code(self) -> int:
        """0 held, 1 broken, 2 unknown. A sweep that delivered nothing shows nothing."""
        if self.count(BROKEN):
            return 1
        return 0 if 0 < self.planned == self.delivered == self.count(HELD) else 2

    def summary(self) -> str:
        counts = ", ".join(f"{self.count(name)} {name}" for name in (HELD, BROKEN, UNKNOWN))
        return f"{self.planned} planned, {self.delivered} delivered: {counts}"

    def __str__(self) -> str:
        lines = [self.summary()]
        if not self.delivered:
            lines.append("error: no injury was delivered, so this sweep proves nothing")
        return "\n".join([*lines, *(str(v) for v in self.verdicts if v.outcome != HELD)])

    def frame(self) -> pd.DataFrame:
        """A row for each trial: how, address, outcome, delivered, reason, replay."""
        import pandas as pd

        columns = ["how", "address", "outcome", "delivered", "reason", "replay"]
        rows = [v._asdict() | {"reason": one_line(v.reason)} for v in self.verdicts]
        return pd.DataFrame(rows, columns=columns)


def one_line(text: str) -> str:
    """Harmless on a terminal: a reason can hold whatever the program said, or named a file."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def add(reports: Iterable[Report]) -> Report:
    """Several sweeps as one."""
    each = list(reports)
    verdicts = tuple(verdict for report in each for verdict in report.verdicts)
    return Report(sum(report.planned for report in each), verdicts)

"""What is promised of the durable run has controls, under these rows of tests/controls.toml."""

from collections import Counter

from tests.restart.test_controls import CONTROLS

ROWS = [
    "durable: lease, epoch, version",
    "durable: four transactions",
    "durable: tables",
    "durable: recovery",
    "durable: resolutions",
    "durable: cancel",
    "durable: models, tools, budgets",
    "durable: live updates",
    "durable: stores",
    "labkit runs",
    "journal of durable runs",
]


def test_every_row_has_controls() -> None:
    count = Counter(control.row for control in CONTROLS)
    assert [row for row in ROWS if count[row] < 5] == []

"""A desk for each test of the restart agent, emptied of processes afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.restart.kit import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    folder = tmp_path / "desk"
    folder.mkdir()
    made = Desk(folder)
    yield made
    made.end_all()

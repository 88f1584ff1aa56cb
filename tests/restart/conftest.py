"""A desk for each test of the restart agent, emptied of processes afterwards."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.restart.kit import Desk


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("templates")


@pytest.fixture
def desk(tmp_path: Path, templates: Path) -> Iterator[Desk]:
    folder = tmp_path / "desk"
    folder.mkdir()
    made = Desk(folder, templates)
    yield made
    made.end_all()


@pytest.fixture
def quick_desk(tmp_path: Path) -> Iterator[Desk]:
    """In memory where there is such a file system: what is counted here, no disk changes."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield Desk(tmp_path)
        return
    folder = memory / f"labkit-{os.getpid()}-{tmp_path.name}"
    (folder / "desk").mkdir(parents=True)
    desk = Desk(folder / "desk")
    try:
        yield desk
    finally:
        desk.end_all()
        shutil.rmtree(folder)

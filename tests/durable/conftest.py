"""Fixtures of the durable run's tests."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durable.kit import World


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is such a file system: no disk decides what is tested here."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    folder = memory / f"labkit-{os.getpid()}-{tmp_path.name}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, quick: Path) -> Iterator[World]:
    """Runs in each kind of store."""
    made = World(quick, request.param)
    yield made
    made.close()


@pytest.fixture
def memory(quick: Path) -> Iterator[World]:
    """Runs in memory, where the store makes no difference."""
    made = World(quick, "memory")
    yield made
    made.close()


@pytest.fixture
def on_disk(quick: Path) -> Iterator[World]:
    """Runs in a file, which several connections open."""
    made = World(quick, "sqlite")
    yield made
    made.close()

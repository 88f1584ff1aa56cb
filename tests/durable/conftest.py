"""Fixtures of the durable run's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durable.kit import World


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Runs in each kind of store."""
    made = World(tmp_path, request.param)
    yield made
    made.close()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[World]:
    """Runs in memory, where the store makes no difference."""
    made = World(tmp_path, "memory")
    yield made
    made.close()


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[World]:
    """Runs in a file, which several connections open."""
    made = World(tmp_path, "sqlite")
    yield made
    made.close()

"""A home of its own for each test: no test reads or writes a learner's runs and answers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from labkit.lab import verbs
from labkit.lab.process import Process


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home with a space"
    monkeypatch.setenv("LABKIT_HOME", str(folder))
    verbs._ended.clear()
    return folder


@pytest.fixture
def begun(home: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Path]:
    """Notebook 05 has begun; whatever a test starts is ended after it."""
    verbs.begin("05")
    capsys.readouterr()
    yield home
    if verbs._open:
        verbs.end()


def is_gone(process: Process) -> bool:
    try:
        os.kill(process._guarded.pid, 0)
    except ProcessLookupError:
        return True
    return False


@contextmanager
def no_room_for_folders() -> Iterator[None]:
    """The folder of this notebook's folders is gone, and a file has its name."""
    root = verbs.current_notebook().root
    aside = root.with_name("aside")
    root.rename(aside)
    root.write_text("in the way", encoding="utf-8")
    yield
    root.unlink()
    aside.rename(root)

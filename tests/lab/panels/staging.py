"""What the tests of the instructor's panel share: to press, wait and read without a browser."""

from __future__ import annotations

import base64
import re
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from ipywidgets import HTML, Button, Dropdown, ToggleButton, ToggleButtons

from labkit import lab
from labkit.lab import verbs
from labkit.lab.panels.instructor import Instructor
from labkit.lab.process import Process


@pytest.fixture
def demo(home: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Notebook 20 has begun."""
    lab.begin("20")
    capsys.readouterr()
    yield
    if verbs._open:
        lab.end()


def widgets(root: Any) -> Iterator[Any]:
    yield root
    for child in getattr(root, "children", ()):
        yield from widgets(child)


def click(panel: Instructor, *names: str) -> None:
    for name in names:
        panel.buttons[name].click()


def die_at(panel: Instructor, at: str) -> None:
    """Presses a place of the grid, as somebody does who cannot see the class."""
    [place] = [each for each in widgets(panel.root) if getattr(each, "at", None) == at]
    place.value = True


def wait(panel: Instructor) -> None:
    """Until the process has ended and the panel has noticed."""
    if panel.stage.process is not None:
        panel.stage.process.finish()
    while panel.look():
        pass


def at_work(panel: Instructor) -> Process:
    click(panel, "create", "run")
    process = panel.stage.process
    assert process is not None
    lab.wait_for(process, "step_started", 0)
    return process


class Waits:
    """How long each connection to SQLite would wait for a lock, in seconds."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: list[float] = []
        connect = sqlite3.connect

        def waiting(*values: Any, **named: Any) -> sqlite3.Connection:
            self.seen.append(named.get("timeout", 5.0))
            return connect(*values, **named)

        patch.setattr(sqlite3, "connect", waiting)

    def taken(self) -> float:
        """All of them together, since the last time."""
        seen, self.seen = self.seen, []
        return sum(seen)


@contextmanager
def another_program(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that keeps what it locks until it is closed, from its readers too."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        yield other


def text(html: str) -> str:
    return re.sub(r"<[^>]*>", "", html)


def said(panel: Instructor) -> str:
    assert 'role="status"' in panel.status.value
    return text(panel.status.value)


def has_failed(panel: Instructor) -> bool:
    assert "Traceback" not in panel.status.value
    return "labkit-failed" in panel.status.value


def alt(panel: Instructor) -> str:
    found = re.search(r'alt="([^"]*)"', panel.timeline.value)
    return found[1] if found else ""


def png_size(panel: Instructor) -> tuple[int, int]:
    found = re.search(r"base64,([^\"]+)", panel.timeline.value)
    assert found
    width, height = struct.unpack(">II", base64.b64decode(found[1])[16:24])
    return width, height


def enabled(panel: Instructor) -> set[str]:
    return {name for name, each in panel.buttons.items() if not each.disabled}


def everything(panel: Instructor) -> list[str]:
    """All that somebody could read or press, in order."""
    found = []
    for each in widgets(panel.root):
        if isinstance(each, HTML):
            found.append(each.value)
        elif isinstance(each, Button | ToggleButton):
            found.append(f"{each.description} {'off' if each.disabled else 'on'}")
        elif isinstance(each, Dropdown | ToggleButtons):
            found.append(f"{each.description} {each.options} {each.disabled}")
    return found

"""The acts of a stage, for the tests of the stage and of its code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from labkit import lab
from labkit.lab import verbs
from labkit.lab.grid import NOW
from labkit.lab.stage import Stage

JOURNAL = "SELECT seq, kind, owner, step, attempt, data FROM journal"


@pytest.fixture
def notebook_20(home: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    lab.begin("20")
    capsys.readouterr()
    yield
    if verbs._open:
        lab.end()


def done(stage: Stage) -> str:
    """Waits for the end of the process; how it ended, in words."""
    assert stage.process is not None
    stage.process.finish()
    return repr(stage.ended())


def started(agent: str, at: str, **more: Any) -> Stage:
    stage = Stage(agent, **more)
    stage.create()
    stage.run(at)
    return stage


def at_work(agent: str, **more: Any) -> Stage:
    """In the call of a step, for somebody to kill it: the first one, or the one that notifies."""
    stage = started(agent, NOW, **more)
    assert stage.process is not None
    lab.wait_for(stage.process, "step_started", 0 if agent == "restart" else 1)
    if agent == "durable":
        gate = verbs.current_folder().path / "gate"
        while not gate.exists():
            assert stage.process.alive
    return stage

"""What a process wrote is told from what others wrote; where nobody can tell, nobody waits long."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from labkit import lab
from labkit.lab import process, verbs
from labkit.lab.evidence import killed_runs
from labkit.lab.process import Process
from tests.lab.panels.staging import Waits, another_program


@pytest.fixture
def database(begun: Path) -> Path:
    assert lab.run("agent create notes plan.json").code == 0
    return verbs.current_folder().database


@contextmanager
def locked(database: Path) -> Iterator[None]:
    with another_program(database) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


def alter(database: Path, script: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(script)


def killed_in_its_first_step() -> Process:
    started = lab.start("agent run notes", AGENT_STEP_DELAY=600)
    lab.wait_for(started, "step_started", 0)
    return started


def kill_from_outside(started: Process) -> None:
    """Nobody in the lab knows of it yet."""
    os.killpg(started._guarded.pid, signal.SIGKILL)
    started._guarded.wait()


def test_a_locked_database_is_waited_for_half_a_second_and_no_longer(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked(database):
        waits = Waits(monkeypatch)
        started = lab.start("agent run notes", AGENT_STEP_DELAY=600)
        assert waits.taken() == 0.5
        assert started.kill().killed
        assert waits.taken() == 0.5


def test_what_began_behind_a_lock_is_not_taken_for_what_came_before(database: Path) -> None:
    assert lab.run("agent run notes", AGENT_CRASH_AT="after_effect:0").killed
    [before] = killed_runs(verbs.current_folder(), "notes")
    with locked(database):
        started = lab.start("agent run notes", AGENT_STEP_DELAY=600)
    with pytest.raises(lab.NotReady, match=r"nobody can tell what process 3 wrote: .*lab\.begin"):
        lab.wait_for(started, "step_started", 0)
    assert started.kill().killed
    assert started.runs("notes") == []
    assert killed_runs(verbs.current_folder(), "notes") == [before]


def test_an_end_behind_a_lock_is_found_out_later(database: Path) -> None:
    started = killed_in_its_first_step()
    kill_from_outside(started)
    with locked(database):
        assert started.finish().killed
    [run] = started.runs("notes")
    assert lab.run("agent run notes").code == 0
    folder = verbs.current_folder()
    assert len(lab.journal().runs("notes")) == 2
    assert killed_runs(folder, "notes") == [run]
    assert "1 killed" in lab.timeline("notes").summary


def test_a_kill_that_nobody_has_noticed_kills_no_later_run(database: Path) -> None:
    started = killed_in_its_first_step()
    [run] = started.runs("notes")
    kill_from_outside(started)
    assert lab.run("agent run notes").code == 0
    assert killed_runs(verbs.current_folder(), "notes") == [run]


@pytest.mark.parametrize(
    "journal",
    [
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS seq FROM n",
        "SELECT seq || 'x' AS seq FROM events",
    ],
    ids=["it has no end", "its numbers are none"],
)
def test_a_journal_that_somebody_altered_is_for_the_agent_to_tell(
    journal: str, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "STEPS", 100_000)
    alter(database, f"DROP VIEW journal; CREATE VIEW journal AS {journal}")
    assert lab.run("agent status notes").code == 0
    [*_, last] = verbs.current_folder().processes
    assert last.runs("notes") == []

"""The benchmark runs, and compares like with like. How fast something is, is no test."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path

import pytest

from bench.__main__ import IN_MEMORY, file_system
from bench.contenders import PEERS, RAW, RESTART_AGENT, Contender, Task
from bench.figures import Row, require_rows
from tests.conftest import run_python

ROOT = Path(__file__).parents[1]


def contenders() -> list[Contender]:
    return [RESTART_AGENT, RAW, *(peer for peer in PEERS if peer.is_installed)]


@pytest.mark.parametrize("who", contenders(), ids=lambda who: who.name)
def test_a_killed_contender_goes_on_where_it_was(who: Contender, tmp_path: Path) -> None:
    task = Task(who, 4, tmp_path)
    assert list(task.start(crash=2)) == [-1, 0]
    assert list(task.start()) == [-1, 2, 3]


def test_the_raw_loop_writes_the_rows_of_the_agent(tmp_path: Path) -> None:
    steps = "SELECT idx, tool, input, status, output, attempts FROM steps"
    events = "SELECT seq, task_id, kind, step_idx, data, step, attempt, run_id = owner FROM events"
    written = []
    for who in (RESTART_AGENT, RAW):
        task = Task(who, 3, tmp_path)
        task.start()
        require_rows(task)
        db = sqlite3.connect(task.folder / "state.db")
        written.append([db.execute(steps).fetchall(), db.execute(events).fetchall()])
        db.close()
    assert written[0] == written[1]


def test_it_prints_a_table() -> None:
    if file_system(str(ROOT)) in IN_MEMORY:
        pytest.skip("this checkout lies in memory, and a benchmark needs a disk")
    ran = run_python("-m", "bench", "--rounds", "1", "status", "--dir", str(ROOT), cwd=ROOT)
    assert ran.code in (0, 1), ran.err
    head, _, row = (line for line in ran.out.splitlines() if line.startswith("|"))
    assert head.split("|")[1].strip() == "figure"
    assert "`status`, the whole process" in row
    assert file_system(str(ROOT)) in ran.out


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no file system in memory here")
def test_memory_is_no_disk() -> None:
    ran = run_python("-m", "bench", "--dir", "/dev/shm", cwd=ROOT)
    assert (ran.code, ran.out) == (os.EX_USAGE, "")
    assert (
        ran.err == "bench: /dev/shm is tmpfs, where a sync costs nothing; give a disk with --dir\n"
    )


@pytest.mark.parametrize(
    ("value", "verdict"), [(1.3, "reached"), (1.31, "MISSED"), (None, "not measured")]
)
def test_verdicts(value: float | None, verdict: str) -> None:
    assert Row("figure", 1.3, "x", value, "", "").verdict == verdict


def test_a_contender_that_ends_otherwise_is_an_error(tmp_path: Path) -> None:
    task = Task(RAW, 2, tmp_path)
    with pytest.raises(RuntimeError, match=f"ended with {-signal.SIGKILL}|ended with 0"):
        task.start(crash=7)

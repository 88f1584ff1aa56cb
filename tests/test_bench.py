"""The benchmark runs, and compares like with like. How fast something is, is no test."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from bench import durable, kit
from bench.__main__ import IN_MEMORY, file_system, main
from bench.contenders import PEERS, RAW, RESTART_AGENT, Contender, Task
from bench.figures import (
    Bench,
    Row,
    measure_bars,
    measure_events,
    measure_find,
    require_rows,
)
from bench.journals import make_journal
from bench.rows import TIMES, Floor, Rows, commits_of, rows_of
from labkit.durable.stores.schema import schema
from labkit.journal import Journal
from labkit.journal.chart import read_chart
from tests.conftest import run_python
from tests.restart.kit import needs_strace

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


@pytest.mark.proof
def test_the_figures_of_the_kit() -> None:
    took, detail = kit.time_points(1)
    assert took > 0
    assert detail.endswith("kills and recoveries a second")


@pytest.mark.proof
@needs_strace
def test_the_figures_of_the_kit_with_strace() -> None:
    assert kit.time_pairs(2)[1] == "2 pairs, 0 broken"
    assert kit.time_images(12)[1] == "12 distinct images, 0 broken"


@pytest.mark.proof
def test_the_figures_of_the_journal(tmp_path: Path) -> None:
    events = measure_events(Bench(tmp_path, 1), 400)
    assert (events.figure, events.limit) == ("400 events as a frame", 4)
    assert re.fullmatch(r"bare sqlite3 `fetchall` \S+ s: \S+ x", events.beside)
    bars = measure_bars(Bench(tmp_path, 2), 300)
    assert (bars.figure, bars.limit) == ("300 bars drawn as PNG", 1)
    assert re.fullmatch(r"best \S+ s; \S+ s with reading", bars.detail)
    assert "not measured" not in (events.verdict, bars.verdict)


def test_the_journal_that_is_measured(tmp_path: Path) -> None:
    """An agent could have written it, and all its bars are there."""
    path = make_journal(tmp_path / "x.db", 200)
    assert len(Journal(path).events()) == 401
    chart = read_chart(path, "t")
    assert Counter(bar.outcome for bar in chart.bars) == {"finished": 180, "error": 20}
    assert len(chart.lanes) == 100


def test_the_floor_writes_the_rows_of_a_durable_run(tmp_path: Path) -> None:
    store, runner = durable.open_runner(tmp_path / "ours.db")
    with store:
        ours = rows_of(tmp_path / "ours.db", asyncio.run(durable.run_once(runner)))
    commits = commits_of(ours)
    floor = Floor(tmp_path / "floor.db", schema()[2], commits)
    floor.run()
    rows = rows_of(tmp_path / "floor.db", floor.run())
    floor.close()
    assert len(commits) == 9
    assert timeless(rows) == timeless(ours)


def timeless(rows: Rows) -> list[tuple[str, dict[str, object]]]:
    leave = ("run_id", "seq")
    kept = [
        (table, {name: row[name] for name in row if name not in leave})
        for table, every in rows.items()
        for row in every
    ]
    return [(table, row | {name: "t" for name in TIMES if row.get(name)}) for table, row in kept]


def test_a_durable_run_and_its_floor_write_as_much(tmp_path: Path) -> None:
    took, floor, wrote = durable.time_runs(tmp_path, 2)
    assert (len(took), len(floor)) == (2, 2)
    assert re.fullmatch(r"\d\d\d,\d\d\d bytes of -wal each", wrote)


def test_the_crowd_is_as_a_store_would_have_made_it(tmp_path: Path) -> None:
    crowd = durable.make_crowd(tmp_path / "crowd", 150)
    with crowd.store:
        listed = asyncio.run(crowd.runner.list_runs(limit=200))
        assert Counter(run.status for run in listed) == {"SUCCEEDED": 150}
        found = asyncio.run(crowd.runner.inspect_run(listed[77].run_id))
        assert len(found.checkpoints) == 3
        assert found.run.output == "It is on its way."
        assert len(asyncio.run(crowd.store.read_journal(listed[77].run_id))) == 9
        crowd.leave_one()
        db = sqlite3.connect(crowd.path)
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        db.close()


def test_the_figures_among_many_runs(tmp_path: Path) -> None:
    ratios = durable.time_crowd(tmp_path, 150, 2, 1)
    assert set(ratios) == {"start", "resume", *durable.FILTERS}
    find = measure_find(Bench(tmp_path, 1), 150)
    assert (find.figure, find.limit) == ("one abandoned run found among 150", 10)
    assert re.fullmatch(r"`recover_all` with the run's end \S+ ms", find.beside)


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no file system in memory here")
def test_memory_is_no_disk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "--dir", "/dev/shm"])
    assert main() == os.EX_USAGE
    assert capsys.readouterr() == (
        "",
        "bench: /dev/shm is tmpfs, where a sync costs nothing; give a disk with --dir\n",
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

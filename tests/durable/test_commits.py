"""How many commits a run makes: each is a sync, and syncs are what a run waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.durable import count_commits, open_runner, run_once
from labkit.durable import InMemoryRunStore, Runner, SQLiteRunStore
from tests.restart.kit import needs_strace

MOST = 9  # create; start; the beginning and the end of each of three steps; end
WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


def commits_in(statements: Sequence[str]) -> int:
    """COMMITs of what SQLite was asked, and writes outside a transaction, which commit alone."""
    count, is_open = 0, False
    for statement in statements:
        word = statement.split(maxsplit=1)[0].upper()
        count += word == "COMMIT" or (word in WRITES and not is_open)
        is_open = word == "BEGIN" or (is_open and word not in ("COMMIT", "ROLLBACK"))
    return count


def traced_run(store: SQLiteRunStore, runner: Runner) -> list[str]:
    statements: list[str] = []
    store._db._sql.set_trace_callback(statements.append)
    asyncio.run(run_once(runner))
    return statements


def test_a_run_of_three_steps_makes_nine_commits(quick: Path) -> None:
    store, runner = open_runner(quick / "runs.db")
    with store:
        assert commits_in(traced_run(store, runner)) == MOST


def test_each_commit_more_is_counted(quick: Path) -> None:
    """The control: a store that renews before each result makes three more; one of the writes
    stands outside a transaction."""

    class Renewing(InMemoryRunStore):
        async def record_success(self, hold, attempt, output):  # type: ignore[no-untyped-def]
            sql = "UPDATE runs SET lease_expires_at = lease_expires_at + 1 WHERE run_id = ?"
            self._db.execute(sql, hold.run_id)
            return await super().record_success(hold, attempt, output)

    store, runner = open_runner(quick / "runs.db")
    with store:
        runner.store = other = Renewing()
        assert commits_in(traced_run(other, runner)) == MOST + 3


@pytest.mark.proof
@pytest.mark.timeout(600)
@needs_strace
def test_strace_sees_nine_syncs_of_the_wal(tmp_path: Path) -> None:
    """On a disk; exactly nine, for a trace that shows nothing would show fewer."""
    assert count_commits(tmp_path) == (MOST, "0 other syncs in 10 runs")

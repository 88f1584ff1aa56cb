"""What the tables of a SQLite store refuse by themselves, to any connection without any pragma."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from labkit.durable import FakeClock, PlaintextPayloadCodec, RunStatus, SQLiteRunStore
from tests.durable.stores import TOOL, Bench

JOURNAL = ["seq", "ts", "task_id", "run_id", "owner", "kind", "step_idx", "step", "attempt", "data"]
STEP, ATTEMPT = "UPDATE steps SET", "UPDATE attempts SET"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Two runs with the same steps: in each one step is done and one attempt is open."""
    clock = FakeClock()
    made = Bench(SQLiteRunStore(tmp_path / "runs.db", PlaintextPayloadCodec(), clock), clock)
    for run_id in ("one", "two"):
        hold = made.start(run_id)
        made.succeed(hold, made.begin(hold), f"of {run_id}")
        made.begin(hold, TOOL)
    yield made
    made.close()


@pytest.fixture
def raw(bench: Bench, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as connection:
        assert connection.execute("PRAGMA foreign_keys").fetchone() == (0,)
        yield connection


REFUSED = {
    "succeeded without a checkpoint": f"{STEP} status = 'SUCCEEDED' WHERE idx = 1",
    "a checkpoint, and running": f"{STEP} checkpoint_attempt_id = 'x#1' WHERE idx = 1",
    "a checkpoint, and failed": f"{STEP} status = 'FAILED' WHERE idx = 0",
    "a checkpoint that is gone": f"{STEP} checkpoint_attempt_id = NULL WHERE idx = 0",
    "an inserted one": """INSERT INTO steps (run_id, step_id, idx, step_type, status, created_at)
        VALUES ('one', 'model-2', 2, 'MODEL', 'SUCCEEDED', 0)""",
    "a status that there is not": f"{STEP} status = 'DONE', checkpoint_attempt_id = NULL",
    "a status of no attempt": f"{ATTEMPT} status = 'UNCERTAIN'",
    "a status of no run": "UPDATE runs SET status = 'PAUSED'",
    "waiting for nothing": "UPDATE runs SET status = 'WAITING'",
    "a reason, and running": "UPDATE runs SET waiting_reason = 'UNCERTAIN_NON_IDEMPOTENT'",
    "a second open attempt": f"{ATTEMPT} status = 'RUNNING'",
    "an event that is changed": "UPDATE events SET kind = 'task_done' WHERE seq = 1",
    "an event that is deleted": "DELETE FROM events WHERE seq = 1",
    "an event that is replaced": """INSERT OR REPLACE INTO events VALUES
        (1, 0, 'one', NULL, 'task_done', NULL, NULL, NULL, '{}')""",
    "an event out of order": """INSERT INTO events VALUES
        (-1, 0, 'one', NULL, 'task_done', NULL, NULL, NULL, '{}')""",
    "an event with no object": """INSERT INTO events VALUES
        (NULL, 0, 'one', NULL, 'task_done', NULL, NULL, NULL, '[]')""",
    "the journal itself": "DELETE FROM journal",
    "a checkpoint by the view": "DELETE FROM checkpoints",
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_tables_refuse(bench: Bench, raw: sqlite3.Connection, what: str) -> None:
    before = bench.everything()
    with pytest.raises((sqlite3.IntegrityError, sqlite3.OperationalError)) as caught:
        raw.execute(REFUSED[what])
    assert "no such" not in str(caught.value)
    assert "syntax" not in str(caught.value)
    assert bench.everything() == before


ACCEPTED = [
    f"{STEP} status = 'SUCCEEDED', checkpoint_attempt_id = 'x#1' WHERE idx = 1",
    f"{STEP} status = 'FAILED' WHERE idx = 1",
    f"{ATTEMPT} status = 'FAILED' WHERE status = 'RUNNING'",
    "UPDATE runs SET status = 'WAITING', waiting_reason = 'X'",
    "INSERT INTO events VALUES (NULL, 0, 'one', NULL, 'task_done', NULL, NULL, NULL, '{}')",
    "INSERT INTO events VALUES (999, 0, 'one', NULL, 'task_done', NULL, NULL, NULL, '{}')",
]


@pytest.mark.parametrize("sql", ACCEPTED)
def test_the_tables_accept(raw: sqlite3.Connection, sql: str) -> None:
    """The control: what is refused is refused for what it says, not for how it is said."""
    assert raw.execute(sql).rowcount > 0


def test_the_view_of_checkpoints(bench: Bench, raw: sqlite3.Connection) -> None:
    found = raw.execute("SELECT run_id, step_id, attempt_id, step_type FROM checkpoints")
    assert sorted(found) == [(run_id, "model-1", "model-1#1", "MODEL") for run_id in ("one", "two")]
    outputs = raw.execute("SELECT output FROM checkpoints ORDER BY run_id").fetchall()
    assert [b"of one" in output for (output,) in outputs] == [True, False]
    moments = raw.execute("SELECT created_at FROM checkpoints").fetchall()
    assert moments == [(bench.clock.now().timestamp(),)] * 2


def test_the_view_of_the_journal(bench: Bench, raw: sqlite3.Connection) -> None:
    cursor = raw.execute("SELECT * FROM journal ORDER BY seq")
    names = [column[0] for column in cursor.description]
    assert names == JOURNAL
    assert [dict(zip(names, row, strict=True)) for row in cursor] == bench.journal()


def test_every_key_begins_with_the_run(raw: sqlite3.Connection) -> None:
    for table in ("steps", "attempts", "resolutions"):
        key = raw.execute("SELECT name FROM pragma_table_info(?) WHERE pk = 1", (table,))
        assert key.fetchone() == ("run_id",)


def test_no_payload_lies_in_a_column_that_is_not_sealed(
    bench: Bench, raw: sqlite3.Connection
) -> None:
    """Columns of BLOBs went through the codec, and no other column holds any of their text."""
    for run_id in bench.ids():
        bench.cancel(run_id)
    tables = ("runs", "steps", "attempts", "resolutions", "events", "seal")
    texts = ("Where is my order?", "Be kind.", "bob", "of one")
    for table in tables:
        for row in raw.execute(f"SELECT * FROM {table}"):
            plain = [value for value in row if isinstance(value, str)]
            assert not [value for value in plain if any(text in value for text in texts)]
            sealed = [value for value in row if isinstance(value, bytes)]
            assert all(value.startswith(PlaintextPayloadCodec.PREFIX) for value in sealed)


def test_all_that_a_run_leaves_is_whole(bench: Bench, raw: sqlite3.Connection) -> None:
    for run_id in ("one", "two"):
        run = bench.run(run_id)
        assert run.status is RunStatus.RUNNING
    assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert raw.execute("PRAGMA foreign_key_check").fetchall() == []

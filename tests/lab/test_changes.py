"""What one act changed: each query gives its rows, also later, and nothing more is in it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from labkit import lab
from labkit.errors import BadInput, StorageFault
from labkit.lab import verbs
from labkit.lab.changes import Change, State, changes, state

NOTHING = State(0, {})


@pytest.fixture(autouse=True)
def _begun(home: Path) -> Iterator[None]:
    lab.begin("20")
    yield
    lab.end()


@pytest.fixture
def database() -> Path:
    return verbs.current_folder().database


def by_table(found: list[Change]) -> dict[str, list[tuple[object, ...]]]:
    """The rows of each query, as SQLite itself gives them."""
    return {change.table: asked(change.sql) for change in found}


def asked(sql: str) -> list[tuple[object, ...]]:
    path = verbs.current_folder().database
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(sql).fetchall()


def test_an_act_of_the_restart_agent(database: Path) -> None:
    lab.run("agent create notes plan.json")
    before = state(database)
    assert lab.run("agent run notes", AGENT_CRASH_AT="after_effect:1").killed
    found = by_table(changes(database, before))
    assert [row[:2] for row in found["journal"]] == [
        (2, "run_started"), (3, "step_started"), (4, "step_finished"), (5, "step_started"),
    ]  # fmt: skip
    assert found["steps"] == [
        ("notes", 0, "fetch", "done", 1), ("notes", 1, "summarize", "running", 1),
    ]  # fmt: skip
    assert found["tasks"] == [("notes", "running")]
    assert list(found) == ["journal", "tasks", "steps"]


def test_only_what_the_last_act_changed(database: Path) -> None:
    lab.run("agent create notes plan.json")
    lab.run("agent run notes", AGENT_CRASH_AT="after_commit:0")
    before = state(database)
    lab.run("agent run notes")
    found = by_table(changes(database, before))
    assert [row[1] for row in found["steps"]] == [1, 2]  # step 0 was done before
    assert found["journal"][0][0] == before.last_seq + 1


def test_a_query_shows_the_same_rows_whatever_comes_later(database: Path) -> None:
    lab.run("agent create notes plan.json")
    [journal, *_] = changes(database, NOTHING)
    lab.run("agent run notes")
    assert [row[1] for row in asked(journal.sql)] == ["task_created"]


def test_an_act_of_a_durable_run(database: Path) -> None:
    lab.run("dispatch create pump notice")
    lab.run("dispatch go pump notice", AGENT_CRASH_AT="boundary:7")
    before = state(database)
    assert lab.run("dispatch go pump notice").code == 4
    found = by_table(changes(database, before))
    assert found["runs"][0][:2] == ("pump", "WAITING")
    assert "steps" not in found  # it was RUNNING, and is: only its attempt is over
    assert found["attempts"][0][3:5] == ("FAILED", "UNCERTAIN")
    assert "resolutions" not in found
    before = state(database)
    lab.run("dispatch resolve pump confirm")
    assert [row[2:] for row in by_table(changes(database, before))["resolutions"]] == [
        ("CONFIRM_STEP", "model-1.tool-1", "ann")
    ]


def test_where_nothing_was_done_nothing_is_shown(database: Path) -> None:
    assert changes(database, state(database)) == []
    lab.run("agent create notes plan.json")
    assert changes(database, state(database)) == []
    assert len(changes(database, NOTHING)) == 3  # the control


def test_the_rows_are_those_of_the_query(database: Path) -> None:
    lab.run("agent create notes plan.json")
    for change in changes(database, NOTHING):
        assert len(change.rows) == len(asked(change.sql)) > 0


def test_an_id_with_a_quote_stays_an_id(database: Path) -> None:
    lab.run("agent create notes plan.json")
    before = state(database)
    with closing(sqlite3.connect(database)) as connection:  # no agent takes such an id
        connection.execute("UPDATE tasks SET id = 'o''hara'")
        connection.commit()
    assert by_table(changes(database, before)) == {"tasks": [("o'hara", "pending")]}


def test_a_database_that_is_none_is_told_apart_from_one_that_is_not_there(database: Path) -> None:
    assert state(database) == NOTHING
    database.write_bytes(b"")
    assert state(database) == NOTHING
    database.write_bytes(b"no database" * 1000)
    with pytest.raises(StorageFault):
        state(database)


NUMBERS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
ROWS = {
    "it has no end": "SELECT 'notes' AS task_id, x AS idx, 't' AS tool, 'p' AS status, 1 AS "
    "attempts FROM n",
    "its first row never comes": "SELECT 'notes' AS task_id, count(*) AS idx, 't' AS tool, 'p' "
    "AS status, 1 AS attempts FROM n",
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_a_table_without_an_end_is_one_line(rows: str, database: Path) -> None:
    lab.run("agent create notes plan.json")
    alter(database, f"DROP TABLE steps; CREATE VIEW steps AS {NUMBERS} {rows}")
    with pytest.raises(BadInput, match=r"state\.db: steps has too many rows, or no end; "):
        state(database)


@pytest.mark.parametrize(
    ("seq", "said"), [("x", "too large, or has no end"), ("x || 'th'", "seq of an event is none")]
)
def test_a_journal_whose_last_event_is_none_is_one_line(
    seq: str, said: str, database: Path
) -> None:
    lab.run("agent create notes plan.json")
    some = "" if said.startswith("too") else " WHERE x < 9 LIMIT 8"
    alter(
        database,
        f"DROP VIEW journal; CREATE VIEW journal AS {NUMBERS} SELECT {seq} AS seq FROM n{some}",
    )
    with pytest.raises(BadInput, match=said):
        state(database)


def test_many_rows_are_not_too_many(database: Path) -> None:
    """The control: ten times as many steps as the largest plan that anybody has tried."""
    lab.run("agent create notes plan.json")
    alter(
        database,
        f"{NUMBERS} INSERT INTO steps (task_id, idx, tool, input, status, attempts) "
        "SELECT 'notes', x + 2, 'fetch', '{}', 'pending', 0 FROM n LIMIT 100000",
    )
    assert len(state(database).tables["steps"]) == 100_003


def alter(database: Path, script: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(script)

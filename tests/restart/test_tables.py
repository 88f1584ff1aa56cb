"""Section "Database" of the contract: what learners query, and what no statement may change."""

import json
import sqlite3
from contextlib import closing

import pytest

from tests.restart.kit import Desk

COLUMNS = {
    "tasks": ["id", "goal", "status", "created_at", "updated_at"],
    "steps": ["task_id", "idx", "tool", "input", "status", "output", "attempts"],
    "events": ["seq", "ts", "task_id", "run_id", "kind", "step_idx", "data"],
}
VIEW = ["seq", "ts", "task_id", "run_id", "owner", "kind", "step_idx", "step", "attempt", "data"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A task with every kind of event that a crash, an error, a failure and a retry leave."""
    desk = Desk(tmp_path_factory.mktemp("done"))
    desk.tools("def flaky(input, ctx, idem_key):\n    return open('cure').read()\n")
    desk.create({"goal": "g", "steps": [{"tool": "flaky", "input": {"a": "é"}}] * 2})
    desk.crash("before_effect:0")
    assert desk.run("run", "t", env={"AGENT_MAX_ATTEMPTS": "2"}).code == 2
    desk.write("cure", "cured")
    assert desk.run("run", "--retry", "t").code == 0
    return desk


def columns(desk: Desk, table: str) -> list[str]:
    return [row[1] for row in desk.rows(f"PRAGMA table_info({table})")]


@pytest.mark.parametrize("table", COLUMNS)
def test_tables_have_the_fixed_columns_first(done: Desk, table: str) -> None:
    """More may follow, as `owner`, `step` and `attempt` do in `events`."""
    fixed = COLUMNS[table]
    assert columns(done, table)[: len(fixed)] == fixed
    if table == "events":
        assert columns(done, table)[len(fixed) :] == ["owner", "step", "attempt"]


def test_view_journal(done: Desk) -> None:
    """Here `owner` is the run, `step` the tool's name."""
    assert columns(done, "journal") == VIEW
    assert done.rows("SELECT owner IS run_id FROM journal") == [1] * len(done.kinds())
    sql = "SELECT DISTINCT step, kind LIKE 'step_%' FROM journal WHERE step_idx IS NOT NULL"
    assert ("flaky", 1) in done.rows(sql)
    started = done.rows("SELECT attempt, data FROM journal WHERE kind = 'step_started'")
    assert [attempt for attempt, _ in started] == [1, 2, 1, 1]
    assert all(json.loads(data)["attempt"] == attempt for attempt, data in started)


KEYS = {
    "task_created": {"steps"},
    "run_started": {"recovered"},
    "step_recovered": set(),
    "step_started": {"tool", "attempt"},
    "step_finished": {"tool"},
    "step_error": {"error", "permanent", "interrupted"},
    "task_failed": {"reason", "outcome"},
    "task_retried": set(),
    "task_done": set(),
}


def test_the_kinds_of_events_and_their_data(done: Desk) -> None:
    assert set(done.kinds()) == set(KEYS)
    for kind, keys in KEYS.items():
        for data in done.data(kind):
            assert keys <= set(data), kind
    assert done.kinds() == [
        "task_created",
        *("run_started", "step_started"),
        *("step_recovered", "run_started", "step_started", "step_error", "task_failed"),
        *("task_retried", "run_started"),
        *("step_started", "step_finished") * 2,
        "task_done",
    ]


def test_where_and_when_an_event_happened(done: Desk) -> None:
    rows = done.rows("SELECT kind, step_idx IS NOT NULL, run_id IS NOT NULL FROM events")
    for kind, has_step, has_run in rows:
        about_a_step = kind.startswith("step_") or kind in ("task_failed", "task_retried")
        assert has_step == about_a_step, kind
        assert has_run == (kind != "task_created"), kind
    types = "SELECT DISTINCT typeof(ts), typeof(seq), json_valid(data) FROM events"
    assert done.rows(types) == [("real", "integer", 1)]
    assert done.rows("SELECT typeof(created_at), typeof(updated_at) FROM tasks") == [("real",) * 2]
    assert done.rows("SELECT min(updated_at >= created_at) FROM tasks") == [1]
    assert done.rows("SELECT input FROM steps WHERE idx = 0 AND json_valid(input)") == ['{"a":"é"}']
    runs = done.rows("SELECT DISTINCT run_id FROM events WHERE run_id IS NOT NULL")
    assert len(runs) == 3
    assert all(len(run) == 8 and set(run) <= set("0123456789abcdef") for run in runs)


HISTORY_REWRITTEN = {
    "UPDATE": "UPDATE events SET kind = 'x' WHERE seq = 1",
    "UPDATE of nothing": "UPDATE events SET kind = kind",
    "UPDATE OR REPLACE": "UPDATE OR REPLACE events SET seq = 1 WHERE seq = 2",
    "DELETE": "DELETE FROM events WHERE seq = 1",
    "DELETE all": "DELETE FROM events",
    "INSERT": "INSERT INTO events SELECT * FROM events WHERE seq = 1",
    "INSERT OR REPLACE": "INSERT OR REPLACE INTO events SELECT * FROM events WHERE seq = 1",
    "REPLACE": "REPLACE INTO events(rowid, ts, task_id, kind, data) VALUES (1, 1, 't', '', '')",
    "INSERT OR IGNORE": "INSERT OR IGNORE INTO events SELECT * FROM events WHERE seq = 1",
    "upsert": """INSERT INTO events SELECT * FROM events WHERE seq = 1
        ON CONFLICT(seq) DO UPDATE SET kind = 'x'""",
}


@pytest.mark.parametrize("sql", HISTORY_REWRITTEN.values(), ids=HISTORY_REWRITTEN)
def test_events_are_append_only(done: Desk, sql: str) -> None:
    before = done.rows("SELECT * FROM events")
    with closing(sqlite3.connect(done.db)) as connection:
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(sql)
        connection.commit()
    assert done.rows("SELECT * FROM events") == before


def test_events_can_be_appended(desk: Desk) -> None:
    """The control of the triggers: what they let pass."""
    desk.create()
    desk.change("INSERT INTO events(ts, task_id, kind, data) VALUES (1, 't', 'note', '{}')")
    assert desk.kinds() == ["task_created", "note"]


BAD_ROWS = [
    "UPDATE tasks SET status = 'sleeping'",
    "UPDATE steps SET status = 'sleeping'",
    "UPDATE steps SET status = NULL",
    "INSERT INTO steps SELECT * FROM steps",
    "INSERT INTO tasks SELECT * FROM tasks",
    "INSERT INTO steps SELECT 'nobody', idx, tool, input, status, output, attempts FROM steps",
]


@pytest.mark.parametrize("sql", BAD_ROWS)
def test_rows_that_no_agent_writes_are_refused(done: Desk, sql: str) -> None:
    with closing(sqlite3.connect(done.db)) as connection:
        connection.execute("PRAGMA foreign_keys=ON")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(sql)


def test_application_id_and_user_version_are_set(done: Desk) -> None:
    assert done.rows("PRAGMA application_id") != [0]
    assert done.rows("PRAGMA user_version") == [1]
    assert done.rows("PRAGMA journal_mode") == ["wal"]
    assert done.rows("PRAGMA foreign_key_check") == []


PRAGMAS = """
import sqlite3

_open = []

class Kept(sqlite3.Connection):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        _open.append(self)

_connect = sqlite3.connect
sqlite3.connect = lambda *a, **o: _connect(*a, **{**o, "factory": Kept})

def ask(input, ctx, idem_key):
    return {name: _open[-1].execute(f"PRAGMA {name}").fetchone()[0] for name in input["names"]}
"""


def test_the_pragmas_of_the_connection_that_writes(desk: Desk) -> None:
    answers = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    desk.tools(PRAGMAS)
    desk.create({"goal": "g", "steps": [{"tool": "ask", "input": {"names": list(answers)}}]})
    assert desk.run("run", "t").code == 0
    assert json.loads(desk.rows("SELECT output FROM steps")[0]) == answers


WATCHED = """
import sqlite3

class Watched(sqlite3.Connection):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.set_trace_callback(_note)

def _note(statement):
    if statement.split()[0] in ("BEGIN", "COMMIT", "INSERT", "UPDATE", "DELETE"):
        with open("statements", "a") as file:
            file.write(" ".join(statement.split()[:3]) + "\\n")

_connect = sqlite3.connect
sqlite3.connect = lambda *a, **o: _connect(*a, **{**o, "factory": Watched})
"""


def test_a_change_and_its_journal_entry_commit_in_one_transaction(desk: Desk) -> None:
    """And each transaction begins IMMEDIATE; no statement writes outside of one."""
    desk.tools(WATCHED)
    desk.create()
    (desk.folder / "statements").unlink()
    assert desk.run("run", "t").code == 0
    statements = (desk.folder / "statements").read_text().split("\n")[:-1]
    transactions: list[list[str]] = []
    for statement in statements:
        if statement.startswith("BEGIN"):
            assert statement == "BEGIN IMMEDIATE"
            transactions.append([])
        else:
            transactions[-1].append(statement)
    assert len(transactions) == 1 + 3 * 2 + 1
    for writes in transactions:
        assert writes[-1] == "COMMIT"
        assert "INSERT INTO events" in writes
        assert any(write.startswith("UPDATE ") for write in writes)

"""`Journal`: one dtype table, nothing written, and one clear line for what cannot be read."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest

from labkit import guard
from labkit.errors import BadInput, NotFound, StorageFault, UnknownTask
from labkit.journal import Journal, copy, timeline
from tests.conftest import RunAgent
from tests.journal.conftest import Tamper

EVENT_DTYPES = {
    "seq": "Int64",
    "ts": "datetime64[us, UTC]",
    "task_id": "string",
    "run_id": "string",
    "owner": "string",
    "kind": "category",
    "step_idx": "Int64",
    "step": "string",
    "attempt": "Int64",
    "data": "string",
}


def test_events_are_the_rows_of_the_view(killed_twice: Path) -> None:
    events = Journal(killed_twice).events()
    assert {name: str(dtype) for name, dtype in events.dtypes.items()} == EVENT_DTYPES
    assert list(events["seq"]) == list(range(1, 16))
    assert events["ts"][2] == pd.Timestamp("2026-01-01 00:01:02", tz="UTC")
    assert events["kind"].value_counts()["run_started"] == 3
    assert events["step_idx"].isna().sum() == 5
    assert events["data"][2] == '{"tool":"fetch","attempt":1}'


def test_words_are_those_of_the_rows_however_they_repeat(tamper: Tamper) -> None:
    """A whole piece of one word, several in a piece, none at all, and a kind that is unknown."""
    more = """WITH RECURSIVE n(i) AS (SELECT 16 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
        INSERT INTO events SELECT i, 1e9, iif(i < 800, 'demo', 't' || i % 7), iif(i % 3, 'r', NULL),
        iif(i = 900, 'new_kind', 'run_started'), NULL, '{}', NULL, 's' || i, i FROM n"""
    path = tamper(more)
    events = Journal(path).events()
    assert {name: str(dtype) for name, dtype in events.dtypes.items()} == EVENT_DTYPES
    rows = Journal(path).read()
    for name in ("task_id", "run_id", "owner", "kind", "step"):
        column = events[name].astype(object)
        assert column.where(column.notna(), None).tolist() == [getattr(r, name) for r in rows]
    assert list(events["kind"].cat.categories)[-1] == "new_kind"


def test_steps_attempts_and_runs(killed_twice: Path) -> None:
    journal = Journal(killed_twice)
    steps = journal.steps()
    assert list(zip(steps["tool"], steps["status"], steps["attempts"], strict=True)) == [
        ("fetch", "done", 1),
        ("summarize", "done", 2),
        ("write_artifact", "done", 2),
    ]
    attempts = journal.attempts()
    assert list(attempts["ended"]) == ["finished", "recovered", "finished", "recovered", "finished"]
    assert list(attempts["ended_by"].str[-1]) == ["1", "2", "2", "3", "3"]
    assert attempts["ended_seq"].dtype == attempts["attempt"].dtype == "Int64"
    runs = journal.runs()
    assert list(runs["owner"]) == ["00000001", "00000002", "00000003"]
    assert list(runs["ended"].astype("string").fillna("-")) == ["-", "-", "done"]
    assert list(runs["recovered"]) == [0, 1, 1]


def test_frames_of_one_task(killed_twice: Path) -> None:
    journal = Journal(killed_twice)
    for read in (journal.events, journal.steps, journal.attempts, journal.runs):
        assert len(read("demo")) == len(read()) > 0
        empty = read("other")
        assert len(empty) == 0
        assert list(empty.dtypes.astype(str)) == list(read().dtypes.astype(str))


def test_at_folds_the_events_alone(killed_twice: Path, tamper: Tamper) -> None:
    journal = Journal(tamper("DELETE FROM steps"))  # the tables are not asked
    seen = [journal.at(seq) for seq in (0, 1, 5, 6, 14, 99)]
    assert [list(s.tasks["status"]) for s in seen] == [
        [], ["pending"], ["running"], ["running"], ["running"], ["done"],
    ]  # fmt: skip
    assert list(seen[1].steps["status"]) == ["pending"] * 3
    assert list(seen[2].steps["status"]) == ["done", "running", "pending"]
    assert list(seen[3].steps["status"]) == ["done", "pending", "pending"]
    assert list(seen[3].steps["attempts"]) == [1, 1, 0]
    assert list(seen[5].steps["status"]) == ["done"] * 3


def test_sql_types_come_from_the_values(killed_twice: Path) -> None:
    frame = Journal(killed_twice).sql(
        """SELECT seq, step_idx, ts, kind, NULL AS n, x'00' AS b, seq AS seq
        FROM journal WHERE seq < ?""",
        (4,),
    )
    assert list(frame.columns) == ["seq", "step_idx", "ts", "kind", "n", "b", "seq"]
    assert [str(d) for d in frame.dtypes] == [
        "Int64", "Int64", "Float64", "string", "object", "object", "Int64",
    ]  # fmt: skip
    assert len(frame) == 3


def test_sql_reads_into_the_data(killed_twice: Path) -> None:
    query = """SELECT seq, value AS idx FROM journal, json_each(data, '$.recovered')
        WHERE kind = 'run_started' ORDER BY seq"""
    rows = Journal(killed_twice).sql(query)
    assert rows.to_dict("list") == {"seq": [7, 12], "idx": [1, 2]}


def test_sql_without_rows_has_columns(killed_twice: Path) -> None:
    assert list(Journal(killed_twice).sql("SELECT seq FROM journal WHERE seq = 99").columns) == [
        "seq"
    ]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("INSERT INTO events (seq) VALUES (99)", "INSERT is not a query"),
        ("DELETE FROM tasks", "DELETE is not a query"),
        ("-- SELECT\n/* SELECT */ drop table tasks", "DROP is not a query"),
        ("WITH a AS (SELECT 1) DELETE FROM tasks", "this statement would write; use SELECT"),
        ("ATTACH 'made.db' AS made", "ATTACH is not a query"),
        ("VACUUM INTO 'made.db'", "VACUUM is not a query"),
        ("PRAGMA journal_mode = DELETE", "PRAGMA is not a query"),
        ("", "nothing is not a query"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("SELECT nope FROM journal", "no such column: nope"),
        ("SELECT FROM", "syntax error"),
        ("SELECT ?", "Incorrect number of bindings"),
        ("SELECT '\0'", "null character"),
        ("SELECT '\ud800'", "surrogates not allowed"),
    ],
)
def test_sql_refuses_in_one_line(
    query: str, message: str, killed_twice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as refused:
        Journal(killed_twice).sql(query)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert os.listdir(tmp_path) == []


def test_nothing_is_written(tamper: Tamper, tmp_path: Path) -> None:
    """The file's bytes, with every verb used; no connection is open when they are compared."""
    path = tamper()
    before = path.read_bytes()
    journal = Journal(path)
    journal.events(), journal.steps(), journal.attempts(), journal.runs(), journal.laws()
    journal.at(5), journal.story("demo"), journal.sql("SELECT * FROM tasks")
    with pytest.raises(BadInput):
        journal.sql("WITH a AS (SELECT 1) DELETE FROM tasks")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nope\.db does not exist, and was not created"):
        Journal(tmp_path / "nope.db")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["garbage", "another program's", "a folder"])
def test_what_is_no_journal_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    if kind == "garbage":
        path.write_bytes(b"no database " * 100)
    elif kind == "a folder":
        path.mkdir()
    else:
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE things (x)")
        database.close()
    why = r"x\.db is a folder" if kind == "a folder" else r"x\.db"
    with pytest.raises(StorageFault, match=why):
        Journal(path)


def test_an_interrupted_creation_is_a_journal_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    path.touch()
    journal = Journal(path)
    frames = (journal.events(), journal.steps(), journal.attempts(), journal.runs())
    assert [len(frame) for frame in frames] == [0, 0, 0, 0]
    assert journal.laws().broken == ()
    with pytest.raises(UnknownTask):
        journal.story("demo")


def test_a_value_of_another_type_is_one_line(tamper: Tamper) -> None:
    with pytest.raises(BadInput, match="column attempts was altered by hand"):
        Journal(tamper("UPDATE steps SET attempts = 9e999")).steps()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("attempt = 'two'", "attempt"),
        ("attempt = 1e300", "attempt"),
        ("step_idx = 'abc' || char(27, 10)", "step_idx"),
        ("run_id = x'00ff'", "run_id"),
        ("owner = x'00ff'", "owner"),
        ("step = x'00ff'", "step"),
        ("kind = x'00ff'", "kind"),
        ("ts = NULL", "ts"),
        ("ts = 'now'", "ts"),
        ("ts = x'00'", "ts"),
        ("ts = 9e999", "ts"),
        ("ts = 1e300", "ts"),
        ("ts = -1e12", "ts"),
    ],
)
def test_a_value_that_no_agent_writes_is_one_line(change: str, name: str, tamper: Tamper) -> None:
    """SQLite keeps any value in any column; every reader says the same, and never guesses."""
    path = tamper(UNTYPED, f"UPDATE events SET {change} WHERE seq = 4")
    journal = Journal(path)
    readers: list[Callable[[], object]] = [
        journal.events, journal.attempts, journal.runs, journal.laws, lambda: journal.at(15),
        lambda: journal.story("demo"), lambda: timeline(path, "demo", by="time"),
    ]  # fmt: skip
    for read in readers:
        with pytest.raises(BadInput, match=f"event 4: its {name} is no .*altered by hand"):
            read()
    assert len(journal.sql("SELECT * FROM events WHERE seq = 4")) == 1  # to look at it


# A table that takes anything, also what NOT NULL and an affinity would refuse or convert.
UNTYPED = """
    CREATE TABLE any_events AS SELECT * FROM events; DROP VIEW journal; DROP TABLE events;
    CREATE TABLE events (seq INTEGER PRIMARY KEY, ts, task_id, run_id, kind, step_idx, data, owner,
        step, attempt);
    INSERT INTO events SELECT seq, ts, task_id, run_id, kind, step_idx, data, owner, step, attempt
        FROM any_events;
    CREATE VIEW journal AS SELECT seq, ts, task_id, run_id, owner, kind, step_idx, step, attempt,
        data FROM events"""


def test_a_plan_of_no_size_takes_no_memory(tamper: Tamper) -> None:
    steps = f"json_set(data, '$.steps', {10**12})"
    journal = Journal(tamper(f"UPDATE events SET data = {steps} WHERE kind = 'task_created'"))
    for read in (journal.laws, lambda: journal.at(15), lambda: timeline(journal, "demo")):
        with pytest.raises(BadInput, match="event 1: a plan of 1000000000000 steps"):
            read()


def test_what_a_terminal_would_obey_is_never_printed(tamper: Tamper) -> None:
    data = json.dumps({"recovered": ["\x1b[31m\n"]})
    journal = Journal(tamper(f"UPDATE events SET data = '{data}' WHERE seq = 7"))
    assert journal.story("demo").splitlines()[7].endswith(r"recovered step \x1b[31m\n.")


def test_what_cannot_be_judged_is_told_in_one_line(tamper: Tamper) -> None:
    renamed = "task_id = task_id || char(27, 10)"
    open_task = tamper(
        *(f"UPDATE {table} SET {renamed}" for table in ("steps", "events")),
        f"UPDATE tasks SET {renamed.replace('task_id', 'id')}",
        "DELETE FROM events WHERE seq > 3",
    )
    verdicts = repr(Journal(open_task).laws())
    assert "is open (seq 3)" in verdicts
    assert "\x1b" not in verdicts
    assert len(verdicts.splitlines()) == 6


def test_a_damaged_schema_is_a_fault_of_the_storage(killed_twice: Path, tmp_path: Path) -> None:
    """SQLite quotes it in its message, which is then no UTF-8."""
    path = tmp_path / "damaged.db"
    copy(str(killed_twice), str(path))
    damaged = bytearray(path.read_bytes())
    damaged[damaged.find(b"CREATE VIEW journal") + 3] = 0xFC
    path.write_bytes(damaged)
    with pytest.raises(StorageFault, match=r"damaged\.db"):
        Journal(path)


def test_a_query_for_too_much_is_a_mistake(killed_twice: Path) -> None:
    with pytest.raises(BadInput, match="too big"):
        Journal(killed_twice).sql("SELECT zeroblob(2000000000)")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("x", "event 7: its data is not a JSON object"),
        ("[]", "event 7: its data is not a JSON object"),
        ("", "event 7: its data is not a JSON object"),
        ("[" * 100_000, "event 7: its data is not a JSON object"),
        ('{"recovered": 1}', "event 7: 'recovered' in its data is no list"),
    ],
)
def test_data_that_means_nothing_is_one_line(data: str, message: str, tamper: Tamper) -> None:
    journal = Journal(tamper(f"UPDATE events SET data = '{data}' WHERE seq = 7"))
    for read in (journal.laws, lambda: journal.story("demo")):
        with pytest.raises(BadInput, match=re.escape(message)):
            read()


def test_a_clock_without_whole_seconds(tamper: Tamper) -> None:
    journal = Journal(tamper("UPDATE events SET ts = 1767225600.123456 WHERE seq = 3"))
    assert journal.events()["ts"][2] == pd.Timestamp("2026-01-01 00:00:00.123456", tz="UTC")


def test_big_integers_stay_exact(tamper: Tamper) -> None:
    journal = Journal(tamper(f"UPDATE events SET attempt = {2**60 + 1} WHERE seq = 3"))
    assert journal.events()["attempt"][2] == 2**60 + 1


# Folders that cannot be written.


@pytest.fixture
def sealed() -> Iterator[Path]:
    """A folder for others to read: pytest's own folders are closed to everyone else."""
    folder = Path(tempfile.mkdtemp(prefix="labkit-sealed-"))
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def read_as_nobody(path: Path) -> subprocess.CompletedProcess[str]:
    """Root may write everywhere, so as root it becomes nobody, once its imports are done."""
    code = """if True:
        import os, sys
        from labkit.errors import StorageFault
        from labkit.journal import Journal
        Journal, pandas = Journal, __import__("pandas")
        if os.geteuid() == 0:
            os.setuid(65534)
        try:
            print(len(Journal(sys.argv[1]).events()))
        except StorageFault as error:
            print(error)"""
    argv = [sys.executable, "-c", code, str(path)]
    return subprocess.run(argv, capture_output=True, encoding="utf-8", check=True)


def test_a_sealed_folder_without_wal_is_read(tamper: Tamper, sealed: Path) -> None:
    path = sealed / "state.db"
    with sqlite3.connect(shutil.copyfile(tamper(), path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
    database.close()
    assert [p.name for p in sealed.iterdir()] == ["state.db"]
    sealed.chmod(0o555)
    assert read_as_nobody(path).stdout == "15\n"


def test_a_sealed_folder_with_wal_is_refused(left_open: Path, sealed: Path) -> None:
    for name in ("state.db", "state.db-wal"):  # as a killed agent left them
        shutil.copyfile(left_open.with_name(name), sealed / name)
    sealed.chmod(0o555)
    assert "has a -wal beside it" in read_as_nobody(sealed / "state.db").stdout
    assert "copy both files" in read_as_nobody(sealed / "state.db").stdout


# The live tail.


def test_follow_sees_each_event_once(run_agent: RunAgent, folder: Path) -> None:
    assert run_agent("create", "t", "plan.json").code == 0
    journal = Journal(folder / "state.db")
    stop, kinds = threading.Event(), []
    env = {**os.environ, "AGENT_STEP_DELAY": "0.05"}
    argv = [sys.executable, "-m", "labkit.restart", "run", "t"]
    with guard.start(argv, cwd=str(folder), env=env) as agent:
        for event in journal.follow("t", poll_s=0.01, stop=stop):
            kinds.append(event.kind)
            if event.kind == "task_done":
                stop.set()
        assert agent.wait(20) == 0
    assert kinds == list(journal.events("t")["kind"])


def test_follow_goes_on_after_a_place_and_ends_when_told(killed_twice: Path) -> None:
    stop = threading.Event()
    stop.set()
    assert [e.seq for e in Journal(killed_twice).follow(after=13, stop=stop)] == [14, 15]


def test_the_name_is_all_that_is_shown(killed_twice: Path) -> None:
    assert repr(Journal(killed_twice)) == "Journal('state.db')"


@pytest.mark.parametrize("statement", ["", "UPDATE events SET task_id = x'00' WHERE seq = 3"])
def test_the_collector_is_on_again_after_reading(tamper: Tamper, statement: str) -> None:
    path = tamper(statement)
    with suppress(BadInput):
        Journal(path).events()
    assert gc.isenabled()

"""Opening, transactions, and what becomes of each failure of SQLite."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from labkit import database
from labkit.database import BUSY_S, Database, Schema, connect, look, open_readonly
from labkit.errors import NotFound, StorageBusy, StorageFault

SCHEMA: Schema = (0x7465_7374, 3, ("CREATE TABLE notes (n INTEGER PRIMARY KEY)",))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "odd %?#é name.db")


@pytest.fixture
def db(path: str) -> Iterator[Database]:
    made = connect(path, SCHEMA, create=True)
    yield made
    made.close()


def test_connect_makes_the_schema_once(path: str, db: Database) -> None:
    assert db.value("PRAGMA application_id") == SCHEMA[0]
    assert db.value("PRAGMA user_version") == SCHEMA[1]
    with closing(connect(path, SCHEMA, create=True)) as again:
        assert again.value("SELECT count(*) FROM notes") == 0


def test_connect_requires_each_pragma(db: Database) -> None:
    answers = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    assert {name: db.value(f"PRAGMA {name}") for name in answers} == answers
    assert {name: answer for name, _, answer in database.PRAGMAS} == answers


def test_connect_without_create_makes_nothing(path: str) -> None:
    with pytest.raises(NotFound):
        connect(path, SCHEMA)
    assert not os.path.exists(path)


def test_open_readonly_never_creates(path: str) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        open_readonly(path)
    assert not os.path.exists(path)


def test_open_readonly_refuses_to_write(path: str, db: Database) -> None:
    with closing(open_readonly(path)) as reader:
        with pytest.raises(StorageFault, match="readonly"):
            reader.execute("INSERT INTO notes VALUES (1)")
        with pytest.raises(StorageFault, match="readonly"):
            reader.execute("CREATE TABLE more (x)")
        assert reader.value("SELECT count(*) FROM notes") == 0


def test_a_reader_does_not_wait_for_a_writer(path: str, db: Database) -> None:
    with db.transaction():
        db.execute("INSERT INTO notes VALUES (1)")
        with closing(open_readonly(path)) as reader:
            assert reader.value("SELECT count(*) FROM notes") == 0
    with closing(open_readonly(path)) as reader:
        assert reader.value("SELECT count(*) FROM notes") == 1


def test_look_finds_no_schema_in_an_interrupted_creation(path: str) -> None:
    Path(path).touch()
    assert look(path, SCHEMA) is None
    assert os.path.getsize(path) == 0


@pytest.mark.parametrize(("mark", "value"), [("user_version", 4), ("application_id", 1)])
def test_look_refuses_what_is_newer_or_not_ours(
    path: str, db: Database, mark: str, value: int
) -> None:
    db.execute(f"PRAGMA {mark}={value}")
    with pytest.raises(StorageFault, match="newer" if mark == "user_version" else "another"):
        look(path, SCHEMA)


def test_look_accepts_what_is_older(path: str, db: Database) -> None:
    db.execute("PRAGMA user_version=2")
    found = look(path, SCHEMA)
    assert found
    found.close()


def test_a_transaction_is_all_or_nothing(db: Database) -> None:
    with pytest.raises(KeyError), db.transaction():
        raise KeyError(db.execute("INSERT INTO notes VALUES (1)"))
    assert db.value("SELECT count(*) FROM notes") == 0
    with db.transaction():
        db.execute("INSERT INTO notes VALUES (?), (?)", 1, 2)
    assert [row["n"] for row in db.rows("SELECT n FROM notes WHERE n > ?", 1)] == [2]
    assert db.value("SELECT n FROM notes WHERE n > 9") is None


def test_a_transaction_locks_before_its_first_read(path: str, db: Database) -> None:
    locked = pytest.raises(sqlite3.OperationalError, match="locked")
    with db.transaction(), closing(sqlite3.connect(path, timeout=0)) as other, locked:
        other.execute("INSERT INTO notes VALUES (1)")


def test_a_database_that_stays_busy(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds in earnest, fifty milliseconds here."""
    assert BUSY_S == 10
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    with closing(connect(path, SCHEMA, create=True)) as one:
        busy = pytest.raises(StorageBusy, match="try again")
        with closing(connect(path, SCHEMA)) as two, one.transaction(), busy, two.transaction():
            pass
        with one.transaction():
            one.execute("INSERT INTO notes VALUES (1)")


def test_a_mistake_in_a_program_is_no_fault_of_the_storage(db: Database) -> None:
    with pytest.raises(sqlite3.ProgrammingError):
        db.execute("SELECT ?")


def lost(path: str) -> None:
    os.unlink(path)


def replaced(path: str) -> None:
    Path(f"{path}.copy").write_bytes(b"x" * 100_000)
    os.replace(f"{path}.copy", path)


def truncated(path: str) -> None:
    os.truncate(path, os.path.getsize(path) - 1)


@pytest.mark.parametrize("lose", [lost, replaced, truncated])
def test_before_each_transaction_the_file_is_still_there(tmp_path: Path, lose: object) -> None:
    """In a process of its own, since here a plain file call must not touch an open database."""
    assert callable(lose)
    script = """
import sys
from labkit.database import connect
from labkit.errors import StorageFault
from tests.ground import test_database
db = connect("x.db", test_database.SCHEMA, create=True)
with db.transaction():
    db.execute("INSERT INTO notes VALUES (1)")
db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
with db.transaction():
    db.execute("INSERT INTO notes VALUES (2)")
getattr(test_database, sys.argv[1])("x.db")
try:
    with db.transaction():
        print("begun")
except StorageFault as fault:
    print("refused", fault)
"""
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script, lose.__name__],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("refused")
    assert "x.db" in done.stdout


def test_a_symlink_that_leads_elsewhere_is_seen(tmp_path: Path) -> None:
    for name in ("one.db", "two.db"):
        connect(str(tmp_path / name), SCHEMA, create=True).close()
    link = tmp_path / "link.db"
    link.symlink_to("one.db")
    with closing(connect(str(link), SCHEMA)) as db:
        link.unlink()
        link.symlink_to("two.db")
        with pytest.raises(StorageFault, match="replaced"), db.transaction():
            pass

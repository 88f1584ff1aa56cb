"""The file of a SQLite store: opened, refused, migrated, busy, full, lost, made by many at once.

What needs a file that plain calls look at, a limit or a kill happens in a process of its own: this
one must not read a database with plain file calls while SQLite has it open here.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from labkit.database import connect
from labkit.durable import (
    EncryptedPayloadCodec,
    FakeClock,
    PayloadCodec,
    PlaintextPayloadCodec,
    RunStoreIntegrityError,
    SQLiteRunStore,
    StoreBusyError,
    StoreError,
)
from labkit.durable.records import Hold
from labkit.durable.stores import schema
from labkit.errors import NotFound
from labkit.restart.store import SCHEMA as OF_THE_RESTART_AGENT
from tests.durable.stores import TOOL, TTL, Bench
from tests.restart.kit import READ_ONLY, UNSHARE, needs_namespaces

ROOT = Path(__file__).parents[2]
OLD_KEY, NEW_KEY = Fernet.generate_key(), Fernet.generate_key()
PLAIN = PlaintextPayloadCodec()


def sealed(*keys: bytes) -> PayloadCodec:
    return EncryptedPayloadCodec(keys)


@contextmanager
def opened(path: Path | str, codec: PayloadCodec = PLAIN) -> Iterator[Bench]:
    clock = FakeClock()
    bench = Bench(SQLiteRunStore(path, codec, clock), clock)
    try:
        yield bench
    finally:
        bench.close()


def fingerprint(path: Path) -> bytes:
    """Of the bytes of a file that nobody has open."""
    return hashlib.sha256(path.read_bytes()).digest()


def refuses(path: Path, match: str, codec: PayloadCodec = PLAIN) -> None:
    """One line that names the file, and not a byte is changed."""
    before = fingerprint(path)
    with pytest.raises(RunStoreIntegrityError, match=match) as caught:
        SQLiteRunStore(path, codec)
    assert len(str(caught.value).splitlines()) == 1
    assert path.name in str(caught.value)
    assert fingerprint(path) == before


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def filled(path: Path) -> Path:
    """A file with a run in it, closed."""
    with opened(path) as bench:
        hold = bench.start()
        bench.succeed(hold, bench.begin(hold))
    return path


# --- opening


WRONG: list[tuple[PayloadCodec, PayloadCodec]] = [
    (PLAIN, sealed(OLD_KEY)),
    (sealed(OLD_KEY), PLAIN),
    (sealed(OLD_KEY), sealed(NEW_KEY)),
]


@pytest.mark.parametrize(("right", "wrong"), WRONG, ids=["plain", "sealed", "key"])
def test_another_key_opens_nothing_and_changes_nothing(
    path: Path, right: PayloadCodec, wrong: PayloadCodec
) -> None:
    with opened(path, right) as bench:
        bench.start()
        before = bench.everything()
    refuses(path, "key|plaintext", wrong)
    with opened(path, right) as bench:
        assert bench.everything() == before


def test_another_key_does_not_take_a_file_forward(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = schema_of(filled)
    monkeypatch.setattr(schema, "VERSIONS", (*schema.VERSIONS, ("CREATE TABLE more (x)",)))
    refuses(filled, "key", sealed(NEW_KEY))
    assert schema_of(filled) == old  # a change may lie in the -wal, beside an unchanged file


def test_a_newer_key_reads_what_an_older_one_sealed(path: Path) -> None:
    with opened(path, sealed(OLD_KEY)) as bench:
        bench.create(input="old")
    with opened(path, sealed(NEW_KEY, OLD_KEY)) as bench:
        assert bench.run().input == "old"
        bench.create("new", input="new")
    refuses(path, "key", sealed(NEW_KEY))


def change(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def test_a_newer_file_is_left_alone(filled: Path) -> None:
    change(filled, "PRAGMA user_version=99")
    refuses(filled, "newer")


def test_the_file_of_another_program_is_left_alone(path: Path) -> None:
    change(path, "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
    refuses(path, "another program")


def test_the_file_of_the_restart_agent_is_left_alone(path: Path) -> None:
    connect(str(path), OF_THE_RESTART_AGENT, create=True).close()
    refuses(path, "another program")


def no_database(path: Path) -> None:
    path.write_bytes(b"Dear diary,\n" * 1000)


def no_header(path: Path) -> None:
    path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def no_first_page(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * 3996 + content[4096:])


@pytest.mark.parametrize("damage", [no_database, no_header, half, no_first_page])
def test_a_damaged_file_is_refused_as_it_is(filled: Path, damage: Callable[[Path], None]) -> None:
    damage(filled)
    refuses(filled, "runs.db")


def test_damage_found_later_is_told_and_takes_no_lease(filled: Path) -> None:
    with opened(filled) as bench:
        bench.create("other")
    change(filled, "UPDATE runs SET input = x'00' WHERE run_id = 'r'")
    with opened(filled) as bench:
        bench.clock.advance(TTL)
        events = bench.journal()
        for verb in (bench.run, bench.inspect, lambda: bench.acquire(version=2)):
            with pytest.raises(RunStoreIntegrityError) as caught:
                verb()
            assert len(str(caught.value).splitlines()) == 1
        assert bench.journal() == events
        assert bench.ids() == ["r", "other"]  # a list opens no payload
        bench.acquire("other")


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="make it first"):
        SQLiteRunStore(tmp_path / "no" / "runs.db", PLAIN)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["odd %?#&é name.db", "file:x?mode=memory", "-", ":memory:", "ü;"])
def test_a_path_is_taken_as_it_is(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (name, tmp_path / name):
        with opened(path) as bench:
            bench.create(f"run of {type(path).__name__}")
    with opened(name) as bench:
        assert len(bench.ids()) == 2
    left = {each.name.removesuffix("-wal").removesuffix("-shm") for each in tmp_path.iterdir()}
    assert left == {name}


# --- migrations

SECOND = (
    "ALTER TABLE runs ADD COLUMN colour TEXT",
    "CREATE TABLE colours (name TEXT PRIMARY KEY)",
    "INSERT INTO colours VALUES ('blue')",
    "UPDATE runs SET colour = 'blue'",
)


def schema_of(path: Path) -> tuple[int, list[str]]:
    with closing(sqlite3.connect(path)) as connection:
        [(version,)] = connection.execute("PRAGMA user_version")
        rows = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")
        return version, sorted(sql for (sql,) in rows)


def test_an_older_file_is_taken_forward_once(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(filled) as bench:
        before = bench.everything()
    monkeypatch.setattr(schema, "VERSIONS", (*schema.VERSIONS, SECOND))
    for _ in range(2):
        with opened(filled) as bench:
            assert bench.everything() == before
    assert schema_of(filled)[0] == 2
    fresh = filled.with_name("fresh.db")
    with opened(fresh):
        pass
    assert schema_of(fresh) == schema_of(filled)
    monkeypatch.undo()
    refuses(filled, "newer")


@pytest.mark.parametrize("nth", range(1, len(SECOND) + 1))
def test_a_migration_that_fails_in_the_middle_leaves_the_old_file(
    filled: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    with opened(filled) as bench:
        before, old = bench.everything(), schema_of(filled)
    broken = (*SECOND[:nth], "INSERT INTO nowhere VALUES (1)", *SECOND[nth:])
    with monkeypatch.context() as patch:
        patch.setattr(schema, "VERSIONS", (*schema.VERSIONS, broken))
        with pytest.raises(StoreError, match="nowhere"):
            SQLiteRunStore(filled, PLAIN)
    assert schema_of(filled) == old
    with opened(filled) as bench:
        assert bench.everything() == before
    monkeypatch.setattr(schema, "VERSIONS", (*schema.VERSIONS, SECOND))
    with opened(filled) as bench:
        assert bench.everything() == before


# --- processes of their own


def start(folder: Path, script: str, *args: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", script, *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def say(folder: Path, script: str, *args: str) -> list[Any]:
    """The JSON lines that a process prints to its end."""
    with start(folder, script, *args) as process:
        out, err = process.communicate(timeout=50)
    assert (process.returncode, err) == (0, ""), err
    return [json.loads(line) for line in out.splitlines()]


OPENER = f"""
import sys
from labkit.durable import *
from labkit.durable.records import Hold
from labkit.durable.stores import schema
if "old" not in sys.argv:
    schema.VERSIONS = (*schema.VERSIONS, {SECOND!r})
print(flush=True)
sys.stdin.readline()
with SQLiteRunStore("runs.db", PlaintextPayloadCodec()):
    pass
"""


@pytest.mark.parametrize("there", [True, False], ids=["older", "new"])
def test_four_openers_at_once_agree(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "runs.db"
    if there:
        with opened(path) as bench:
            bench.start()
            before = bench.everything()
    openers = [start(tmp_path, OPENER) for _ in range(4)]
    for opener in openers:
        assert opener.stdout
        assert opener.stdout.readline() == "\n"
    for opener in openers:
        assert opener.stdin
        opener.stdin.write("\n")
        opener.stdin.flush()
    for opener in openers:
        assert opener.communicate(timeout=50) == ("", "")
        assert opener.returncode == 0
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM colours").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM seal").fetchone() == (1,)
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        columns = "input, version, lease_owner"
        runs = connection.execute(f"SELECT {columns} FROM runs").fetchall()
    assert len(runs) == there
    if there:
        assert runs[0][1:] == (before[0][0].run.version, "ann")


# Kills itself before the n-th statement; a child is forked for each, from a process without SQLite.
DIES = """
import json, os, signal, sqlite3, sys
from labkit.durable import *

class Connection(sqlite3.Connection):
    def execute(self, *args):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(*args)

real = sqlite3.connect
sqlite3.connect = lambda *a, **kw: real(*a, **kw, factory=Connection)
code, nth = -9, 0
while code == -9:
    nth += 1
    os.mkdir(str(nth))
    path = f"{nth}/runs.db"
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps(code), flush=True)
    else:
        left = nth
        SQLiteRunStore(path, PlaintextPayloadCodec()).close()
        os._exit(0)
"""


def test_a_creation_killed_at_any_statement_is_gone_on_with(tmp_path: Path) -> None:
    codes = say(tmp_path, DIES)
    assert codes == [-9] * (len(codes) - 1) + [0]
    assert len(codes) > 25
    with opened(tmp_path / "whole.db"):
        pass
    for nth in range(1, len(codes) + 1):
        path = tmp_path / str(nth) / "runs.db"
        with opened(path) as bench:
            hold = bench.start()
            bench.succeed(hold, bench.begin(hold))
            assert len(bench.inspect().checkpoints) == 1
        assert schema_of(path) == schema_of(tmp_path / "whole.db")


HOLDS = """
import sqlite3, sys
connection = sqlite3.connect("runs.db", isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print(flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
print(flush=True)
"""


HOLD = Hold("r", 1, 2)  # of the run in a filled file


def test_a_busy_store_says_so_soon_and_loses_nothing(filled: Path) -> None:
    with opened(filled) as bench, start(filled.parent, HOLDS) as other:
        assert other.stdin
        assert other.stdout
        other.stdout.readline()
        before = bench.everything()
        verbs: list[Callable[[], Any]] = [
            lambda: bench.create("other"),
            lambda: bench.begin(HOLD, TOOL),
            lambda: bench.renew(HOLD),
        ]
        for verb in verbs:
            begun = time.monotonic()
            with pytest.raises(StoreBusyError, match="try again"):
                verb()
            assert 0.05 < time.monotonic() - begun < 5
            assert bench.everything() == before  # reading waits for nobody
        other.stdin.write("\n")
        other.stdin.flush()
        other.stdout.readline()
        assert bench.begin(HOLD, TOOL).number == 1


def test_opening_waits_for_a_writer_that_takes_longer(filled: Path) -> None:
    """A verb is asked again by the runner; nobody asks again whether a store can be opened."""
    with start(filled.parent, HOLDS) as other:
        assert other.stdin
        assert other.stdout
        other.stdout.readline()
        with opened(filled) as bench:
            assert bench.ids() == ["r"]
        other.stdin.write("\n")
        other.stdin.flush()
        other.stdout.readline()


FULL = """
import json, os, resource, sys
from labkit.durable import *
from tests.durable.stores import *
from tests.durable.test_sqlite_file import HOLD, opened

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

with opened("runs.db") as bench:
    bench.create("other", input="x" * 30_000)
    before = bench.everything()
    verbs = [lambda: bench.create("more", input="x" * 9000), lambda: bench.begin(HOLD, TOOL)]
    for verb in verbs:
        refused = 0
        while True:
            limit(os.stat("runs.db-wal").st_size + 500 + 4000 * refused)
            try:
                verb()
            except StoreError as error:
                limit(resource.RLIM_INFINITY)
                assert bench.everything() == before, "something is left"
                refused += 1
                print(json.dumps([type(error).__name__, str(error)]))
            else:
                break
        limit(resource.RLIM_INFINITY)
        assert bench.everything() != before
        before = bench.everything()
        print(json.dumps([refused, os.stat("runs.db-wal").st_size]))
"""


def test_a_full_disk_leaves_nothing_and_room_is_enough_to_go_on(filled: Path) -> None:
    """The limit of a file's size is moved through each write: all of them but the last fail."""
    lines = say(filled.parent, FULL)
    counts = [line[0] for line in lines if isinstance(line[0], int)]
    errors = [line for line in lines if isinstance(line[0], str)]
    assert len(counts) == 2
    assert min(counts) >= 2
    assert len(errors) == sum(counts)
    for kind, message in errors:
        assert (kind, "runs.db" in message, len(message.splitlines())) == ("StoreError", True, 1)
    with opened(filled) as bench:
        assert bench.ids() == ["r", "other", "more"]


LOST = """
import json, os, shutil, sys
from labkit.durable import *
from tests.durable.stores import *
from tests.durable.test_sqlite_file import HOLD, NotFound, opened

def deleted():
    for name in os.listdir("."):
        os.unlink(name)
def moved():
    os.rename("runs.db", "kept.db")
def replaced():
    with open("other.db", "wb") as file:
        file.write(b"x" * 100_000)
    os.replace("other.db", "runs.db")
def truncated():
    os.truncate("runs.db", 4096)
def linked():
    os.link("runs.db", "second name.db")

with opened("runs.db") as bench:
    globals()[sys.argv[1]]()
    for verb in (lambda: bench.begin(HOLD, TOOL), lambda: bench.create("other"), bench.ids):
        try:
            verb()
        except (StoreError, NotFound) as error:
            print(json.dumps(str(error)))
        else:
            print(json.dumps(None))
print(json.dumps(sorted(os.listdir("."))))
if sys.argv[1] == "moved":
    os.rename("kept.db", "runs.db")
    with opened("runs.db") as bench:
        print(json.dumps(bench.ids()))
"""


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["deleted", "moved", "replaced", "truncated", "linked"])
def test_a_file_that_is_lost_is_not_made_anew(filled: Path, how: str) -> None:
    """Not at the next try either: an empty store would say that there never was a run."""
    *said, left = say(filled.parent, LOST, how)[:4]
    assert [line for line in said if line is None] == []
    assert all(len(line.splitlines()) == 1 and "runs.db" in line for line in said)
    assert ("runs.db" in left) == (how not in ("deleted", "moved"))


def test_a_file_that_comes_back_is_used_again(filled: Path) -> None:
    *_, runs = say(filled.parent, LOST, "moved")
    assert runs == ["r"]


def test_another_thread_is_told_to_make_its_own_store(filled: Path) -> None:
    with opened(filled) as bench, ThreadPoolExecutor(1) as pool:
        store = bench.store
        before = bench.everything()
        verbs = [store.get_run("r"), store.inspect_run("r"), store.renew_lease(HOLD, TTL),
                 store.read_journal(), store.create_run(bench.new("other"))]  # fmt: skip
        for verb in verbs:
            with pytest.raises(StoreError, match="one store for each thread") as caught:
                pool.submit(asyncio.run, verb).result()
            assert len(str(caught.value).splitlines()) == 1
        assert bench.everything() == before


READS = """
import json
from labkit.durable import *
from labkit.errors import LabkitError
try:
    with SQLiteRunStore("runs.db", PlaintextPayloadCodec()):
        print(json.dumps("opened"))
except LabkitError as error:
    print(json.dumps(str(error)))
"""


@needs_namespaces
@pytest.mark.parametrize("there", [False, True], ids=["missing", "there"])
def test_a_folder_that_cannot_be_written_to(tmp_path: Path, there: bool) -> None:
    """Root writes everywhere, so the folder is mounted read-only, for this process alone."""
    if there:
        with opened(tmp_path / "runs.db") as bench:
            bench.create()
    argv = [*UNSHARE, "sh", "-c", READ_ONLY, "sh", str(tmp_path), sys.executable, "-c", READS]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    [message] = map(json.loads, done.stdout.splitlines())
    assert "runs.db" in message
    assert len(message.splitlines()) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["runs.db"] * there

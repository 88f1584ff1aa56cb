"""SQLite as this project uses it: every pragma with its reason, every failure with its cause, nothing repaired by guess."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from labkit.errors import NotFound, StorageBusy, StorageFault

__all__ = ["Database", "Schema", "connect", "look", "open_readonly"]

BUSY_S = 10.0

PRAGMAS = (  # each answer is fetched and required: SQLite ignores a pragma that it cannot obey
    ("journal_mode", "WAL", "wal"),  # readers never block the writer; one sync for each commit
    (
        "synchronous",
        "FULL",
        2,
    ),  # a commit is on the disk before it is acknowledged; NORMAL loses it in a power cut
    ("foreign_keys", "ON", 1),  # off by default, for each connection
    ("trusted_schema", "OFF", 0),  # the file may come from someone else
)


class Schema(NamedTuple):
    """What marks a database as one of ours: `application_id`, `user_version`, and the script that makes it."""

    application_id: int
    version: int
    script: str


class Database:
    """One connection. SQLite's errors leave as StorageFault or StorageBusy, with the cause and the path."""

    def __init__(self, path: str, query: str) -> None:
        # Absolute, since a tool may change the working directory; not resolved, so that a symlink that moves is seen.
        self.path = os.path.abspath(path)
        self._size = 0
        before = self._stat()
        uri = f"file:{_quote(self.path)}?{query}"
        with self._named():
            self._sql = sqlite3.connect(uri, timeout=BUSY_S, isolation_level=None, uri=True)
        self._inode = (before.st_dev, before.st_ino)
        self.check_file()

    def execute(self, sql: str, parameters: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        with self._named():
            return self._sql.execute(sql, parameters)

    def run_script(self, script: str) -> None:
        with self._named():
            self._sql.executescript(script)

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        with self._named():
            yield from self._sql.execute(sql, parameters)

    def value(self, sql: str, parameters: tuple[Any, ...] = ()) -> Any:
        """The first column of the first row, or None."""
        row = next(self.rows(sql, parameters), None)
        return row[0] if row else None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. IMMEDIATE: the write lock is taken before anything is read, so no read goes stale.

        After a storage fault nothing more is asked of SQLite: a second fsync can lie, and the file is as after a kill.
        """
        self.check_file()
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
        except StorageFault:
            raise
        except BaseException:
            with suppress(sqlite3.Error):  # the first error is the one to report
                self._sql.execute("ROLLBACK")
            raise
        self.execute("COMMIT")

    def check_file(self) -> None:
        """Raises StorageFault unless the path still leads to the file that was opened: writes to a deleted file are lost."""
        now = self._stat()
        if (now.st_dev, now.st_ino) != self._inode:
            raise StorageFault(
                f"{self.path} was replaced while it was in use; restore it, then run the task again"
            )
        if now.st_size < self._size:
            raise StorageFault(
                f"{self.path} was truncated while it was in use; restore it from a copy"
            )
        self._size = now.st_size

    def close(self) -> None:
        self._sql.close()

    def _stat(self) -> os.stat_result:
        try:
            return os.stat(self.path)
        except OSError as error:
            raise StorageFault(
                f"{self.path} was deleted or cannot be reached ({error.strerror}); restore it from a copy"
            ) from error

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:
            raise  # a mistake in a program, not a fault of the storage
        except (sqlite3.DatabaseError, MemoryError) as error:
            raise _fault(error, self.path) from error


def open_readonly(path: str) -> Database:
    """Opens a database without ever creating or changing one (SQLite's own -wal and -shm may appear beside it).

    Raises NotFound, or StorageFault where it cannot be read.
    """
    if not os.path.exists(path):
        raise NotFound(f"{path} does not exist; check the path, nothing was created")
    try:
        return _readable(Database(path, "mode=ro"))
    except StorageFault as fault:
        if _code(fault.__cause__) not in (
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_READONLY,
        ) or os.path.isdir(path):
            raise
    # WAL needs a writable folder for its index, except for a file that nobody has open and that has no -wal.
    if os.path.exists(path + "-wal") and os.path.getsize(path + "-wal"):
        raise StorageFault(
            f"{path} has a -wal file in a folder that cannot be written; copy both to one that can, and open the copy"
        )
    return _readable(Database(path, "mode=ro&immutable=1"))


def connect(path: str, schema: Schema, *, create: bool = False) -> Database:
    """Opens one of our databases for writing; with `create`, makes it, or goes on with an interrupted creation.

    Raises NotFound; StorageFault for a file that is not ours, newer or not a database, with nothing written to it, not
    even the journal mode; StorageBusy after BUSY_S seconds.
    """
    if create:
        _touch(path)
    end = time.monotonic() + BUSY_S
    while True:
        try:
            return _connect(path, schema)
        except (
            StorageBusy
        ):  # switching to WAL does not wait by itself when several processes do it at once
            if time.monotonic() > end:
                raise
            time.sleep(0.002)


def look(path: str, schema: Schema) -> Database | None:
    """Opens one of our databases for reading. None for an interrupted creation: a file without any schema object.

    Raises NotFound, and StorageFault for a file that is not ours, newer or not a database.
    """
    database = _open_to_look(path)
    try:
        owner, version = (
            database.value("PRAGMA application_id"),
            database.value("PRAGMA user_version"),
        )
        empty = not database.value("SELECT count(*) FROM sqlite_schema")
        if owner != schema.application_id and not (empty and owner == 0):
            raise StorageFault(
                f"{path} is a database of another program; give another --db, nothing was written to it"
            )
        if version > schema.version:
            raise StorageFault(
                f"{path} was made by a newer labkit (schema {version}, this one knows {schema.version}); update labkit"
            )
    except BaseException:
        database.close()
        raise
    if empty:
        database.close()
    return None if empty else database


def _connect(path: str, schema: Schema) -> Database:
    """Looks first, so that a foreign file is not changed; several processes may do all of this at once."""
    if (seen := look(path, schema)) is not None:
        seen.close()
    database = Database(path, "mode=rw")
    try:
        for name, wanted, answer in PRAGMAS:
            database.execute(f"PRAGMA {name}={wanted}")
            if (got := database.value(f"PRAGMA {name}")) != answer:
                raise StorageFault(
                    f"{path}: SQLite refuses {name}={wanted} (it says {got}); use a local file system"
                )
        if seen is None:
            mark = f"PRAGMA application_id={schema.application_id}; PRAGMA user_version={schema.version};"
            database.run_script(f"BEGIN IMMEDIATE; {schema.script} {mark} COMMIT;")
    except StorageBusy:
        database.close()
        raise
    return database


def _open_to_look(path: str) -> Database:
    try:
        return open_readonly(path)
    except StorageFault as fault:
        if getattr(fault.__cause__, "sqlite_errorcode", 0) != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
        return _readable(
            Database(path, "mode=rw")
        )  # a creation was cut off: only a writer can roll it back


def _readable(database: Database) -> Database:
    """SQLite opens lazily: the first read is what fails."""
    try:
        database.value("SELECT count(*) FROM sqlite_schema")
    except BaseException:
        database.close()
        raise
    return database


def _touch(path: str) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise NotFound(f"the folder {folder} does not exist; make it first")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        return
    except OSError as error:
        raise StorageFault(
            f"cannot create {path}: {error.strerror}; nothing was written"
        ) from error


def _fault(error: Exception, path: str) -> StorageFault | StorageBusy:
    if _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageBusy(f"{path} stayed busy for {BUSY_S:.0f} s; nothing was lost, try again")
    return StorageFault(
        f"{path}: {str(error) or 'out of memory'}; mend the storage or restore the file from a copy, then try again"
    )


def _code(error: BaseException | None) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _quote(path: str) -> str:
    return "".join(
        chr(byte) if byte < 128 and chr(byte) not in "%?#" else f"%{byte:02x}"
        for byte in os.fsencode(path)
    )

"""SQLite as this project uses it: each pragma with its reason, each failure with its cause."""

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import suppress

from labkit.errors import Any, NotFound, StorageBusy, StorageFault, ensure, storage_faults

__all__ = ["Database", "Row", "Schema", "connect", "look", "open_readonly"]

Row = sqlite3.Row
Schema = tuple[int, int, tuple[str, ...]]  # application_id, user_version, statements that make it
BUSY_S = 10.0
FAULTS = (sqlite3.DatabaseError, MemoryError, UnicodeDecodeError)  # the last: a damaged schema
PRAGMAS = (  # each answer is fetched and required: SQLite ignores a pragma that it cannot obey
    ("journal_mode", "WAL", "wal"),  # readers never block the writer; one sync for each commit
    ("synchronous", "FULL", 2),  # a commit is on the disk before it is acknowledged
    ("foreign_keys", "ON", 1),  # off by default, for each connection
)


class Database:
    """One connection; what SQLite cannot do leaves as StorageFault or StorageBusy with a cause."""

    def __init__(self, path: str, mode: str, busy_s: float | None = None) -> None:
        self.path = os.path.abspath(path)  # a tool may change the folder; a moved symlink must show
        self._seen, self._wal_seen, self._size, self._rw = (0, 0), 0, 0, mode == "rw"
        self._wal, self.tool_ran = f"{os.path.realpath(path)}-wal", False  # a symlink's is there
        self.check_file()
        raw, wait = os.fsencode(self.path), BUSY_S if busy_s is None else busy_s
        quoted = "".join(f"%{b:02x}" if b > 127 or b in b"%?#" else chr(b) for b in raw)
        try:
            uri = f"file:{quoted}?mode={mode}"
            self._sql = sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None)
        except FAULTS as error:
            raise self._fault(error) from error
        self._sql.row_factory = sqlite3.Row
        try:
            self.value("SELECT count(*) FROM sqlite_schema")  # the first read may roll back what a
            self._size = 0  # killed process left, and so shorten the file
            self.check_file()
        except BaseException:
            self.close()
            raise

    def execute(self, sql: str, *values: Any) -> int:  # how many rows it changed
        try:
            return self._sql.execute(sql, values).rowcount
        except FAULTS as error:
            raise self._fault(error) from error

    def rows(self, sql: str, *values: Any) -> Iterator[Row]:
        try:
            yield from self._sql.execute(sql, values)
        except FAULTS as error:
            raise self._fault(error) from error

    def value(self, sql: str, *values: Any) -> Any:  # the first column of the first row, or None
        return next((row[0] for row in self.rows(sql, *values)), None)

    def transaction(self) -> "Database":  # `with` it: all or nothing
        return self

    def __enter__(self) -> None:
        self.check_file()
        self.execute("BEGIN IMMEDIATE")  # locked before the first read, so what it reads stays true

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.execute("COMMIT")
        elif not isinstance(error, StorageFault):  # after which SQLite is asked nothing more
            with suppress(sqlite3.Error):  # the first error is the one to report
                self._sql.execute("ROLLBACK")

    def check_file(self) -> None:
        """Raises StorageFault unless the path leads to the file that was opened, and no shorter;
        after a tool also for the -wal: a tool that reads the file with plain calls drops our locks,
        and then any other process may remove the -wal that we go on writing to."""
        try:  # no context manager and no message built: this runs twice in each step
            file = os.stat(self.path)
            wal = os.stat(self._wal).st_ino if self.tool_ran else self._wal_seen
        except OSError as error:
            why = f"is gone, or its -wal: {error.strerror}; restore it"
            raise StorageFault(f"{self.path} {why}") from error
        now, names = (file.st_dev, file.st_ino), file.st_nlink if self._rw else 1
        alone = names == 1 and stat.S_ISREG(file.st_mode)  # SQLite has a -wal for each name
        same = self._seen in ((0, 0), now) and self._wal_seen in (0, wal)
        if not (same and alone and file.st_size >= self._size):
            what = "was replaced or truncated" if alone else "is no regular file with one name"
            raise StorageFault(f"{self.path} {what}; restore it, or give another --db")
        self._seen, self._wal_seen, self._size, self.tool_ran = now, wal, file.st_size, False

    def close(self) -> None:
        self._sql.close()

    def _fault(self, error: Exception) -> BaseException:
        if isinstance(error, sqlite3.ProgrammingError):
            return error  # a mistake in a program, no fault of the storage
        if _code(error) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StorageBusy(f"{self.path} stayed busy; nothing is lost, try again")
        return StorageFault(f"{self.path}: {error}; mend the storage or restore the file")


def open_readonly(path: str) -> Database:
    """Never makes or changes a file (-wal and -shm may appear). Raises NotFound, StorageFault."""
    ensure(os.path.exists(path), NotFound(f"{path} does not exist; check the path, or `create`"))
    return Database(path, "ro")


def look(path: str, schema: Schema) -> Database | None:
    """Opens one of ours for reading; None if it has no schema, since its creation was cut off.
    Raises NotFound, or StorageFault for a file that is not ours, newer or no database."""
    try:
        found = open_readonly(path)
    except StorageFault as fault:
        hot = _code(fault.__cause__) == sqlite3.SQLITE_READONLY_ROLLBACK
        ensure(hot and os.path.getsize(path) <= 4096, fault)  # of one page: it holds no table yet
        found = Database(path, "rw")  # cut off too, in a write that only a writer can roll back
    [(owner, version, objects)] = found.rows("""SELECT *, (SELECT count(*) FROM sqlite_schema)
        FROM pragma_application_id, pragma_user_version""")  # one statement: one state of the file
    if owner == schema[0] and objects and version <= schema[1]:
        return found
    found.close()
    if not objects and owner in (0, schema[0]):
        return None
    whose = "a newer labkit: update" if owner == schema[0] else "another program: try another --db"
    raise StorageFault(f"{path} belongs to {whose}; nothing was written to it")


def connect(path: str, schema: Schema, *, create: bool = False) -> Database:
    """Opens for writing; with `create`, makes the file, or goes on where a creation was cut off.
    Raises what `look` raises, before anything is written; StorageBusy after 10 seconds."""
    if create:
        folder = os.path.dirname(os.path.abspath(path))
        ensure(os.path.isdir(folder), NotFound(f"{folder} is no folder; make it first"))
        with storage_faults(f"cannot create {path}"), suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    end = time.monotonic() + BUSY_S
    while True:
        try:
            return _connect(path, schema)
        except StorageBusy:  # SQLite does not wait when several processes switch to WAL at once
            if time.monotonic() > end:
                raise
            time.sleep(0.002)


def _connect(path: str, schema: Schema) -> Database:
    is_new = look(path, schema) is None
    database = Database(path, "rw")
    for name, wanted, answer in PRAGMAS:
        database.execute(f"PRAGMA {name}={wanted}")
        if (got := database.value(f"PRAGMA {name}")) != answer:
            raise StorageFault(f"{path}: SQLite answers {name}={got}; use a local disk")
    if is_new:
        with database.transaction():
            if not database.value("SELECT count(*) FROM sqlite_schema"):  # else another was faster
                marks = (f"PRAGMA application_id={schema[0]}", f"PRAGMA user_version={schema[1]}")
                for statement in schema[2] + marks:
                    database.execute(statement)
    database.tool_ran = bool(database.value("SELECT 1 FROM sqlite_schema"))  # makes -wal, or fails
    return database


def _code(error: BaseException | None) -> int:
    return int(getattr(error, "sqlite_errorcode", 0))

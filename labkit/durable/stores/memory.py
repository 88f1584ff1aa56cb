"""Runs in the memory of this process: the same verbs and statements on a database without a file.

Rejected: a second store over dicts. Every guard would stand twice, and a program tested on the one
could break on the other.
"""

import sqlite3
from contextlib import suppress

from labkit.database import Database
from labkit.durable.clocks import Clock
from labkit.durable.codec import PayloadCodec, PlaintextPayloadCodec
from labkit.durable.stores import schema as tables
from labkit.durable.stores.sqlite import SQLiteRunStore
from labkit.errors import StorageFault

__all__ = ["InMemoryRunStore"]


class _MemoryDatabase(Database):
    """A connection that has no file, so that there is none to look after."""

    def __init__(self) -> None:
        self.path, self.tool_ran = ":memory:", False
        self._sql = sqlite3.connect(":memory:", isolation_level=None)
        self._sql.row_factory = sqlite3.Row
        for statement in tables.schema()[2]:
            self.execute(statement)

    def check_file(self) -> None:
        self.tool_ran = False


class InMemoryRunStore(SQLiteRunStore):
    """For tests and first tries: what it holds ends with the process."""

    def __init__(
        self, payload_codec: PayloadCodec | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(":memory:", payload_codec or PlaintextPayloadCodec(), clock)

    def _connect(self, *, create: bool) -> Database:
        found = _MemoryDatabase()
        self._require_codec(found)
        return found

    def _recover_from_fault(self) -> None:
        with suppress(StorageFault):  # SQLite may have rolled back by itself
            self._db.execute("ROLLBACK")

"""The rows of one durable run: written again by plain sqlite3, and copied under new ids."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

from labkit.database import PRAGMAS

__all__ = ["Floor", "Rows", "commits_of", "plant", "rows_of"]

Rows = Mapping[str, list[dict[str, Any]]]  # of each table, those of one run
Statement = tuple[str, tuple[Any, ...]]  # ?1 is the run, ?2 the time
ORDER = {"runs": "seq", "steps": "idx", "attempts": "created_at", "events": "seq"}
TIMES = ("ts", "created_at", "updated_at", "finished_at")
LEASE_S = 30.0


def rows_of(path: Path, run_id: str) -> Rows:
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        return {
            table: [
                dict(row)
                for row in db.execute(
                    f"SELECT * FROM {table} WHERE run_id = ? ORDER BY {order}", (run_id,)
                )
            ]
            for table, order in ORDER.items()
        }


def commits_of(rows: Rows) -> list[list[Statement]]:
    """What a run of these rows writes, commit by commit, each attempt the only one of its step.

    The rows are those of a run that ended; what they were before is undone here.
    """
    [run], events = rows["runs"], iter(rows["events"])

    def event() -> Statement:
        return insert("events", next(events))

    new = {"status": "CREATED", "version": 1, "lease_epoch": 0, "output": None}
    created = [insert("runs", run | new), event()]
    owner = rows["events"][1]["owner"].partition("#")[0]
    lease = {"lease_owner": owner, "lease_epoch": 1, "lease_expires_at": time.time() + LEASE_S}
    running = {"status": "RUNNING", "version": 2, "updated_at": 0}
    commits = [created, [update("runs", lease), event(), update("runs", running)]]
    for step, attempt in zip(rows["steps"], rows["attempts"], strict=True):
        begun = {"status": "RUNNING", "output": None, "finished_at": None}
        undone = {"status": "RUNNING", "checkpoint_attempt_id": None}
        commits.append([insert("steps", step | undone), insert("attempts", attempt | begun)])
        commits[-1].append(event())
        ended = {name: attempt[name] for name in begun}
        done = {name: step[name] for name in undone}
        of = {"step_id": step["step_id"]}
        commits.append([update("attempts", ended, of), update("steps", done, of), event()])
    end = ("status", "version", "output", "updated_at", "lease_owner", "lease_expires_at")
    return [*commits, [update("runs", {name: run[name] for name in end}), event()]]


def insert(table: str, row: Mapping[str, Any]) -> Statement:
    marks, values = bound({name: value for name, value in row.items() if name != "seq"})
    return f"INSERT INTO {table} ({', '.join(marks)}) VALUES ({', '.join(marks.values())})", values


def update(table: str, new: Mapping[str, Any], of: Mapping[str, Any] | None = None) -> Statement:
    marks, values = bound({**new, **(of or {}), "run_id": None})
    pairs = [f"{name} = {mark}" for name, mark in marks.items()]
    changed, key = ", ".join(pairs[: len(new)]), " AND ".join(pairs[len(new) :])
    return f"UPDATE {table} SET {changed} WHERE {key}", values


def bound(row: Mapping[str, Any]) -> tuple[dict[str, str], tuple[Any, ...]]:
    """The mark of each column, and the values of those that are neither the run nor a time."""
    marks: dict[str, str] = {}
    values: list[Any] = []
    for name, value in row.items():
        if name == "run_id":
            marks[name] = "?1"
        elif name in TIMES and value is not None:
            marks[name] = "?2"
        else:
            values.append(value)
            marks[name] = f"?{len(values) + 2}"
    return marks, tuple(values)


class Floor:
    """A loop of plain sqlite3 over the commits of one run: the same tables, indexes, triggers and
    pragmas; no lease is looked at, nothing is read, nothing is made of what it stores.
    """

    def __init__(self, path: Path, tables: Iterable[str], commits: list[list[Statement]]) -> None:
        self._commits = commits
        self._db = sqlite3.connect(path, isolation_level=None)
        for name, value, _ in PRAGMAS:
            self._db.execute(f"PRAGMA {name}={value}")
        self._db.execute("BEGIN")
        for statement in tables:
            self._db.execute(statement)
        self._db.execute("COMMIT")

    def run(self) -> str:
        """Stores one more run; its id."""
        db, run_id = self._db, uuid4().hex
        for statements in self._commits:
            db.execute("BEGIN IMMEDIATE")
            for sql, values in statements:
                db.execute(sql, (run_id, time.time(), *values))
            db.execute("COMMIT")
        return run_id

    def close(self) -> None:
        self._db.close()


def plant(path: Path, model: Path, run_id: str, count: int = 1, *, fast: bool = False) -> list[str]:
    """Copies the run of another file so many times, under new ids, as if its lease had expired.

    In one transaction; the ids are in order, so that a page is filled before the next is begun.
    `fast` gives up every safety, for a file that nobody has open.
    """
    new = sorted(uuid4().hex for _ in range(count))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        if fast:
            for pragma in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-200000"):
                db.execute(f"PRAGMA {pragma}")
        db.execute("ATTACH ? AS model", (str(model),))
        db.execute("CREATE TEMP TABLE new (run_id TEXT)")
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO temp.new VALUES (?)", ((each,) for each in new))
        for table, order in ORDER.items():
            db.execute(copying(db, table, order), (run_id,))
        db.execute("COMMIT")
    return new


def copying(db: sqlite3.Connection, table: str, order: str) -> str:
    instead = {
        "seq": "NULL",
        "run_id": "new.run_id",
        "lease_expires_at": "min(1.0, old.lease_expires_at)",
    }
    names = [name for _, name, *_ in db.execute(f"PRAGMA main.table_info({table})")]
    columns = ", ".join(instead.get(name, f"old.{name}") for name in names)
    return f"""INSERT INTO main.{table} SELECT {columns}
        FROM temp.new AS new CROSS JOIN model.{table} AS old
        WHERE old.run_id = ? ORDER BY new.rowid, old.{order}"""

"""What one act changed in a database: for each table a query, and the rows it gives.

A query names its rows by their keys, so that it shows the same rows in a cell, whatever comes
later; of a row that was changed twice it shows the last state.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from labkit.errors import BadInput, ensure
from labkit.journal.reading import Reader, snapshot

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Change", "State", "changes", "state"]

# Columns that an audience can read: payloads may be large, or sealed.
RESTART = {
    "tasks": ("id", "status"),
    "steps": ("task_id, idx", "tool, status, attempts"),
}
DURABLE = {
    "runs": ("run_id", "status, version, lease_owner, lease_epoch, waiting_reason"),
    "steps": ("run_id, step_id", "step_type, name, status, checkpoint_attempt_id"),
    "attempts": ("run_id, step_id, number", "status, classification, error_code"),
    "resolutions": ("run_id, version", "action, step_id, actor"),
}
JOURNAL = "seq, kind, owner, step, attempt, data"
STEPS = 5_000_000  # of SQLite's machine, half a second: what some 300,000 rows take for each table
ALTERED = "the database was altered by hand"

Rows = dict[tuple[Any, ...], tuple[Any, ...]]


class State(NamedTuple):
    """The rows of each table by their keys, and the last event."""

    last_seq: int
    tables: dict[str, Rows]


class Change(NamedTuple):
    """The rows of one table that are new, or other than before, and the query that shows them."""

    table: str
    sql: str
    rows: pd.DataFrame


def state(database: Path, busy_s: float | None = None) -> State:
    """How a database stands; empty while there is none.

    Raises StorageFault, StorageBusy where it is locked for so long, ten seconds if none are given,
    and BadInput for what no agent makes, as a view without an end in the place of a table.
    """
    if not database.exists():
        return State(0, {})
    with snapshot(str(database), busy_s) as reader:
        if not reader.has_journal:
            return State(0, {})
        names = DURABLE if reader.is_durable else RESTART
        tables = {table: _rows(reader, table, *columns) for table, columns in names.items()}
        reader.bound(STEPS)
        last = reader.value("SELECT max(seq) FROM journal") or 0
    ensure(isinstance(last, int), BadInput(f"journal: the seq of an event is none; {ALTERED}"))
    return State(last, tables)


def _rows(reader: Reader, table: str, key: str, columns: str) -> Rows:
    width, is_over = key.count(",") + 1, reader.bound(STEPS)
    try:
        found = reader.tuples(f"SELECT {key}, {columns} FROM {table}")
        return {row[:width]: row for row in found}
    except BadInput as error:
        ensure(is_over(), error)
        why = f"{reader.path}: {table} has too many rows, or no end; {ALTERED}"
        raise BadInput(why) from error


def changes(database: Path, before: State) -> list[Change]:
    """What is other than in `before`, the journal first. Empty where nothing is.

    Raises BadInput for a key that no agent writes, and what `state` raises.
    """
    from labkit.journal import Journal

    after = state(database)
    queries = {}
    if after.last_seq > before.last_seq:
        queries["journal"] = (
            f"SELECT {JOURNAL} FROM journal\n"
            f"WHERE seq > {before.last_seq} AND seq <= {after.last_seq}"
        )
    for table, rows in after.tables.items():
        old = before.tables.get(table, {})
        if keys := [key for key, row in rows.items() if old.get(key) != row]:
            queries[table] = _query(table, keys, is_durable=after.tables.keys() == DURABLE.keys())
    return [Change(table, sql, Journal(database).sql(sql)) for table, sql in queries.items()]


def _query(table: str, keys: list[tuple[Any, ...]], *, is_durable: bool) -> str:
    key, columns = (DURABLE if is_durable else RESTART)[table]
    kinds = {tuple(map(type, each)) for each in keys}
    if len(kinds) > 1 or not {int, str}.issuperset(*kinds):
        raise BadInput(f"{table}: the {key} of a row is none; {ALTERED}")
    wanted = ", ".join(_literal(each) for each in sorted(keys))
    name = f"({key})" if "," in key else key
    return f"SELECT {key}, {columns} FROM {table}\nWHERE {name} IN (VALUES {wanted})"


def _literal(key: tuple[Any, ...]) -> str:
    """An id may hold a quote, and a line that somebody copies runs as code."""
    quoted = (str(v) if isinstance(v, int) else "'" + str(v).replace("'", "''") + "'" for v in key)
    return f"({', '.join(quoted)})"

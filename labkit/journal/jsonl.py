"""A journal as JSON Lines and back: one row of a table on each line.

All tables, since a journal without them cannot be judged: the laws compare the two. The first key
of a line names the table; `data`, and `input` and `output` of the restart agent, are JSON values so
that other tools can read them. Payloads of durable runs are as the store's codec made them, in
base64: who may not read them there cannot read them here.
"""

from __future__ import annotations

import base64
import json
import os
import sqlite3
from collections.abc import Iterator
from typing import Any, NoReturn

from labkit.database import Database, Schema, connect
from labkit.errors import BadInput, NotFound, StorageFault
from labkit.journal.reading import Reader, plain, snapshot
from labkit.jsonvalues import to_json

__all__ = ["export", "load"]

TABLES = {"tasks": "rowid", "steps": "rowid", "events": "rowid"}  # and the order of their rows
RUN_TABLES = {  # a table stands after those that it refers to
    "seal": "rowid",
    "runs": "seq",
    "steps": "run_id, idx",
    "attempts": "run_id, step_id, number",
    "resolutions": "run_id, version",
    "events": "seq",
}
_SEALED = "BLOB"  # the type of a column of payloads
_JSON = frozenset({"data", "input", "output"})


def export(path: str, target: str) -> None:
    """Raises BadInput where the target exists, NotFound where its folder does not."""
    with snapshot(path) as reader, _new_file(target) as file:
        tables = RUN_TABLES if reader.is_durable else TABLES
        for table, order in tables.items() if reader.has_journal else ():
            for line in _lines(reader, table, order):
                file.write(line + "\n")


def load(source: str, target: str) -> None:
    """Makes a new database from an export, all or nothing.

    Raises NotFound, and BadInput for a target that exists or a line that is no row of a journal.
    """
    if os.path.exists(target):
        raise BadInput(f"{target} exists; choose a new name, nothing was overwritten")
    rows = _read(source)
    is_durable = any(row["table"] == "runs" for row in rows)
    database = connect(target, _schema(is_durable), create=True)
    try:
        with database.transaction():
            tables = RUN_TABLES if is_durable else TABLES
            known = {table: _columns(database, table) for table in tables}
            for number, row in enumerate(rows, 1):
                _insert(database, known, row, f"{source}, line {number}")
    except BaseException:
        database.close()
        os.unlink(target)
        raise
    database.close()


def _schema(is_durable: bool) -> Schema:
    """Reading a journal needs neither of the two systems."""
    if is_durable:
        from labkit.durable.stores.schema import schema

        return schema()
    from labkit.restart.store import SCHEMA

    return SCHEMA


def _insert(
    database: Database, known: dict[str, dict[str, str]], row: dict[str, Any], where: str
) -> None:
    table, names = str(row["table"]), [name for name in row if name != "table"]
    # Only names of our own schema reach the SQL: text of a file never becomes code.
    if not names or table not in known or not known[table].keys() >= {*names}:
        raise BadInput(f"{where}: no row of a journal, by its names")
    marks = ", ".join("?" * len(names))
    try:
        values = [_stored(name, known[table][name], row[name]) for name in names]
        database.execute(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", *values)
    except StorageFault as fault:
        if isinstance(fault.__cause__, sqlite3.IntegrityError):  # a key twice, an unknown status
            raise BadInput(f"{where}: no row of a journal: {fault.__cause__}") from None
        raise
    # No value of a column.
    except (ValueError, TypeError, OverflowError, sqlite3.ProgrammingError) as error:
        raise BadInput(f"{where}: no row of a journal: {error}") from None


def _columns(database: Database, table: str) -> dict[str, str]:
    """The names of a table's columns, and their types."""
    sql = "SELECT name, type FROM pragma_table_info(?)"
    return {row[0]: row[1] for row in database.rows(sql, table)}


def _read(source: str) -> list[dict[str, Any]]:
    try:
        with open(source, encoding="utf-8") as file:
            return [_parse(source, number, line) for number, line in enumerate(file, 1)]
    except OSError as error:
        raise NotFound(f"{source}: {error.strerror}; check the path") from None
    except UnicodeDecodeError:
        raise BadInput(f"{source} is not UTF-8 text") from None


def _parse(source: str, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{source}, line {number} is not JSON: {error}") from None
    if not isinstance(row, dict) or "table" not in row:
        raise BadInput(f"{source}, line {number}: no row of a journal, it names no table")
    return row


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")  # Python's own reader takes NaN


def _lines(reader: Reader, table: str, order: str) -> Iterator[str]:
    names = _columns(reader, table)
    for row in reader.tuples(f"SELECT {', '.join(names)} FROM {table} ORDER BY {order}"):
        try:
            values = dict(zip(names, map(_shown, names, names.values(), row), strict=True))
            line = {"table": table, **values}
            yield json.dumps(line, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        except (ValueError, TypeError, RecursionError):  # TypeError: bytes
            shown = plain(repr(row), 200)
            raise BadInput(f"a row of {table} was altered by hand: {shown}") from None


def _shown(name: str, kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind == _SEALED:
        return base64.b64encode(value).decode()
    return json.loads(value) if name in _JSON else value


def _stored(name: str, kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind == _SEALED:
        return base64.b64decode(value, validate=True)
    return to_json(value) if name in _JSON else value


def _new_file(target: str) -> Any:
    try:
        return open(target, "x", encoding="utf-8", newline="\n")
    except FileExistsError:
        raise BadInput(f"{target} exists; choose a new name, nothing was overwritten") from None
    except OSError as error:
        raise NotFound(f"{target}: {error.strerror}; make its folder first") from None

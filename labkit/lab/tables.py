"""Two answers to one question are compared as tables: the same rows, in whatever order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from labkit.errors import UsageError
from labkit.journal.reading import plain

__all__ = ["Row", "compare", "list_columns", "list_rows", "say"]

Row = tuple[Any, ...]
DIGITS = 6  # of a number with a fraction: a time in Unix seconds holds no more


def compare(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Says whether two tables hold the same rows, and shows one that only one of them holds.

    The order of rows and columns does not count, and of an index only what has a name. Returns the
    first table. Raises UsageError for what is no table.
    """
    for given in (first, second):
        if not isinstance(given, pd.DataFrame):
            raise UsageError(f"lab.compare: {type(given).__name__} is no table; give two tables")
        if len(set(list_columns(given))) < len(list_columns(given)):
            raise UsageError("lab.compare: two columns have one name; rename one, in SQL by AS")
    print("\n".join(_differences(first, second)) or f"The two tables agree: {_count(first)}.")
    return first


def list_columns(table: pd.DataFrame) -> list[str]:
    """The names of the columns, and of the levels of an index that has names."""
    named = [name for name in table.index.names if name is not None]
    return [str(name) for name in (*named, *table.columns)]


def list_rows(table: pd.DataFrame, columns: Sequence[str]) -> list[Row]:
    """The rows as plain Python values in this order of columns; what is missing is None.

    Raises KeyError for a column that the table does not have.
    """
    named = any(name is not None for name in table.index.names)
    frame = table.reset_index() if named else table
    values = [[_plain(value) for value in frame[name].tolist()] for name in columns]
    return list(zip(*values, strict=True))


def say(columns: Sequence[str], row: Row) -> str:
    """A row in words: "task_id notes, step_idx 1"."""
    return ", ".join(f"{name} {_shown(value)}" for name, value in zip(columns, row, strict=True))


def _differences(first: pd.DataFrame, second: pd.DataFrame) -> list[str]:
    columns = list_columns(first)
    if sorted(columns) != sorted(list_columns(second)):
        names = (", ".join(list_columns(table)) for table in (first, second))
        return ["Their columns differ: {}; and {}.".format(*names)]
    rows = [Counter(list_rows(table, columns)) for table in (first, second)]
    sides = (("first", rows[0] - rows[1]), ("second", rows[1] - rows[0]))
    return [f"Only in the {side}: {say(columns, next(iter(odd)))}." for side, odd in sides if odd]


def _plain(value: Any) -> Any:
    """None for each kind of *missing*; whole numbers as int; a text for what cannot be compared."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else round(value, DIGITS)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def _shown(value: Any) -> str:
    """A text that reads as a number has quotes, else nobody could tell the two apart."""
    if value is None:
        return "missing"
    text = plain(str(_plain(value)))
    reads_as_number = isinstance(value, str) and re.fullmatch(r"[-+.\d]+", value)
    return f"'{text}'" if reads_as_number else text


def _count(table: pd.DataFrame) -> str:
    return f"{len(table)} row{'' if len(table) == 1 else 's'}"

"""Records as JSON and back, by their annotations: no field is named a second time."""

import json
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from labkit.durable.errors import RunStoreIntegrityError

__all__ = ["build", "damage", "dump", "load", "reader"]


def dump(value: Any) -> str:
    """JSON text. Raises TypeError or ValueError for what JSON cannot keep."""
    return _ENCODE(value)


def _plain(value: Any) -> Any:
    if is_dataclass(value) or isinstance(value, Mapping):
        return vars(value) if is_dataclass(value) else dict(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(f"{value!r:.60} is a {type(value).__name__}, which JSON cannot keep")


_ENCODE = json.JSONEncoder(default=_plain).encode  # json.dumps makes an encoder for each value


def load(kind: Any, text: str) -> Any:
    """`build` of what a store has kept. Raises RunStoreIntegrityError if it is damaged."""
    with damage:
        return build(kind, json.loads(text))


class _Damage:
    """`with` it: an error in reading is damage of the file. No generator: each value has one."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (ValueError, AttributeError, TypeError, LookupError, RecursionError)):
            why = f"a row is not as it was written: {type(error).__name__}: {error}"
            raise RunStoreIntegrityError(f"{why}; restore the file") from error


damage = _Damage()


def build(kind: Any, data: Any) -> Any:
    """What was dumped: a record of `kind`, whose tuples, enums and times are such again. Raises
    TypeError, ValueError, KeyError or AttributeError for data of another form."""
    read = reader(kind)
    return data if data is None or read is None else read(data)


@cache  # an annotation is looked at once, for it takes longer than reading a value
def reader(kind: Any) -> Callable[[Any], Any] | None:
    """What makes a value of this annotation of JSON; None where JSON has it already."""
    args = get_args(kind)
    if get_origin(kind) is tuple:
        read = reader(args[0])
        return (lambda data: tuple(map(read, data))) if read else tuple
    if args and args[-1] is type(None):
        return reader(args[0])
    if is_dataclass(kind):
        return _record_reader(kind)
    if kind is datetime:
        return lambda unix_s: datetime.fromtimestamp(unix_s, UTC)
    if kind is timedelta:
        return lambda s: timedelta(seconds=s)
    return kind if isinstance(kind, type) and issubclass(kind, Enum) else None


def _record_reader(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    readers = [(name, read) for name, hint in hints.items() if (read := reader(hint))]

    def record(data: Any) -> Any:
        values = {name: value for name, value in data.items() if name in hints}
        for name, read in readers:
            if (value := values.get(name)) is not None:
                values[name] = read(value)
        return kind(**values)

    return record

"""Records as JSON and back, by their annotations: no field is named a second time."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

__all__ = ["build", "dump"]


def dump(value: Any) -> str:
    """JSON text. Raises TypeError or ValueError for what JSON cannot keep."""
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if is_dataclass(value) or isinstance(value, Mapping):
        return dict(value if isinstance(value, Mapping) else vars(value))
    raise TypeError(f"{value!r:.60} is a {type(value).__name__}, which JSON cannot keep")


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def build(kind: Any, data: Any) -> Any:
    """What was dumped: a record of `kind`, whose tuples, enums and times are such again. Raises
    TypeError, ValueError, KeyError or AttributeError for data of another form."""
    args = get_args(kind)
    if data is None:
        return None
    if get_origin(kind) is tuple:
        return tuple(build(args[0], item) for item in data)
    if args and args[-1] is type(None):
        return build(args[0], data)
    if is_dataclass(kind):
        hints: dict[str, Any] = _hints(kind)  # type: ignore[arg-type]
        return kind(**{name: build(hints[name], value) for name, value in data.items()})  # type: ignore[operator]
    if kind is datetime:
        return datetime.fromtimestamp(data, UTC)
    if kind is timedelta:
        return timedelta(seconds=data)
    return kind(data) if isinstance(kind, type) and issubclass(kind, Enum) else data

"""Which values the journal can hold: those that come back from JSON exactly as they went in."""

from __future__ import annotations

import json
import math
from typing import Any

from labkit.errors import PermanentError

__all__ = ["MAX_BYTES", "MAX_DEPTH", "NotJSON", "from_json", "to_json"]

# The json module recurses. A value that one process can just write, another with a deeper stack (a Jupyter kernel) could not
# read, so the limit is fixed and far below Python's own (1,000 frames in all).
MAX_DEPTH = 500
MAX_BYTES = 500_000_000  # SQLite refuses a text of a gigabyte


class NotJSON(PermanentError):
    """A value that JSON cannot hold; the message says where it is and what to use instead."""


def to_json(value: Any) -> str:
    """The value as JSON text. Raises NotJSON unless `from_json` gives back an equal value of the same types."""
    _check(value)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:  # an int of more digits than Python converts
        raise NotJSON(f"{error}; use a string") from None
    if len(text) > MAX_BYTES or len(text.encode()) > MAX_BYTES:
        raise NotJSON(f"it takes more than {MAX_BYTES:,} bytes; write a file and return its path")
    return text


def from_json(text: str) -> Any:
    return json.loads(text)


def _check(root: Any) -> None:
    """Walks without recursion, since the depth of a value is what it must survive; depth first, so a cycle ends at MAX_DEPTH."""
    todo: list[tuple[Any, str, int]] = [(root, "", 0)]
    while todo:
        value, path, depth = todo.pop()
        kind = type(value)  # exact: an IntEnum or an OrderedDict would come back as another type
        if kind in _SCALARS:
            continue
        if kind is str:
            _check_text(value, path)
        elif kind is float:
            if not math.isfinite(value):
                raise NotJSON(
                    f"{_at(path)} is {value!r}, which JSON cannot hold; use None or a string"
                )
        elif depth >= MAX_DEPTH:
            raise NotJSON(
                f"{_at(path[:80])} is nested deeper than {MAX_DEPTH} levels; use a flat list"
            )
        elif kind is list:
            todo += [
                (item, f"{path}[{i}]" if depth < 8 else path, depth + 1)
                for i, item in enumerate(value)
            ]
        elif kind is dict:
            for key, item in value.items():
                if type(key) is not str:
                    raise NotJSON(
                        f"{_at(path)} has the key {key!r:.40} of type {type(key).__name__}; use strings as keys"
                    )
                _check_text(key, path)
                todo.append((item, f"{path}.{key:.40}" if depth < 8 else path, depth + 1))
        else:
            raise NotJSON(
                f"{_at(path)} is of type {kind.__name__}; {_INSTEAD.get(kind.__name__, 'use dict, list, str, int, float, bool or None')}"
            )


def _check_text(text: str, path: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotJSON(
                f"{_at(path)} has a lone surrogate, which UTF-8 cannot hold; use text.encode('utf-8', 'replace').decode()"
            ) from None


def _at(path: str) -> str:
    return f"the value at {path.lstrip('.')}" if path else "the value"


_SCALARS = frozenset({type(None), bool, int})
_INSTEAD = {
    "bytes": "use base64 or hexadecimal text",
    "set": "use sorted(...), a list",
    "frozenset": "use sorted(...), a list",
    "tuple": "use a list",
    "datetime": "use .isoformat(), a string",
    "date": "use .isoformat(), a string",
    "Decimal": "use str(...)",
    "coroutine": "use a plain function, not `async def`",
}

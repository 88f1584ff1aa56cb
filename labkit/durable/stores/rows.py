"""Records from rows: their fields are the columns, and payloads go through the codec."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_type_hints

from labkit.database import Row
from labkit.durable import records
from labkit.durable.codec import PayloadCodec
from labkit.durable.plain import damage, dump, reader

__all__ = ["METADATA", "RUN", "Rows", "columns"]

_Record = TypeVar("_Record")
_PAYLOADS = {"input", "history", "snapshot", "output", "call", "error", "reason"}


def columns(kind: Any) -> str:
    return ", ".join(_names(kind))  # what to SELECT for a record of this kind


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(get_type_hints(kind))


@cache
def _readers(kind: Any) -> list[tuple[str, Callable[[Any], Any] | None, bool]]:
    """Of each column that is not kept as the record has it: what reads it, and is it a payload?"""
    found = [(name, reader(hint), name in _PAYLOADS) for name, hint in get_type_hints(kind).items()]
    return [each for each in found if each[1] or each[2]]


METADATA, RUN = columns(records.RunSummary), columns(records.RunRecord)


class Rows:
    """Reads what one store's codec has written. Raises RunStoreIntegrityError for all else."""

    def __init__(self, codec: PayloadCodec) -> None:
        self._codec = codec

    def seal(self, value: Any) -> bytes | None:
        """A payload as it is stored: as JSON, through the codec; None stays None."""
        return None if value is None else self._codec.encode(dump(value))

    def open(self, data: bytes | None) -> Any:
        with damage:
            return None if data is None else json.loads(self._codec.decode(data))

    def read(self, kind: type[_Record], row: Row) -> _Record:
        """The record of this kind that the row holds, in its first columns."""
        data = dict(zip(_names(kind), row, strict=False))  # type: ignore[arg-type]
        if data.get("lease_owner", "") is None:
            data["lease_expires_at"] = None
        with damage:
            for name, read, is_payload in _readers(kind):  # type: ignore[arg-type]
                if (value := data[name]) is not None:
                    value = json.loads(self._codec.decode(value)) if is_payload else value
                    data[name] = read(value) if read else value
        record = object.__new__(kind)  # its __init__ sets each frozen field by a call
        vars(record).update(data)
        return record

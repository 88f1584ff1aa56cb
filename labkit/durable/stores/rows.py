"""Records from rows: columns by name, payloads through the codec."""

from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from labkit.database import Row
from labkit.durable import records
from labkit.durable.codec import PayloadCodec
from labkit.durable.plain import build, damage, dump, load

__all__ = ["METADATA", "Rows"]

METADATA = ", ".join(field.name for field in fields(records.RunSummary))
_Record = TypeVar("_Record")
_PAYLOADS = {"input", "history", "snapshot", "output", "call", "error", "reason"}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


class Rows:
    """Reads what one store's codec has written. Raises RunStoreIntegrityError for all else."""

    def __init__(self, codec: PayloadCodec) -> None:
        self._codec = codec

    def seal(self, value: Any) -> bytes | None:
        """A payload as it is stored: as JSON, through the codec; None stays None."""
        return None if value is None else self._codec.encode(dump(value))

    def open(self, data: bytes | None) -> Any:
        if data is None:
            return None
        with damage:
            return load(object, self._codec.decode(data))

    def read(self, kind: type[_Record], row: Row) -> _Record:
        """The record of this kind that the row holds."""
        data = {name: row[name] for name in _names(kind)}  # type: ignore[arg-type]
        for name in _PAYLOADS & data.keys():
            data[name] = self.open(data[name])
        if data.get("lease_owner", "") is None:
            data["lease_expires_at"] = None
        with damage:
            record: _Record = build(kind, data)
        return record

    def new_run(self, run: records.RunRecord) -> dict[str, Any]:
        """The columns of a run that is to be stored."""
        as_they_are = ("run_id", "definition_id", "definition_version", "status", "version")
        return {
            **{name: getattr(run, name) for name in as_they_are},
            **{name: getattr(run, name).timestamp() for name in ("created_at", "updated_at")},
            **{name: self.seal(getattr(run, name)) for name in ("input", "history", "snapshot")},
        }

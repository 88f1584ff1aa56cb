"""Records from rows: each column by its name, payloads through the codec."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

from labkit.database import Row
from labkit.durable import records
from labkit.durable.codec import PayloadCodec
from labkit.durable.definition import DefinitionSnapshot
from labkit.durable.errors import DuplicateRunError, RunStoreIntegrityError
from labkit.durable.tools import ToolCall, ToolEffect

__all__ = ["METADATA", "Rows", "moment"]

_Record = TypeVar("_Record")


def moment(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)


_READ: dict[str, Callable[[Any], Any]] = {
    "step_type": records.StepType,
    "classification": records.FailureClassification,
    "model_purpose": records.ModelPurpose,
    "action": records.ResolutionAction,
    "effect": ToolEffect,
    **dict.fromkeys(("created_at", "updated_at", "finished_at", "cancel_requested_at"), moment),
}
_PAYLOADS = {"input", "output", "error", "reason"}


METADATA = ", ".join(field.name for field in fields(records.RunSummary))


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except (ValueError, AttributeError, TypeError, KeyError, IndexError) as error:
        why = f"a row is not as it was written: {type(error).__name__}: {error}"
        raise RunStoreIntegrityError(f"{why}; restore the file") from error


class Rows:
    """Reads what one store's codec has written. Raises RunStoreIntegrityError for all else."""

    def __init__(self, codec: PayloadCodec) -> None:
        self._codec = codec

    def seal(self, value: Any) -> bytes | None:
        """A payload as it is stored: as JSON, through the codec; None stays None."""
        return None if value is None else self._codec.encode(json.dumps(value))

    def open(self, data: bytes | None) -> Any:
        with _damage():
            return None if data is None else json.loads(self._codec.decode(data))

    def summary(self, row: Row) -> records.RunSummary:
        return self._record(records.RunSummary, row, **self._of_run(row))

    def run(self, row: Row) -> records.RunRecord:
        def messages() -> Iterator[records.ConversationMessage]:
            for said in self.open(row["history"]):
                role = records.ConversationRole(said["role"])
                yield records.ConversationMessage(role, said["content"])

        with _damage():
            snapshot = DefinitionSnapshot.from_json(self.open(row["snapshot"]))
            more = {"history": tuple(messages()), "snapshot": snapshot}
        return self._record(records.RunRecord, row, **self._of_run(row), **more)

    def new_run(self, run: records.RunRecord) -> dict[str, Any]:
        """The columns of a run that is to be stored."""
        as_they_are = ("run_id", "definition_id", "definition_version", "status", "version")
        return {
            **{name: getattr(run, name) for name in as_they_are},
            "created_at": run.created_at.timestamp(),
            "updated_at": run.updated_at.timestamp(),
            "input": self.seal(run.input),
            "history": self.seal([asdict(message) for message in run.history]),
            "snapshot": self.seal(run.snapshot.to_json()),
        }

    def require_same(
        self, stored: records.RunRecord, wanted: records.RunRecord
    ) -> records.RunRecord:
        """The stored run. Raises DuplicateRunError if it was created from another request."""
        for name in ("definition_id", "definition_version", "input", "history"):
            if getattr(stored, name) != getattr(wanted, name):
                why = f"run {stored.run_id} has another {name}; use another id"
                raise DuplicateRunError(why)
        return stored

    def step(self, row: Row) -> records.StepRecord:
        with _damage():
            call = self.open(row["call"])
            more = {"call": call and ToolCall(**call), "status": records.StepStatus(row["status"])}
        return self._record(records.StepRecord, row, **more)

    def attempt(self, row: Row) -> records.StepAttempt:
        status = records.StepStatus(row["status"])
        return self._record(records.StepAttempt, row, status=status)

    def resolution(self, row: Row) -> records.ResolutionRecord:
        return self._record(records.ResolutionRecord, row)

    def _of_run(self, row: Row) -> dict[str, Any]:
        expires_at = moment(row["lease_expires_at"]) if row["lease_owner"] else None
        return {"status": records.RunStatus(row["status"]), "lease_expires_at": expires_at}

    def _record(self, kind: Callable[..., _Record], row: Row, **more: Any) -> _Record:
        names = (name for name in _names(kind) if name not in more)
        with _damage():
            return kind(**{name: self._value(name, row[name]) for name in names}, **more)

    def _value(self, name: str, value: Any) -> Any:
        if value is None or name in _PAYLOADS:
            return self.open(value)
        return _READ[name](value) if name in _READ else value

"""Records from rows: each column once, payloads through the codec."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from labkit.database import Row
from labkit.durable.codec import PayloadCodec
from labkit.durable.definition import DefinitionSnapshot
from labkit.durable.errors import RunStoreIntegrityError
from labkit.durable.records import (
    ConversationMessage,
    ConversationRole,
    FailureClassification,
    ModelPurpose,
    ResolutionAction,
    ResolutionRecord,
    RunRecord,
    RunStatus,
    RunSummary,
    StepAttempt,
    StepRecord,
    StepStatus,
    StepType,
)
from labkit.durable.tools import ToolCall

__all__ = ["Rows"]


class Rows:
    """Reads what one store's codec has written. Raises RunStoreIntegrityError for all else."""

    def __init__(self, codec: PayloadCodec) -> None:
        self._codec = codec

    def seal(self, value: Any) -> bytes | None:
        """A payload as it is stored: None stays, a text or a plain value becomes JSON first."""
        return None if value is None else self._codec.encode(json.dumps(value))

    def open(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return json.loads(self._codec.decode(data))
        except (ValueError, AttributeError, TypeError) as error:
            raise RunStoreIntegrityError(f"a payload is damaged: {error}") from error

    def summary(self, row: Row) -> RunSummary:
        return RunSummary(**self._metadata(row))

    def run(self, row: Row) -> RunRecord:
        history = (
            ConversationMessage(ConversationRole(message["role"]), message["content"])
            for message in self.open(row["history"])
        )
        return RunRecord(
            **self._metadata(row),
            input=self.open(row["input"]),
            history=tuple(history),
            snapshot=DefinitionSnapshot.from_json(self.open(row["snapshot"])),
            output=self.open(row["output"]),
        )

    def run_values(self, run: RunRecord) -> dict[str, Any]:
        """The payload columns of a new run."""
        return {
            "input": self.seal(run.input),
            "history": self.seal([asdict(message) for message in run.history]),
            "snapshot": self.seal(run.snapshot.to_json()),
        }

    def step(self, row: Row) -> StepRecord:
        call = self.open(row["call"])
        purpose = row["model_purpose"]
        return StepRecord(
            run_id=row["run_id"],
            step_id=row["step_id"],
            idx=row["idx"],
            step_type=StepType(row["step_type"]),
            status=StepStatus(row["status"]),
            name=row["name"],
            call=call and ToolCall(**call),
            model_purpose=purpose and ModelPurpose(purpose),
            checkpoint_attempt_id=row["checkpoint_attempt_id"],
            error_code=row["error_code"],
            created_at=moment(row["created_at"]),
        )

    def attempt(self, row: Row) -> StepAttempt:
        classification, purpose = row["classification"], row["model_purpose"]
        finished_at = row["finished_at"]
        return StepAttempt(
            run_id=row["run_id"],
            step_id=row["step_id"],
            attempt_id=row["attempt_id"],
            number=row["number"],
            status=StepStatus(row["status"]),
            output=self.open(row["output"]),
            error=self.open(row["error"]),
            classification=classification and FailureClassification(classification),
            error_code=row["error_code"],
            model_purpose=purpose and ModelPurpose(purpose),
            created_at=moment(row["created_at"]),
            finished_at=None if finished_at is None else moment(finished_at),
        )

    def resolution(self, row: Row) -> ResolutionRecord:
        return ResolutionRecord(
            run_id=row["run_id"],
            action=ResolutionAction(row["action"]),
            step_id=row["step_id"],
            version=row["version"],
            actor=row["actor"],
            reason=self.open(row["reason"]),
            created_at=moment(row["created_at"]),
        )

    def _metadata(self, row: Row) -> dict[str, Any]:
        requested_at, expires_at = row["cancel_requested_at"], row["lease_expires_at"]
        return {
            **{name: row[name] for name in _AS_STORED},
            "status": RunStatus(row["status"]),
            "lease_expires_at": moment(expires_at) if row["lease_owner"] else None,
            "cancel_requested_at": None if requested_at is None else moment(requested_at),
            "created_at": moment(row["created_at"]),
            "updated_at": moment(row["updated_at"]),
        }


_AS_STORED = (
    "run_id", "definition_id", "definition_version", "version", "waiting_reason",
    "waiting_step_id", "error_code", "lease_owner", "lease_epoch", "cancel_requested_by",
)  # fmt: skip


def moment(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)

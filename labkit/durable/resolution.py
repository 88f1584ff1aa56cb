"""What an application may answer to a run that waits. Only it can say what happened outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labkit.durable import errors
from labkit.durable.records import (
    REASON_DEFINITION_UNAVAILABLE,
    REASON_UNCERTAIN_NON_IDEMPOTENT,
    ResolutionAction,
    RunStatus,
    RunSummary,
)
from labkit.durable.tools import ToolCall, ToolOutcome, serialize_tool_outcome

__all__ = ["RunResolution", "allowed_resolutions", "outcome_of", "require_resolvable"]

_ENDS = (ResolutionAction.FAIL_RUN, ResolutionAction.CANCEL_RUN)
_ALLOWED = {
    REASON_UNCERTAIN_NON_IDEMPOTENT: (
        ResolutionAction.RETRY_STEP,
        ResolutionAction.CONFIRM_STEP,
        ResolutionAction.REJECT_STEP,
        *_ENDS,
    ),
    REASON_DEFINITION_UNAVAILABLE: _ENDS,
}


def allowed_resolutions(run: RunSummary) -> tuple[ResolutionAction, ...]:
    """What `resolve_run` accepts for this run now; nothing unless it is WAITING."""
    return _ALLOWED.get(run.waiting_reason or "", ())


@dataclass(frozen=True)
class RunResolution:
    """The application's answer to a waiting run. Only it can say what happened outside."""

    action: ResolutionAction
    result: str | None = None
    code: str | None = None
    message: str | None = None
    reason: str | None = None
    actor: str | None = None
    waiting_step_id: str | None = None

    @classmethod
    def retry_step(cls, **more: Any) -> RunResolution:
        """Call the tool once more: the application takes it on itself that it may run twice."""
        return cls(ResolutionAction.RETRY_STEP, **more)

    @classmethod
    def confirm_step(cls, result: str, **more: Any) -> RunResolution:
        """The effect is there, and this is its result. Nothing is called."""
        return cls(ResolutionAction.CONFIRM_STEP, result, **more)

    @classmethod
    def reject_step(cls, code: str, message: str, **more: Any) -> RunResolution:
        """The effect is not there and shall not be; the model is told so. Nothing is called."""
        return cls(ResolutionAction.REJECT_STEP, code=code, message=message, **more)

    @classmethod
    def fail_run(cls, **more: Any) -> RunResolution:
        return cls(ResolutionAction.FAIL_RUN, **more)

    @classmethod
    def cancel_run(cls, **more: Any) -> RunResolution:
        return cls(ResolutionAction.CANCEL_RUN, **more)


def require_resolvable(run: RunSummary, resolution: RunResolution, expected_version: int) -> None:
    """Raises for an answer that does not fit what the run waits for; nothing has changed then."""
    action = resolution.action
    if run.status is not RunStatus.WAITING:
        raise errors.IllegalRunTransitionError(
            f"run {run.run_id} is {run.status}; only WAITING resolves"
        )
    if action not in (allowed := allowed_resolutions(run)):
        raise errors.ResolutionNotAllowedError(
            f"run {run.run_id} waits for {run.waiting_reason}: {action} is no answer; "
            f"use {', '.join(allowed) or 'resume_run'}"
        )
    of_step = action not in (ResolutionAction.FAIL_RUN, ResolutionAction.CANCEL_RUN)
    if resolution.waiting_step_id != run.waiting_step_id and (
        of_step or resolution.waiting_step_id is not None
    ):
        raise errors.ResolutionNotAllowedError(
            f"run {run.run_id} waits at step {run.waiting_step_id}, "
            f"not at {resolution.waiting_step_id}; look again before you answer"
        )
    if action is ResolutionAction.CONFIRM_STEP and not isinstance(resolution.result, str):
        raise errors.ResolutionNotAllowedError(
            "CONFIRM_STEP takes the result of the effect, a text"
        )
    if action is ResolutionAction.REJECT_STEP and not (resolution.code and resolution.message):
        raise errors.ResolutionNotAllowedError(
            "REJECT_STEP takes a code and a message, both for the model"
        )
    if run.version != expected_version:
        raise errors.StaleRunVersionError(
            f"run {run.run_id} is at version {run.version}, not {expected_version}; read it again"
        )


def outcome_of(resolution: RunResolution, call: ToolCall) -> str:
    """What becomes the checkpoint of a step that the application confirms or rejects."""
    to = {"call_id": call.call_id, "tool_name": call.tool_name}
    if resolution.action is ResolutionAction.CONFIRM_STEP:
        outcome = ToolOutcome.success(**to, result=resolution.result or "")
    else:
        code, message = resolution.code or "", resolution.message or ""
        outcome = ToolOutcome.rejected(**to, code=code, message=message)
    return serialize_tool_outcome(outcome)

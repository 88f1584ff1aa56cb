"""What an application may answer to a run that waits. Only it can say what happened outside."""

from dataclasses import dataclass
from typing import Any, Self

from labkit.durable import errors, records
from labkit.durable.plain import dump
from labkit.durable.records import ResolutionAction, RunSummary
from labkit.durable.tools import ToolCall, ToolOutcome
from labkit.errors import ensure

__all__ = ["RunResolution", "allowed_resolutions", "outcome_of", "require_resolvable"]

_ENDS = (ResolutionAction.FAIL_RUN, ResolutionAction.CANCEL_RUN)
_CONFIRM, _REJECT = ResolutionAction.CONFIRM_STEP, ResolutionAction.REJECT_STEP
_OF_STEP = [action for action in ResolutionAction if action.endswith("_STEP")]
_ALLOWED = {
    records.REASON_UNCERTAIN_NON_IDEMPOTENT: (*_OF_STEP, *_ENDS),
    records.REASON_DEFINITION_UNAVAILABLE: _ENDS,
}


def allowed_resolutions(run: RunSummary) -> tuple[ResolutionAction, ...]:
    """What `resolve_run` accepts for this run now; nothing unless it is WAITING."""
    return _ALLOWED.get(run.waiting_reason or "", ())


@dataclass(frozen=True)
class RunResolution:
    """`result` is a confirmed effect's, `code` and `message` are a rejected one's."""

    action: ResolutionAction
    result: str | None = None
    code: str | None = None
    message: str | None = None
    reason: str | None = None
    actor: str | None = None
    waiting_step_id: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", ResolutionAction(self.action))  # a text is as good

    @classmethod
    def retry_step(cls, **more: Any) -> Self:
        """Call the tool once more: the application takes it on itself that it may run twice."""
        return cls(ResolutionAction.RETRY_STEP, **more)

    @classmethod
    def confirm_step(cls, result: str, **more: Any) -> Self:
        """The effect is there, and this is its result. Nothing is called."""
        return cls(_CONFIRM, result, **more)

    @classmethod
    def reject_step(cls, code: str, message: str, **more: Any) -> Self:
        """The effect is not there and shall not be; the model is told so. Nothing is called."""
        return cls(_REJECT, code=code, message=message, **more)

    @classmethod
    def fail_run(cls, **more: Any) -> Self:
        return cls(ResolutionAction.FAIL_RUN, **more)

    @classmethod
    def cancel_run(cls, **more: Any) -> Self:
        return cls(ResolutionAction.CANCEL_RUN, **more)


def require_resolvable(run: RunSummary, said: RunResolution, expected_version: int) -> None:
    """Raises for an answer that does not fit what the run waits for; nothing has changed then."""
    what, no = f"run {run.run_id}", errors.ResolutionNotAllowedError
    at, allowed = said.waiting_step_id, allowed_resolutions(run)
    is_waiting = run.status is records.RunStatus.WAITING
    why = f"{what} is {run.status}; only a WAITING one is resolved"
    ensure(is_waiting, errors.IllegalRunTransitionError(why))
    why = f"{what} waits for {run.waiting_reason}: {said.action} is no answer"
    ensure(said.action in allowed, no(f"{why}; use {', '.join(allowed) or 'resume_run'}"))
    fits = at == run.waiting_step_id or (at is None and said.action in _ENDS)
    ensure(fits, no(f"{what} waits at step {run.waiting_step_id}, not at {at}; look again"))
    is_text = said.action is not _CONFIRM or isinstance(said.result, str)
    ensure(is_text, no("CONFIRM_STEP takes the result of the effect, a text"))
    told = [text for text in (said.code, said.message) if isinstance(text, str) and text]
    is_told = said.action is not _REJECT or len(told) == 2
    ensure(is_told, no("REJECT_STEP takes a code and a message, both for the model"))
    why = f"{what} is at version {run.version}, not {expected_version}; read it again"
    ensure(run.version == expected_version, errors.StaleRunVersionError(why))


def outcome_of(said: RunResolution, call: ToolCall) -> str:
    """What becomes the checkpoint of a step that the application confirms or rejects."""
    to = {"call_id": call.call_id, "tool_name": call.tool_name}
    if said.action is _CONFIRM:
        return dump(ToolOutcome.success(**to, result=said.result or ""))
    return dump(ToolOutcome.rejected(**to, code=said.code or "", message=said.message or ""))

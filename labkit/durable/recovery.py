"""What may follow a step: the whole of recovery, in one table.

Of which kind is the step, and how did its last attempt end? Both come from the store and from the
frozen snapshot, never from what is registered now. What the table does not know stops the run."""

from collections.abc import Sequence
from enum import StrEnum

from labkit.durable import records
from labkit.durable.errors import FailureClassification
from labkit.durable.snapshot import DefinitionSnapshot

__all__ = ["TABLE", "Last", "Next", "change_for", "decide", "kind_of", "last_of"]

UNDECLARED = "UNDECLARED"
FROZEN_TOOL_DECLARATION_UNAVAILABLE = "FROZEN_TOOL_DECLARATION_UNAVAILABLE"
UNCONFIRMED = {  # the code of an attempt that a crash cut off
    records.StepType.CONTEXT: "context_unconfirmed",
    records.StepType.MODEL: "model_checkpoint_unconfirmed",
    records.StepType.TOOL: "effect_unconfirmed",
}


class Last(StrEnum):
    """How the last attempt of a step ended. CRASHED: it did not; its caller was killed."""

    ABSENT, CHECKPOINT, CRASHED = "ABSENT", "CHECKPOINT", "CRASHED"
    TIMED_OUT, TRANSIENT, PERMANENT = "TIMED_OUT", "TRANSIENT", "PERMANENT"


class Next(StrEnum):
    CALL = "CALL"  # the first attempt
    REUSE = "REUSE"  # the checkpoint is there: no call
    REPLAY = "REPLAY"  # the same step and key again, while attempts are left
    RETRY = "RETRY"  # the same, where a policy was frozen
    WAIT = "WAIT"  # only the application can know
    FAIL = "FAIL"


_AGAIN = (Next.CALL, Next.REUSE, Next.REPLAY, Next.FAIL, Next.RETRY, Next.FAIL)
TABLE: dict[str, tuple[Next, ...]] = {
    # no attempt, checkpoint, crashed, timed out, TRANSIENT, PERMANENT
    "CONTEXT": _AGAIN,
    "MODEL": _AGAIN,
    "READ_ONLY": _AGAIN,
    "IDEMPOTENT": _AGAIN,
    "NON_IDEMPOTENT": (Next.CALL, Next.REUSE, Next.WAIT, Next.WAIT, Next.RETRY, Next.FAIL),
    UNDECLARED: (Next.FAIL, Next.REUSE, Next.WAIT, Next.WAIT, Next.FAIL, Next.FAIL),
}
_ROWS = {kind: dict(zip(Last, row, strict=True)) for kind, row in TABLE.items()}


def decide(kind: str, last: Last | None, used: int, snapshot: DefinitionSnapshot) -> Next:
    """`used` attempts are stored for the step, of which `last` is the end of the newest."""
    row = _ROWS.get(kind, {})
    found = row.get(last, Next.FAIL) if last else Next.FAIL
    if found is Next.RETRY and snapshot.retry_policy is None:
        return Next.FAIL
    if found in (Next.REPLAY, Next.RETRY) and used >= snapshot.max_attempts:
        return Next.FAIL
    return found


def kind_of(
    step_type: records.StepType, tool_name: str | None, snapshot: DefinitionSnapshot
) -> str:
    """The row of the table: for a tool its frozen effect, UNDECLARED if that is not known."""
    if step_type is not records.StepType.TOOL:
        return step_type.value
    declaration = snapshot.declaration(tool_name)
    return declaration.effect.value if declaration else UNDECLARED


def last_of(attempts: Sequence[records.StepAttempt], has_checkpoint: bool) -> Last | None:
    """The column of the table; None for an attempt that no transaction of ours can have left."""
    if has_checkpoint:
        return Last.CHECKPOINT
    if not attempts:
        return Last.ABSENT
    newest = attempts[-1]
    if newest.status is records.StepStatus.RUNNING:
        return Last.CRASHED
    if newest.classification is FailureClassification.UNCERTAIN:
        return Last.CRASHED  # marked so by an earlier recovery, which was killed in its turn
    return Last(newest.classification.value) if newest.classification else None


def change_for(found: Next, kind: str, step_id: str, code: str | None) -> records.Change | None:
    """The transition that is written together with the attempt's end; None: the run goes on."""
    if found is Next.WAIT:
        waits, reason = records.RunStatus.WAITING, records.REASON_UNCERTAIN_NON_IDEMPOTENT
        return records.Change(waits, waiting_reason=reason, waiting_step_id=step_id)
    if found is Next.FAIL:
        failed = FROZEN_TOOL_DECLARATION_UNAVAILABLE if kind == UNDECLARED else code
        return records.Change(records.RunStatus.FAILED, error_code=failed)
    return None

"""What a run is made of, as frozen values. Times are aware and in UTC, ids are text.

A run is one execution of one exact definition on one input. It consists of steps; a step has one
attempt or more, and is done exactly when one of them is its checkpoint."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from labkit.durable.errors import FailureClassification
from labkit.durable.snapshot import DefinitionSnapshot, ModelPurpose
from labkit.durable.tools import ToolCall, ToolEffect

__all__ = [
    "REASON_DEFINITION_UNAVAILABLE", "REASON_UNCERTAIN_NON_IDEMPOTENT", "TRANSITIONS", "Change",
    "Claim", "ConversationMessage", "ConversationRole", "Failed", "Hold",
    "NewStep", "Receipt", "ResolutionAction", "ResolutionRecord", "RunFilter",
    "RunInspection", "RunRecord", "RunStatus", "RunSummary", "StepAttempt",
    "StepCheckpoint", "StepRecord", "StepStatus", "StepType",
]  # fmt: skip

REASON_UNCERTAIN_NON_IDEMPOTENT = "UNCERTAIN_NON_IDEMPOTENT"
REASON_DEFINITION_UNAVAILABLE = "DEFINITION_UNAVAILABLE"


class RunStatus(StrEnum):
    """Each is named for the transition that leads to it. RUNNING means running or abandoned."""

    CREATED, RUNNING, WAITING, SUCCEEDED = "CREATED", "RUNNING", "WAITING", "SUCCEEDED"
    REJECTED, FAILED, CANCELLED = "REJECTED", "FAILED", "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        return self not in _OPEN


_OPEN = (RunStatus.CREATED, RunStatus.RUNNING, RunStatus.WAITING)
TRANSITIONS = {  # the whole life of a run; what is not here is refused
    RunStatus.CREATED: {"RUNNING", "WAITING", "REJECTED", "FAILED", "CANCELLED"},
    RunStatus.RUNNING: {"SUCCEEDED", "REJECTED", "FAILED", "WAITING", "CANCELLED"},
    RunStatus.WAITING: {"RUNNING", "FAILED", "CANCELLED"},
}


class StepType(StrEnum):
    CONTEXT, MODEL, TOOL = "CONTEXT", "MODEL", "TOOL"


class StepStatus(StrEnum):
    """Of a step and of an attempt."""

    RUNNING, SUCCEEDED, FAILED = "RUNNING", "SUCCEEDED", "FAILED"


class ConversationRole(StrEnum):
    USER, ASSISTANT = "USER", "ASSISTANT"


@dataclass(frozen=True)
class ConversationMessage:
    role: ConversationRole
    content: str


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The metadata of a run, none of its payloads: what a list of runs consists of.

    `version` grows by one with each transition and with nothing else."""

    run_id: str
    definition_id: str
    definition_version: str
    status: RunStatus = RunStatus.CREATED
    waiting_reason: str | None = None
    waiting_step_id: str | None = None
    error_code: str | None = None
    version: int = 1
    lease_owner: str | None = None
    lease_epoch: int = 0
    lease_expires_at: datetime | None = None
    cancel_requested_by: str | None = None
    cancel_requested_at: datetime | None = None
    created_at: datetime
    updated_at: datetime

    def has_valid_lease(self, now: datetime) -> bool:
        """Half-open: at `expires_at` itself the owner is out and another may enter."""
        return self.lease_expires_at is not None and now < self.lease_expires_at


@dataclass(frozen=True, kw_only=True)
class RunRecord(RunSummary):
    input: str
    history: tuple[ConversationMessage, ...] = ()
    snapshot: DefinitionSnapshot
    output: str | None = None


class Claim(NamedTuple):
    """Who wants to advance which state of a run, and for how long without a renewal."""

    run_id: str
    owner: str
    ttl: timedelta
    expected_version: int


class RunFilter(NamedTuple):
    """Which runs: the oldest first, `after` that id; lease "expired": RUNNING, and nobody's."""

    status: RunStatus | None = None
    definition_id: str | None = None
    lease: Literal["expired"] | None = None
    limit: int = 100
    after: str | None = None


class Failed(NamedTuple):
    """How a call failed. UNCERTAIN: it may have done what it was to do."""

    classification: FailureClassification
    code: str
    message: str


class Hold(NamedTuple):
    """What every write must name: the run, the epoch of its lease, the version it is based on."""

    run_id: str
    epoch: int
    version: int


class Receipt(NamedTuple):
    """What a write tells its writer: the version now, and whether someone asked to cancel."""

    version: int
    cancel_requested: bool


class Change(NamedTuple):
    """A transition of a run, and what comes with it."""

    to: RunStatus
    output: Any = None  # text; bytes once it is sealed
    waiting_reason: str | None = None
    waiting_step_id: str | None = None
    error_code: str | None = None


class NewStep(NamedTuple):
    """A step as its first attempt stores it. `call` is what the model asked for."""

    step_id: str
    step_type: StepType
    name: str | None = None
    effect: ToolEffect | None = None
    call: ToolCall | None = None
    purpose: ModelPurpose | None = None


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """`idx` counts the steps of the run from 0; `name` and `effect` are the tool's, as frozen."""

    step_id: str
    run_id: str
    idx: int
    step_type: StepType
    status: StepStatus
    name: str | None = None
    effect: ToolEffect | None = None
    call: ToolCall | None = None
    model_purpose: ModelPurpose | None = None
    checkpoint_attempt_id: str | None = None
    error_code: str | None = None
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class StepAttempt:
    """`number` counts the attempts of the step from 1. `output` is JSON, or the provider's."""

    attempt_id: str
    step_id: str
    run_id: str
    number: int
    status: StepStatus
    output: str | None = None
    error: str | None = None
    classification: FailureClassification | None = None
    error_code: str | None = None
    model_purpose: ModelPurpose | None = None
    created_at: datetime
    finished_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class StepCheckpoint:
    """The complete result of a step: of a MODEL step a response, of a TOOL step an outcome."""

    run_id: str
    step_id: str
    attempt_id: str
    step_type: StepType
    output: str
    created_at: datetime


class ResolutionAction(StrEnum):
    RETRY_STEP, CONFIRM_STEP, REJECT_STEP = "RETRY_STEP", "CONFIRM_STEP", "REJECT_STEP"
    CONTINUE_RUN, FAIL_RUN, CANCEL_RUN = "CONTINUE_RUN", "FAIL_RUN", "CANCEL_RUN"


@dataclass(frozen=True, kw_only=True)
class ResolutionRecord:
    """Who resolved what, when and why. `version` is the one that the answer was based on."""

    run_id: str
    action: ResolutionAction
    step_id: str | None
    version: int
    actor: str | None
    reason: str | None
    created_at: datetime


@dataclass(frozen=True)
class RunInspection:
    """Everything stored of one run, at one moment, in the order in which it came to be."""

    run: RunRecord
    steps: list[StepRecord] = field(default_factory=list)
    attempts: list[StepAttempt] = field(default_factory=list)
    checkpoints: list[StepCheckpoint] = field(default_factory=list)
    resolutions: list[ResolutionRecord] = field(default_factory=list)

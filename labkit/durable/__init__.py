"""A model-driven agent that crosses crashes, and says what it cannot prove.

Read records, recovery, advance, runner, then stores/schema and stores/sqlite.
"""

# isort: skip_file
from labkit.durable.clocks import Clock, FakeClock, SystemClock
from labkit.durable.codec import EncryptedPayloadCodec, PayloadCodec, PlaintextPayloadCodec
from labkit.durable.context import ContextItem, ContextProvider, ContextRequest
from labkit.durable.definition import (
    AgentDefinition, DefinitionRegistry, DefinitionSnapshot, ModelExecutionBudget, RetryPolicy,
)  # fmt: skip
from labkit.durable.deterministic import (
    DeterministicContextProvider, DeterministicModelAdapter, DeterministicStreamingModelAdapter,
    DeterministicTool,
)  # fmt: skip
from labkit.durable.errors import (
    DefinitionConflictError, DefinitionError, DefinitionNotFoundError, DuplicateRunError,
    IllegalRunTransitionError, LeaseNotHeldError, ModelFailure, ResolutionNotAllowedError,
    RunNotFoundError, RunRefused, RunStoreIntegrityError, StaleRunVersionError, StepFailure,
    StoreBusyError, StoreError, ToolFailure,
)  # fmt: skip
from labkit.durable.model import (
    ModelAdapter, ModelDelta, ModelRequest, ModelResponse, ModelTurn, StreamingModelAdapter,
    deserialize_model_response, serialize_model_response,
)  # fmt: skip
from labkit.durable.records import (
    REASON_DEFINITION_UNAVAILABLE, REASON_UNCERTAIN_NON_IDEMPOTENT, ConversationMessage,
    ConversationRole, FailureClassification, ModelPurpose, ResolutionAction, ResolutionRecord,
    RunInspection, RunRecord, RunResolution, RunStatus, RunSummary, StepAttempt, StepCheckpoint,
    StepRecord, StepStatus, StepType, allowed_resolutions, is_terminal,
)  # fmt: skip
from labkit.durable.runner import DEFAULT_LEASE_TTL, Recovered, Runner
from labkit.durable.store import RunStore
from labkit.durable.stores.memory import InMemoryRunStore
from labkit.durable.stores.sqlite import SQLiteRunStore
from labkit.durable.tools import (
    DEFAULT_TOOL_PARAMETERS, Tool, ToolCall, ToolDeclaration, ToolEffect, ToolOutcome,
    ToolOutcomeStatus, ToolRequest, deserialize_tool_outcome, serialize_tool_outcome,
)  # fmt: skip
from labkit.durable.updates import RunUpdate, RunUpdateType

__all__ = [
    "DEFAULT_LEASE_TTL", "DEFAULT_TOOL_PARAMETERS", "REASON_DEFINITION_UNAVAILABLE",
    "REASON_UNCERTAIN_NON_IDEMPOTENT", "AgentDefinition", "Clock", "ContextItem",
    "ContextProvider", "ContextRequest", "ConversationMessage", "ConversationRole",
    "DefinitionConflictError", "DefinitionError", "DefinitionNotFoundError", "DefinitionRegistry",
    "DefinitionSnapshot", "DeterministicContextProvider", "DeterministicModelAdapter",
    "DeterministicStreamingModelAdapter", "DeterministicTool", "DuplicateRunError",
    "EncryptedPayloadCodec", "FailureClassification", "FakeClock", "IllegalRunTransitionError",
    "InMemoryRunStore", "LeaseNotHeldError", "ModelAdapter", "ModelDelta", "ModelExecutionBudget",
    "ModelFailure", "ModelPurpose", "ModelRequest", "ModelResponse", "ModelTurn", "PayloadCodec",
    "PlaintextPayloadCodec", "Recovered", "ResolutionAction", "ResolutionNotAllowedError",
    "ResolutionRecord", "RetryPolicy", "RunInspection", "RunNotFoundError", "RunRecord",
    "RunRefused", "RunResolution", "RunStatus", "RunStore", "RunStoreIntegrityError",
    "RunSummary", "RunUpdate", "RunUpdateType", "Runner", "SQLiteRunStore",
    "StaleRunVersionError", "StepAttempt", "StepCheckpoint", "StepFailure", "StepRecord",
    "StepStatus", "StepType", "StoreBusyError", "StoreError", "StreamingModelAdapter",
    "SystemClock", "Tool", "ToolCall", "ToolDeclaration", "ToolEffect", "ToolFailure",
    "ToolOutcome", "ToolOutcomeStatus", "ToolRequest", "allowed_resolutions",
    "deserialize_model_response", "deserialize_tool_outcome", "is_terminal",
    "serialize_model_response", "serialize_tool_outcome",
]  # fmt: skip

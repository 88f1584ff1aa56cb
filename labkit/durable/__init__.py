"""A model-driven agent that crosses crashes, and says what it cannot prove.

Read records, recovery, advance, lease, runner, then stores/schema and stores/sqlite."""

from labkit.durable.clocks import *  # noqa: F403
from labkit.durable.codec import *  # noqa: F403
from labkit.durable.context import *  # noqa: F403
from labkit.durable.definition import *  # noqa: F403
from labkit.durable.deterministic import *  # noqa: F403
from labkit.durable.errors import *  # noqa: F403
from labkit.durable.model import *  # noqa: F403
from labkit.durable.records import *  # noqa: F403
from labkit.durable.resolution import *  # noqa: F403
from labkit.durable.runner import *  # noqa: F403
from labkit.durable.snapshot import *  # noqa: F403
from labkit.durable.store import *  # noqa: F403
from labkit.durable.stores.sqlite import *  # noqa: F403
from labkit.durable.tools import *  # noqa: F403
from labkit.durable.updates import *  # noqa: F403

__all__ = [  # noqa: F405
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
    "ResolutionRecord", "RetryPolicy", "RunFilter", "RunInspection", "RunNotFoundError",
    "RunRecord", "RunRefused", "RunResolution", "RunStatus", "RunStore", "RunStoreIntegrityError",
    "RunSummary", "RunUpdate", "RunUpdateType", "Runner", "SQLiteRunStore",
    "StaleRunVersionError", "StepAttempt", "StepCheckpoint", "StepFailure", "StepRecord",
    "StepStatus", "StepType", "StoreBusyError", "StoreError", "StreamingModelAdapter",
    "SystemClock", "Tool", "ToolCall", "ToolDeclaration", "ToolEffect", "ToolFailure",
    "ToolOutcome", "ToolOutcomeStatus", "ToolRequest", "allowed_resolutions",
]  # fmt: skip

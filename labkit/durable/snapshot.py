"""What a run freezes of its definition: declarations only, no callable and no credential."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from labkit.durable.errors import DefinitionError
from labkit.durable.tools import ToolDeclaration
from labkit.errors import ensure

__all__ = ["DefinitionSnapshot", "ModelExecutionBudget", "ModelPurpose", "RetryPolicy"]

CRASH_ATTEMPTS = 3  # without a policy: a step that kills its process each time must end


class ModelPurpose(StrEnum):
    PRIMARY, CONTEXT_COMPRESSION, OUTPUT_REPAIR = "PRIMARY", "CONTEXT_COMPRESSION", "OUTPUT_REPAIR"


@dataclass(frozen=True)
class RetryPolicy:
    """Tried again is what failed as TRANSIENT, or a crash cut off; `max_attempts` in all."""

    max_attempts: int
    delay: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        counts = type(self.max_attempts) is int and 1 <= self.max_attempts < 1 << 31
        lasts = isinstance(self.delay, timedelta) and timedelta(0) <= self.delay <= timedelta(366)
        why = "RetryPolicy: max_attempts from 1 on, delay a timedelta of 0 to 366 days"
        ensure(counts and lasts, DefinitionError(why))


@dataclass(frozen=True)
class ModelExecutionBudget:
    """How many attempts may be reserved, for the run and for each purpose; never refunded."""

    run_max_attempts: int = 8
    primary_max_attempts: int = 8
    context_compression_max_attempts: int = 8
    output_repair_max_attempts: int = 8

    def __post_init__(self) -> None:
        fits = all(type(limit) is int and 0 <= limit < 1 << 31 for limit in vars(self).values())
        ensure(fits, DefinitionError("ModelExecutionBudget: each limit is a number from 0 on"))

    def of(self, purpose: ModelPurpose) -> tuple[int, int]:
        """For the whole run, and for this purpose."""
        return self.run_max_attempts, int(getattr(self, f"{purpose.lower()}_max_attempts"))


@dataclass(frozen=True, kw_only=True)
class DefinitionSnapshot:
    """The declarations as they were when the run was created. Only these decide about the run."""

    definition_id: str
    version: str
    instructions: str
    has_context_provider: bool
    tool_declarations: tuple[ToolDeclaration, ...]
    retry_policy: RetryPolicy | None
    model_execution_budget: ModelExecutionBudget
    model_timeout_s: float | None

    @property
    def max_attempts(self) -> int:
        return self.retry_policy.max_attempts if self.retry_policy else CRASH_ATTEMPTS

    def declaration(self, name: str | None) -> ToolDeclaration | None:
        """None where it is missing or doubled: then nobody may say what the tool does."""
        found = [tool for tool in self.tool_declarations if tool.name == name]
        return found[0] if len(found) == 1 else None

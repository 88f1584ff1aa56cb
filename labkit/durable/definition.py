"""Definitions, what a run freezes of one, and where the callables stay."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from labkit.durable.context import ContextProvider
from labkit.durable.errors import DefinitionConflictError, DefinitionError, DefinitionNotFoundError
from labkit.durable.model import ModelAdapter
from labkit.durable.records import ModelPurpose
from labkit.durable.tools import Tool, ToolDeclaration, ToolEffect

__all__ = [
    "AgentDefinition", "DefinitionRegistry", "DefinitionSnapshot", "ModelExecutionBudget",
    "RetryPolicy",
]  # fmt: skip

CRASH_ATTEMPTS = 3  # without a policy: a step that kills its process each time must end


@dataclass(frozen=True)
class RetryPolicy:
    """`max_attempts` in total, the first and those lost to a crash included; `delay` between."""

    max_attempts: int
    delay: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.delay < timedelta(0):
            raise DefinitionError("RetryPolicy: max_attempts is at least 1, delay at least 0")


@dataclass(frozen=True)
class ModelExecutionBudget:
    """How many attempts may be reserved, for the run and for each purpose; never refunded."""

    run_max_attempts: int = 8
    primary_max_attempts: int = 8
    context_compression_max_attempts: int = 8
    output_repair_max_attempts: int = 8

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

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=_plain)

    @classmethod
    def from_json(cls, text: str) -> DefinitionSnapshot:
        fields: dict[str, Any] = json.loads(text)
        policy = fields["retry_policy"]
        fields["retry_policy"] = policy and RetryPolicy(
            policy["max_attempts"], timedelta(seconds=policy["delay"])
        )
        fields["model_execution_budget"] = ModelExecutionBudget(**fields["model_execution_budget"])
        fields["tool_declarations"] = tuple(
            ToolDeclaration(**tool | {"effect": ToolEffect(tool["effect"])})
            for tool in fields["tool_declarations"]
        )
        return cls(**fields)


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise DefinitionError(f"a definition holds {value!r:.60}, which JSON cannot keep")


@dataclass(frozen=True, kw_only=True)
class AgentDefinition:
    """An agent in code. A run freezes what is declared here and finds the callables by id.

    `model_timeout_s` is in seconds; None waits for ever.
    """

    definition_id: str
    version: str
    instructions: str
    model_adapter: ModelAdapter
    context_provider: ContextProvider | None = None
    tools: tuple[Tool, ...] = field(default=())
    retry_policy: RetryPolicy | None = None
    model_execution_budget: ModelExecutionBudget = ModelExecutionBudget()
    model_timeout_s: float | None = None

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise DefinitionError(f"two tools of one name among {', '.join(names)}")
        if not (self.definition_id and self.version):
            raise DefinitionError("a definition needs an id and a version")

    @classmethod
    def for_adapter(cls, **fields: Any) -> AgentDefinition:
        """One adapter for every purpose; the fields are those of the class."""
        return cls(**fields | {"tools": tuple(fields.get("tools", ()))})

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def frozen_snapshot(self) -> DefinitionSnapshot:
        """Raises DefinitionError for a declaration that JSON cannot keep."""
        made = DefinitionSnapshot(
            definition_id=self.definition_id,
            version=self.version,
            instructions=self.instructions,
            has_context_provider=self.context_provider is not None,
            tool_declarations=tuple(tool.declaration() for tool in self.tools),
            retry_policy=self.retry_policy,
            model_execution_budget=self.model_execution_budget,
            model_timeout_s=self.model_timeout_s,
        )
        return DefinitionSnapshot.from_json(made.to_json())  # a copy: the caller's dicts may change


class DefinitionRegistry:
    """The definitions of this process, each under its exact id and version."""

    def __init__(self) -> None:
        self._definitions: dict[tuple[str, str], AgentDefinition] = {}

    def register(self, definition: AgentDefinition) -> None:
        """Raises DefinitionConflictError if that id and version is there already."""
        key = (definition.definition_id, definition.version)
        if key in self._definitions:
            raise DefinitionConflictError(f"{key[0]} {key[1]} is registered; give a new version")
        self._definitions[key] = definition

    def resolve(self, definition_id: str, version: str) -> AgentDefinition:
        """Raises DefinitionNotFoundError: another version never stands in for this one."""
        if not self.is_registered(definition_id, version):
            there = ", ".join(sorted(f"{name} {v}" for name, v in self._definitions)) or "nothing"
            raise DefinitionNotFoundError(
                f"no definition {definition_id} {version}; registered: {there}"
            )
        return self._definitions[definition_id, version]

    def is_registered(self, definition_id: str, version: str) -> bool:
        return (definition_id, version) in self._definitions

    def registered_definitions(self) -> tuple[AgentDefinition, ...]:
        return tuple(self._definitions.values())

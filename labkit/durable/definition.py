"""Definitions in code, and where their callables stay."""

import json
from dataclasses import dataclass, field, fields
from typing import Any, Self

from labkit.durable.context import ContextProvider
from labkit.durable.errors import DefinitionConflictError, DefinitionError, DefinitionNotFoundError
from labkit.durable.model import ModelAdapter, StreamingModelAdapter
from labkit.durable.plain import build, dump
from labkit.durable.snapshot import DefinitionSnapshot, ModelExecutionBudget, RetryPolicy
from labkit.durable.tools import Tool
from labkit.errors import ensure
from labkit.jsonvalues import SURROGATE

__all__ = ["AgentDefinition", "DefinitionRegistry"]

_AS_DECLARED = [each.name for each in fields(DefinitionSnapshot)]


@dataclass(frozen=True, kw_only=True)
class AgentDefinition:
    """An agent in code. A run freezes what is declared here and finds the callables by id.

    `model_timeout_s` is in seconds; None waits for ever."""

    definition_id: str
    version: str
    instructions: str
    model_adapter: ModelAdapter | StreamingModelAdapter
    context_provider: ContextProvider | None = None
    tools: tuple[Tool, ...] = ()
    retry_policy: RetryPolicy | None = None
    model_execution_budget: ModelExecutionBudget = field(default_factory=ModelExecutionBudget)
    model_timeout_s: float | None = None

    def __post_init__(self) -> None:
        what = f"definition {self.definition_id!r} {self.version!r}"
        tools = isinstance(self.tools, tuple) and all(hasattr(tool, "name") for tool in self.tools)
        ensure(tools, DefinitionError(f"{what}: tools is a tuple of Tool objects"))
        names = [tool.name for tool in self.tools]
        for text in (self.definition_id, self.version, f".{self.instructions}", *names):
            is_text = isinstance(text, str) and text.strip() and not SURROGATE.search(text)
            ensure(is_text, DefinitionError(f"{what}: {text!r:.60} is blank, or no text"))
        ensure(len(set(names)) == len(names), DefinitionError(f"{what}: two tools of one name"))
        for limit_s in (self.model_timeout_s, *(tool.timeout_s for tool in self.tools)):
            fits = limit_s is None or (type(limit_s) in (int, float) and 0 < limit_s < 1e9)
            ensure(fits, DefinitionError(f"{what}: a time-out is seconds above 0, not {limit_s!r}"))
        fits = isinstance(self.model_execution_budget, ModelExecutionBudget)
        ensure(fits, DefinitionError(f"{what}: model_execution_budget is a ModelExecutionBudget"))

    @classmethod
    def for_adapter(cls, **fields: Any) -> Self:
        """One adapter for every purpose; the fields are those of the class."""
        return cls(**fields | {"tools": tuple(fields.get("tools", ()))})

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def frozen_snapshot(self) -> DefinitionSnapshot:
        """Raises DefinitionError for a declaration that JSON cannot keep."""
        made = DefinitionSnapshot(
            **{name: getattr(self, name) for name in _AS_DECLARED if hasattr(self, name)},
            has_context_provider=self.context_provider is not None,
            tool_declarations=tuple(tool.declaration() for tool in self.tools),
        )
        try:  # a copy: the caller's dicts may change
            snapshot: DefinitionSnapshot = build(DefinitionSnapshot, json.loads(dump(made)))
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            raise DefinitionError(f"definition {self.definition_id}: {error}") from error
        return snapshot


class DefinitionRegistry:
    """The definitions of this process, each under its exact id and version."""

    def __init__(self) -> None:
        self._definitions: dict[tuple[str, str], AgentDefinition] = {}

    def register(self, definition: AgentDefinition) -> None:
        """Raises DefinitionConflictError if that id and version is there already."""
        key = (definition.definition_id, definition.version)
        why = f"{key[0]} {key[1]} is registered; give a new version"
        ensure(key not in self._definitions, DefinitionConflictError(why))
        self._definitions[key] = definition

    def resolve(self, definition_id: str, version: str) -> AgentDefinition:
        """Raises DefinitionNotFoundError: another version never stands in for this one."""
        if not self.is_registered(definition_id, version):
            there = ", ".join(sorted(f"{name} {v}" for name, v in self._definitions)) or "nothing"
            why = f"no definition {definition_id} {version}; registered: {there}"
            raise DefinitionNotFoundError(why)
        return self._definitions[definition_id, version]

    def is_registered(self, definition_id: str, version: str) -> bool:
        return (definition_id, version) in self._definitions

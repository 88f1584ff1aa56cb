"""Tools: what a run does to the world, and what each promises about doing it twice."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

__all__ = [
    "DEFAULT_TOOL_PARAMETERS", "Tool", "ToolCall", "ToolDeclaration", "ToolEffect", "ToolOutcome",
    "ToolOutcomeStatus", "ToolRequest", "require_outcome",
]  # fmt: skip

DEFAULT_TOOL_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


class ToolEffect(StrEnum):
    """What a second call does: nothing, the same again, or something that nobody wanted."""

    READ_ONLY, IDEMPOTENT, NON_IDEMPOTENT = "READ_ONLY", "IDEMPOTENT", "NON_IDEMPOTENT"


@dataclass(frozen=True)
class ToolCall:
    """What the model asks for. `arguments` is the text of a JSON object."""

    call_id: str
    tool_name: str
    arguments: str = "{}"


@dataclass(frozen=True, kw_only=True)
class ToolRequest:
    """What a tool is called with. `idempotency_key` is the same for every attempt of the step."""

    call_id: str
    tool_name: str
    arguments: str
    run_id: str
    step_id: str
    attempt_id: str
    idempotency_key: str


class ToolOutcomeStatus(StrEnum):
    SUCCESS, REJECTED = "SUCCESS", "REJECTED"


@dataclass(frozen=True, kw_only=True)
class ToolOutcome:
    """What the model is told: a result, or that the call was rejected, with a code and why.

    Raises ValueError unless exactly the fields of its status are given."""

    status: ToolOutcomeStatus
    call_id: str
    tool_name: str
    result: str | None = None
    code: str | None = None
    message: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", ToolOutcomeStatus(self.status))
        given = [type(value) is str for value in (self.result, self.code, self.message)]
        succeeded = self.status is ToolOutcomeStatus.SUCCESS
        if given != [succeeded, not succeeded, not succeeded]:
            raise ValueError("SUCCESS takes a result; REJECTED takes a code and a message")

    @classmethod
    def success(cls, *, call_id: str, tool_name: str, result: str) -> Self:
        done = ToolOutcomeStatus.SUCCESS
        return cls(status=done, call_id=call_id, tool_name=tool_name, result=result)

    @classmethod
    def rejected(cls, *, call_id: str, tool_name: str, code: str, message: str) -> Self:
        status = ToolOutcomeStatus.REJECTED
        return cls(status=status, call_id=call_id, tool_name=tool_name, code=code, message=message)


def require_outcome(outcome: object, call: ToolCall) -> ToolOutcome:
    """Raises TypeError for what is no outcome of exactly this call: nobody knows what happened."""
    key = (getattr(outcome, "call_id", None), getattr(outcome, "tool_name", None))
    if not isinstance(outcome, ToolOutcome) or key != (call.call_id, call.tool_name):
        raise TypeError(f"{call.tool_name}: a {type(outcome).__name__}, no outcome of this call")
    return outcome


@dataclass(frozen=True, kw_only=True)
class ToolDeclaration:
    """What a snapshot keeps of a tool, and what a model is told of it."""

    name: str
    effect: ToolEffect
    description: str = ""
    parameters: Mapping[str, Any]
    timeout_s: float | None = None


_DECLARED = [field.name for field in fields(ToolDeclaration)]


class Tool(ABC):
    """A subclass says what it does in `invoke`. A tool that declares no effect may not be repeated.

    `invoke` may raise ToolFailure to say that no effect happened. Any other exception leaves that
    open, and so does the end of `timeout_s`."""

    def __init__(
        self,
        *,
        name: str,
        description: str = "",
        effect: ToolEffect = ToolEffect.NON_IDEMPOTENT,
        parameters: Mapping[str, Any] = DEFAULT_TOOL_PARAMETERS,
        timeout_s: float | None = None,
    ) -> None:
        self.name, self.description, self.effect = name, description, ToolEffect(effect)
        self.parameters, self.timeout_s = parameters, timeout_s

    @abstractmethod
    async def invoke(self, request: ToolRequest) -> ToolOutcome: ...

    def declaration(self) -> ToolDeclaration:
        return ToolDeclaration(**{name: getattr(self, name) for name in _DECLARED})

"""Models: what one is asked, and what counts as its answer."""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any

from labkit.durable.context import ContextItem
from labkit.durable.errors import FailureClassification, ModelFailure
from labkit.durable.records import ConversationMessage
from labkit.durable.tools import ToolCall, ToolDeclaration, ToolOutcome

__all__ = [
    "ModelAdapter", "ModelDelta", "ModelRequest", "ModelResponse", "ModelTurn",
    "StreamingModelAdapter", "require_contract", "violation",
]  # fmt: skip

MODEL_CONTRACT_VIOLATION = "MODEL_CONTRACT_VIOLATION"


@dataclass(frozen=True)
class ModelResponse:
    """A final answer, or tool calls with or without some text."""

    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class ModelDelta:
    content: str


@dataclass(frozen=True)
class ModelTurn:
    """One completed answer of the model, and the outcome of each tool that it asked for."""

    response: ModelResponse
    outcomes: tuple[ToolOutcome, ...]


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """Everything the model may know. Context items are data: they never enter `instructions`."""

    input: str
    instructions: str
    history: tuple[ConversationMessage, ...] = ()
    context_items: tuple[ContextItem, ...] = ()
    tools: tuple[ToolDeclaration, ...] = ()
    turns: tuple[ModelTurn, ...] = ()

    @property
    def tool_outcomes(self) -> tuple[ToolOutcome, ...]:
        return tuple(outcome for turn in self.turns for outcome in turn.outcomes)


class ModelAdapter(ABC):
    """May raise ModelFailure to say what may follow; any other exception is PERMANENT."""

    @abstractmethod
    async def generate(self, request: ModelRequest) -> ModelResponse: ...


class StreamingModelAdapter(ABC):
    @abstractmethod
    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelResponse]:
        """Deltas for whoever watches, then exactly one ModelResponse, which alone is stored."""


def violation(what: str) -> ModelFailure:
    return ModelFailure(FailureClassification.PERMANENT, MODEL_CONTRACT_VIOLATION, what)


def require_contract(response: Any, tools: Collection[str]) -> ModelResponse:
    """The response, if a run can go on from it. Raises ModelFailure, PERMANENT, if it cannot."""
    what = f"a {type(response).__name__} is no ModelResponse"
    _require(isinstance(response, ModelResponse), what)
    content, calls = response.content, response.tool_calls
    is_text = isinstance(content, str) or (content is None and calls)
    _require(is_text, "the response has neither a text nor tool calls")
    ids = {call.call_id for call in calls}
    _require(len(ids) == len(calls) and all(ids), "a call id is blank, or given twice")
    for call in calls:
        there = ", ".join(tools) or "none"
        _require(call.tool_name in tools, f"no tool {call.tool_name!r:.60}; there: {there}")
        why = f"the arguments of {call.tool_name} are no JSON object"
        _require(_is_object(call.arguments), why)
    return response  # type: ignore[no-any-return]


def _require(holds: object, what: str) -> None:  # `ensure` would have each error made beforehand
    if not holds:
        raise violation(what)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, TypeError, RecursionError):
        return False

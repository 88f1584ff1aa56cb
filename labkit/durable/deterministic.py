"""Adapters that answer the same each time: for tests, lessons and first programs.

They answer from the request, never from how often they were called: a resumed process must go on
where the killed one was."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from labkit.durable import model
from labkit.durable.context import ContextItem, ContextProvider, ContextRequest
from labkit.durable.model import ModelAdapter, ModelDelta, ModelRequest, ModelResponse
from labkit.durable.tools import Tool, ToolCall, ToolEffect, ToolOutcome, ToolRequest

__all__ = [
    "DeterministicContextProvider", "DeterministicModelAdapter",
    "DeterministicStreamingModelAdapter", "DeterministicTool",
]  # fmt: skip


class DeterministicModelAdapter(ModelAdapter):
    """Answers a request that carries i completed turns with response i, text or ModelResponse."""

    def __init__(self, responses: Sequence[str | ModelResponse]) -> None:
        self._responses = tuple(responses)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        turn = len(request.turns)
        if turn >= len(self._responses):
            raise model.violation(f"{len(self._responses)} responses, none for turn {turn}")
        response = self._responses[turn]
        return ModelResponse(response) if isinstance(response, str) else response


class DeterministicStreamingModelAdapter(model.StreamingModelAdapter):
    """Streams the chunks, then their whole. With `tool_calls`, its first turn asks for those."""

    def __init__(self, chunks: Sequence[str], tool_calls: Sequence[ToolCall] = ()) -> None:
        self._chunks, self._calls = tuple(chunks), tuple(tool_calls)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelResponse]:
        if self._calls and not request.turns:
            yield ModelResponse(tool_calls=self._calls)
            return
        for chunk in self._chunks:
            yield ModelDelta(chunk)
        yield ModelResponse("".join(self._chunks))


class DeterministicTool(Tool):
    """Calls `handler` with the ToolRequest: it returns the result as text, or a ToolOutcome.

    A handler that is no coroutine function runs in a thread, so that the loop goes on meanwhile."""

    def __init__(
        self,
        name: str,
        effect: ToolEffect = ToolEffect.NON_IDEMPOTENT,
        handler: Callable[[ToolRequest], Any] = lambda request: "ok",
        **more: Any,
    ) -> None:
        super().__init__(name=name, effect=effect, **more)
        self._handler, self._is_async = handler, inspect.iscoroutinefunction(handler)

    async def invoke(self, request: ToolRequest) -> ToolOutcome:
        if self._is_async:
            result = await self._handler(request)
        else:
            result = await asyncio.to_thread(self._in_thread, request)
        result = await result if inspect.isawaitable(result) else result
        if isinstance(result, ToolOutcome):
            return result
        if not isinstance(result, str):
            what = f"a {type(result).__name__}, no text, no ToolOutcome"
            raise TypeError(f"the handler of {self.name} returned {what}")
        to = {"call_id": request.call_id, "tool_name": request.tool_name}
        return ToolOutcome.success(**to, result=result)

    def _in_thread(self, request: ToolRequest) -> Any:
        try:
            return self._handler(request)
        except (StopIteration, GeneratorExit) as error:  # neither can cross from thread to loop
            raise RuntimeError(f"the handler of {self.name} raised {error!r}") from error


class DeterministicContextProvider(ContextProvider):
    def __init__(self, items: Sequence[ContextItem]) -> None:
        self._items = tuple(items)

    async def provide(self, request: ContextRequest) -> Sequence[ContextItem]:
        return self._items

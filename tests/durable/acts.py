"""Models, tools and context providers that a witness watches, and that do as they are told.

Without pytest, so that a process which a test starts is there quickly.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from labkit.durable import (
    ContextItem,
    ContextProvider,
    ContextRequest,
    ModelAdapter,
    ModelRequest,
    ModelResponse,
    Tool,
    ToolCall,
    ToolEffect,
    ToolOutcome,
    ToolRequest,
)

TTL = timedelta(seconds=30)
DONE = "Done."


class Witness:
    def __init__(self, path: Path) -> None:
        self.path = path

    def saw(self, what: str) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(file, f"{what}\n".encode())
        os.close(file)

    @property
    def lines(self) -> list[str]:
        return self.path.read_text("utf-8").splitlines() if self.path.exists() else []

    def count(self, what: str) -> int:
        """How many calls whose line begins with that word."""
        return sum(line.split()[0] == what for line in self.lines)


class Acts:
    """One behaviour for each call, the last for ever. An exception is raised, a function called
    with the request and awaited if it can be, anything else returned.
    """

    def __init__(self, *behaviours: Any) -> None:
        self._behaviours = list(behaviours)

    async def __call__(self, request: Any) -> Any:
        many = len(self._behaviours) > 1
        behaviour = self._behaviours.pop(0) if many else self._behaviours[0]
        if isinstance(behaviour, BaseException):
            raise behaviour
        result = behaviour(request) if callable(behaviour) else behaviour
        return await result if inspect.isawaitable(result) else result


class Gate:
    """A call that says it was entered and returns when the test opens the gate."""

    def __init__(self, result: Any = "passed") -> None:
        self.result, self.entered, self.open = result, asyncio.Event(), asyncio.Event()

    async def __call__(self, request: Any) -> Any:
        self.entered.set()
        await self.open.wait()
        return await Acts(self.result)(request)


class Model(ModelAdapter):
    """Answers a request of i completed turns with answer i, a behaviour of `Acts`."""

    def __init__(self, witness: Witness, *answers: Any) -> None:
        self._witness, self.requests = witness, list[ModelRequest]()
        self._answers = [each if isinstance(each, Acts) else Acts(each) for each in answers]

    async def generate(self, request: ModelRequest) -> Any:
        self._witness.saw(f"model {len(request.turns) + 1}")
        self.requests.append(request)
        answer = await self._answers[len(request.turns)](request)
        return ModelResponse(answer) if isinstance(answer, str) else answer


class WitnessedTool(Tool):
    """Its effect is the line in the witness; then it behaves as told, once per call."""

    def __init__(
        self,
        witness: Witness,
        name: str = "send",
        *does: Any,
        effect: ToolEffect = ToolEffect.NON_IDEMPOTENT,
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(name=name, effect=effect, timeout_s=timeout_s)
        self._witness, self._does = witness, Acts(*(does or ("sent",)))
        self.requests: list[ToolRequest] = []

    async def invoke(self, request: ToolRequest) -> Any:
        self._witness.saw(f"{self.name} {request.idempotency_key} {request.attempt_id}")
        self.requests.append(request)
        result = await self._does(request)
        return success(request, result) if isinstance(result, str) else result


class Source(ContextProvider):
    def __init__(self, witness: Witness, *reads: Any) -> None:
        self._witness, self._reads = witness, Acts(*reads)

    async def provide(self, request: ContextRequest) -> Sequence[ContextItem]:
        self._witness.saw("context")
        items: Sequence[ContextItem] = await self._reads(request)
        return items


def success(request: ToolRequest, result: str) -> ToolOutcome:
    to = {"call_id": request.call_id, "tool_name": request.tool_name}
    return ToolOutcome.success(**to, result=result)


def asks(*names: str) -> ModelResponse:
    """The model asks for these tools, in this order."""
    calls = (ToolCall(f"call-{n}", name) for n, name in enumerate(names, start=1))
    return ModelResponse(tool_calls=tuple(calls))

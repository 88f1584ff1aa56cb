"""Durable runs of every kind that needs no kill, made by the real runner under a fake clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from labkit.durable import (
    AgentDefinition,
    DefinitionRegistry,
    DeterministicModelAdapter,
    DeterministicTool,
    FailureClassification,
    FakeClock,
    ModelExecutionBudget,
    ModelResponse,
    PlaintextPayloadCodec,
    RetryPolicy,
    Runner,
    RunRecord,
    RunResolution,
    SQLiteRunStore,
    ToolCall,
    ToolEffect,
    ToolFailure,
    ToolRequest,
)

Act = Callable[["Keeper", ToolRequest], Awaitable[None]]


class Keeper:
    """A store, its clock, and one tool, `send`, which does what the run's `act` says."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.store = SQLiteRunStore(path, payload_codec=PlaintextPayloadCodec(), clock=self.clock)
        self.acts: list[Act] = []

    def runner(self, owner: str = "ann", **more: object) -> Runner:
        registry = DefinitionRegistry()
        if more.pop("is_known", True):
            registry.register(self._definition(more))
        ttl = timedelta(seconds=30)
        return Runner(registry=registry, store=self.store, owner=owner, lease_ttl=ttl)

    def _definition(self, more: dict[str, object]) -> AgentDefinition:
        tool = DeterministicTool("send", effect=ToolEffect.NON_IDEMPOTENT, handler=self._send)
        asks = ModelResponse(tool_calls=(ToolCall("c1", "send", "{}"),))
        return AgentDefinition.for_adapter(
            definition_id="mail",
            version="1",
            instructions="",
            tools=(tool,),
            model_adapter=DeterministicModelAdapter(responses=(asks, "Done.")),
            **more,  # type: ignore[arg-type]
        )

    async def _send(self, request: ToolRequest) -> str:
        self.clock.advance(1)
        if self.acts:
            await self.acts.pop(0)(self, request)
        return "sent"

    async def start(self, run_id: str, *acts: Act, **more: object) -> RunRecord:
        self.acts = [*acts]
        runner = self.runner(**more)
        await runner.create_run("mail", "1", "", run_id=run_id)
        self.clock.advance(1)
        return await runner.start_run(run_id)

    async def answer(self, run: RunRecord, how: str, *words: str) -> RunRecord:
        self.clock.advance(60)
        step = {"waiting_step_id": run.waiting_step_id, "actor": "eve"}
        resolution = getattr(RunResolution, how)(*words, **step)
        return await self.runner("bob").resolve_run(run.run_id, resolution, run.version)


async def hiccup(keeper: Keeper, request: ToolRequest) -> None:
    raise ToolFailure(FailureClassification.TRANSIENT, "BUSY")


async def refuse(keeper: Keeper, request: ToolRequest) -> None:
    raise ToolFailure(FailureClassification.PERMANENT, "NO")


async def get_lost(keeper: Keeper, request: ToolRequest) -> None:
    raise ConnectionError("no answer")


async def be_cancelled(keeper: Keeper, request: ToolRequest) -> None:
    await keeper.runner("eve").cancel_run(request.run_id)


async def be_cancelled_and_lost(keeper: Keeper, request: ToolRequest) -> None:
    await be_cancelled(keeper, request)
    await get_lost(keeper, request)


async def be_interrupted(keeper: Keeper, request: ToolRequest) -> None:
    task = asyncio.current_task()
    assert task
    task.cancel()
    await asyncio.sleep(0)


async def make_every_kind(path: Path) -> None:
    keeper = Keeper(path)
    await keeper.start("done")
    await keeper.start("failed", refuse)
    policy = RetryPolicy(max_attempts=3, delay=timedelta(0))
    await keeper.start("retried", hiccup, hiccup, retry_policy=policy)
    await keeper.start("over budget", model_execution_budget=ModelExecutionBudget(1, 1, 1, 1))
    await keeper.start("waits", get_lost)
    await keeper.answer(await keeper.start("confirmed", get_lost), "confirm_step", "it is there")
    await keeper.answer(await keeper.start("rejected", get_lost), "reject_step", "NO", "not sent")
    await keeper.answer(await keeper.start("tried again", get_lost), "retry_step")
    again = await keeper.answer(await keeper.start("twice", get_lost, get_lost), "retry_step")
    await keeper.answer(again, "confirm_step", "it is there")
    await keeper.answer(await keeper.start("given up", get_lost), "fail_run")
    await keeper.answer(await keeper.start("called off", get_lost), "cancel_run")
    await keeper.start("cancelled", be_cancelled)
    await keeper.answer(await keeper.start("late", be_cancelled_and_lost), "confirm_step", "sent")
    await keeper.answer(await keeper.start("later", be_cancelled_and_lost), "retry_step")
    await keeper.start("waits to end", get_lost)
    await keeper.runner("bob").cancel_run("waits to end")
    await keeper.runner().create_run("mail", "1", "", run_id="only created")
    await keeper.runner().create_run("mail", "1", "", run_id="never begun")
    await keeper.runner("eve").cancel_run("never begun")
    await keeper.runner().create_run("mail", "1", "", run_id="moved")
    for is_known in (False, False, True):
        await keeper.runner("bob", is_known=is_known).resume_run("moved")
    await _interrupted(keeper)
    keeper.store.close()


async def _interrupted(keeper: Keeper) -> None:
    """Its task is cancelled while the tool is called; later the run is cancelled too."""
    with_task = asyncio.create_task(keeper.start("interrupted", be_interrupted))
    await asyncio.wait([with_task])
    assert with_task.cancelled()
    await keeper.runner("bob").cancel_run("interrupted")

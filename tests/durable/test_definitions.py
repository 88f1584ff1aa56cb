"""Definitions: what is registered, what a run freezes of it, and what happens when it is gone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from labkit.durable import (
    AgentDefinition,
    DefinitionConflictError,
    DefinitionError,
    DefinitionNotFoundError,
    DefinitionRegistry,
    DefinitionSnapshot,
    DeterministicTool,
    ModelExecutionBudget,
    ResolutionNotAllowedError,
    RetryPolicy,
    Runner,
    RunResolution,
    RunStatus,
    ToolEffect,
)
from labkit.errors import BadInput
from tests.durable.kit import DONE, SEND, Killed, Process, Source, World, asks, in_loop

# --- the registry


def test_a_definition_is_found_under_its_exact_id_and_version(memory: World) -> None:
    registry, agent = DefinitionRegistry(), memory.agent()
    registry.register(agent)
    assert registry.resolve("support", "1.0") is agent
    for name, version in (("support", "1"), ("support", "2.0"), ("Support", "1.0")):
        assert not registry.is_registered(name, version)
        with pytest.raises(DefinitionNotFoundError, match=r"registered: support 1\.0"):
            registry.resolve(name, version)


def test_the_same_id_and_version_twice_is_a_conflict(memory: World) -> None:
    registry, first = DefinitionRegistry(), memory.agent()
    registry.register(first)
    with pytest.raises(DefinitionConflictError, match="new version"):
        registry.register(memory.agent(instructions="Be long."))
    registry.register(memory.agent(version="1.1"))
    assert registry.resolve("support", "1.0") is first


NO_DEFINITIONS: dict[str, Any] = {
    "two tools of one name": lambda world: world.agent(tools=(world.tool(), world.tool())),
    "no id": lambda world: world.agent(definition_id=""),
    "no version": lambda world: world.agent(version=""),
    "no attempt": lambda world: RetryPolicy(0),
    "a delay into the past": lambda world: RetryPolicy(1, delay=timedelta(seconds=-1)),
    "what JSON cannot keep": lambda world: world.agent(
        tools=(DeterministicTool("x", parameters={"x": object()}),)
    ).frozen_snapshot(),
}


@pytest.mark.parametrize("make", NO_DEFINITIONS.values(), ids=NO_DEFINITIONS)
def test_what_is_no_definition_is_refused_in_one_line(memory: World, make: Any) -> None:
    with pytest.raises(DefinitionError) as caught:
        make(memory)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(seconds=-1)])
def test_a_lease_lasts_longer_than_nothing(memory: World, ttl: timedelta) -> None:
    with pytest.raises(BadInput, match="lease_ttl"):
        Runner(registry=DefinitionRegistry(), store=memory.store, lease_ttl=ttl)


# --- the snapshot


@in_loop
async def test_the_snapshot_holds_the_declarations_and_nothing_callable(world: World) -> None:
    more = {
        "effect": ToolEffect.IDEMPOTENT,
        "timeout_s": 2.5,
        "retry_policy": RetryPolicy(4, timedelta(seconds=1.5)),
        "model_execution_budget": ModelExecutionBudget(run_max_attempts=5),
        "model_timeout_s": 60.0,
        "context_provider": Source(world.witness, ()),
    }
    agent = world.agent(**more)
    await world.create(world.runner(agent))
    found = (await world.open().get_run("r")).snapshot
    assert found == agent.frozen_snapshot()
    assert isinstance(found, DefinitionSnapshot)
    assert (found.definition_id, found.version, found.instructions) == (
        "support",
        "1.0",
        "Be brief.",
    )
    [tool] = found.tool_declarations
    assert (tool.name, tool.effect, tool.timeout_s) == ("send", ToolEffect.IDEMPOTENT, 2.5)
    assert found.retry_policy == more["retry_policy"]
    assert found.model_execution_budget == more["model_execution_budget"]
    assert (found.model_timeout_s, found.has_context_provider) == (60.0, True)


def test_a_snapshot_is_a_copy(memory: World) -> None:
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    agent = memory.agent(tools=(DeterministicTool("x", parameters=parameters),))
    frozen = agent.frozen_snapshot()
    parameters["properties"]["y"] = {"type": "string"}
    assert frozen.tool_declarations[0].parameters == {"type": "object", "properties": {}}


@in_loop
async def test_the_model_is_asked_as_the_run_was_created(world: World) -> None:
    """Instructions and tools come from the snapshot, the adapter from the registry."""
    await world.crash(lambda process: world.agent(answers=(process.die,)))
    agent = world.agent(instructions="Be long.", tools=(world.tool(), world.tool(name="more")))
    await world.runner(agent).resume_run("r")
    request = agent.model_adapter.requests[0]  # type: ignore[attr-defined]
    assert request.instructions == "Be brief."
    assert [tool.name for tool in request.tools] == ["send"]


@in_loop
async def test_a_tool_added_later_cannot_be_asked_for(world: World) -> None:
    await world.crash(lambda process: world.agent(answers=(process.die,)))
    more = world.agent(answers=(asks("more"),), tools=(world.tool(), world.tool(name="more")))
    ended = await world.runner(more).resume_run("r")
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, "MODEL_CONTRACT_VIOLATION")
    assert world.witness.count("more") == 0


@in_loop
async def test_another_version_does_not_change_a_run_that_is_there(world: World) -> None:
    await world.crash(lambda process: world.agent(answers=(process.die,)))
    old, new = world.agent(), world.agent(version="2.0", retry_policy=RetryPolicy(1))
    ended = await world.runner(old, new).resume_run("r")
    assert (ended.status, ended.definition_version) == (RunStatus.SUCCEEDED, "1.0")
    assert ended.snapshot.retry_policy is None
    assert new.model_adapter.requests == []  # type: ignore[attr-defined]


# --- DEFINITION_UNAVAILABLE


@in_loop
async def test_a_created_run_without_its_definition_waits(world: World) -> None:
    await world.create(world.runner(world.agent()))
    waiting = await world.runner(world.agent(version="2.0")).resume_run("r")
    assert (waiting.status, waiting.waiting_reason) == (RunStatus.WAITING, "DEFINITION_UNAVAILABLE")
    assert (waiting.waiting_step_id, waiting.version, waiting.lease_owner) == (None, 2, None)
    assert world.witness.lines == []


@in_loop
async def test_an_abandoned_run_without_its_definition_waits_and_then_goes_on(
    world: World,
) -> None:
    """From the checkpoint, without another call of what was done."""
    process = Process(world.open(), after=5)
    await world.create(world.runner(world.agent()))
    with pytest.raises(Killed):
        await world.runner(world.agent(), store=process).start_run("r")
    await world.expire()
    calls = world.witness.lines
    waiting = await world.runner(world.agent(version="2.0")).resume_run("r")
    assert (waiting.status, waiting.waiting_reason) == (RunStatus.WAITING, "DEFINITION_UNAVAILABLE")
    async with world.unchanged():
        for _ in range(2):
            assert await world.runner(world.agent(version="2.0")).resume_run("r") == waiting
    ended = await world.runner(world.agent()).resume_run("r")
    assert (ended.status, ended.output, ended.version) == (RunStatus.SUCCEEDED, DONE, 5)
    assert world.witness.lines == [*calls, "model 2"]


@in_loop
async def test_an_open_effect_is_put_in_order_before_the_definition_is_missed(
    world: World,
) -> None:
    await world.crash(lambda process: world.agent(process.die))
    waiting = await world.runner().resume_run("r")
    assert (waiting.waiting_reason, waiting.waiting_step_id) == ("UNCERTAIN_NON_IDEMPOTENT", SEND)


@pytest.mark.parametrize("gone", ["tool", "context"])
@in_loop
async def test_a_callable_that_is_gone_is_a_definition_that_is_gone(
    world: World, gone: str
) -> None:
    """The same id and version, without the tool or the provider that the run froze."""
    source = Source(world.witness, ())
    full = world.agent(context_provider=source)
    await world.create(world.runner(full))
    less = {"tools": ()} if gone == "tool" else {"context_provider": None}
    part = world.agent(**({"context_provider": source} | less))
    waiting = await world.runner(part).start_run("r")
    assert (waiting.status, waiting.waiting_reason) == (RunStatus.WAITING, "DEFINITION_UNAVAILABLE")
    assert world.witness.count("send") == 0
    assert (await world.runner(full).resume_run("r")).status is RunStatus.SUCCEEDED
    assert world.witness.count("send") == 1


@in_loop
async def test_a_retry_whose_tool_is_gone_calls_nothing(world: World) -> None:
    waiting = await world.wait()
    retry = RunResolution.retry_step(waiting_step_id=SEND)
    runner = world.runner(world.agent(tools=()))
    async with world.unchanged():
        with pytest.raises(ResolutionNotAllowedError):
            await runner.resolve_run("r", retry, waiting.version)


@pytest.mark.parametrize(
    ("resolution", "status"),
    [(RunResolution.fail_run(), "FAILED"), (RunResolution.cancel_run(), "CANCELLED")],
)
@in_loop
async def test_a_run_without_its_definition_can_be_ended(
    world: World, resolution: RunResolution, status: str
) -> None:
    await world.create(world.runner(world.agent()))
    runner = world.runner()
    waiting = await runner.resume_run("r")
    ended = await runner.resolve_run("r", resolution, waiting.version)
    assert (ended.status, world.witness.lines) == (status, [])


def test_a_definition_is_frozen(memory: World) -> None:
    agent: AgentDefinition = memory.agent()
    with pytest.raises(AttributeError):
        agent.instructions = "x"  # type: ignore[misc]

"""What leaves an advance in the middle: the run is anybody's at once, and nothing is repeated."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from labkit.durable import (
    AgentDefinition,
    FailureClassification,
    RetryPolicy,
    RunResolution,
    RunStatus,
    StepStatus,
    ToolEffect,
    ToolFailure,
)
from tests.durable.kit import (
    DONE,
    SEND,
    Acts,
    Gate,
    Source,
    World,
    asks,
    in_loop,
    settle,
    start,
    until,
)


def hanging(world: World, step: str, gate: Gate) -> AgentDefinition:
    effect = ToolEffect[step] if step in ToolEffect.__members__ else ToolEffect.NON_IDEMPOTENT
    return {
        "context": lambda: world.agent(context_provider=Source(world.witness, gate)),
        "model": lambda: world.agent(answers=(gate,)),
    }.get(step, lambda: world.agent(gate, effect=effect))()


EACH_STEP = ["context", "model", *ToolEffect]


@pytest.mark.parametrize("step", EACH_STEP)
@in_loop
async def test_a_cancelled_task_leaves_the_run_to_anybody_at_once(world: World, step: str) -> None:
    gate = Gate()
    runner = world.runner(hanging(world, step, gate))
    await world.create(runner)
    task = await start(runner, gate)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run = await world.store.get_run("r")
    last = (await world.inspect()).attempts[-1]
    assert (run.lease_owner, last.classification) == (None, "UNCERTAIN")
    waits = step == ToolEffect.NON_IDEMPOTENT
    assert run.status is (RunStatus.WAITING if waits else RunStatus.RUNNING)
    now = await world.runner(hanging(world, step, Gate())).get_run("r")
    done = Gate({"context": (), "model": DONE}.get(step, "sent"))
    done.open.set()
    now = await world.runner(hanging(world, step, done)).resume_run("r")
    assert now.status is (RunStatus.WAITING if waits else RunStatus.SUCCEEDED)
    assert world.witness.count("send") == {"context": 1, "model": 0, "NON_IDEMPOTENT": 1}.get(
        step, 2
    )


@in_loop
async def test_a_task_cancelled_between_two_attempts(world: World) -> None:
    transient = ToolFailure(FailureClassification.TRANSIENT)
    policy = RetryPolicy(3, delay=timedelta(seconds=5))
    runner = world.runner(world.agent(transient, retry_policy=policy))
    await world.create(runner)
    task = asyncio.create_task(runner.start_run("r"))
    await until(lambda: world.witness.count("send"))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run = await world.store.get_run("r")
    assert (run.status, run.lease_owner) == (RunStatus.RUNNING, None)


@in_loop
async def test_a_task_cancelled_as_its_call_returns(world: World) -> None:
    """The cancellation is not swallowed, and what was called is not called again."""
    tasks: list[asyncio.Task[Any]] = []

    def returns(request: Any) -> str:
        asyncio.get_running_loop().call_soon(tasks[0].cancel)
        return "sent"

    runner = world.runner(world.agent(returns))
    await world.create(runner)
    tasks.append(asyncio.create_task(runner.start_run("r")))
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    run = await world.store.get_run("r")
    assert run.lease_owner is None
    if not run.status.is_terminal:
        await world.runner(world.agent()).resume_run("r")
    assert world.witness.count("send") == 1


class Leaves(BaseException):
    """As a KeyboardInterrupt does."""


@pytest.mark.parametrize("step", EACH_STEP)
@in_loop
async def test_what_no_program_should_swallow_gives_the_lease_back(world: World, step: str) -> None:
    gate = Gate(Leaves())
    gate.open.set()
    runner = world.runner(hanging(world, step, gate))
    await world.create(runner)
    with pytest.raises(Leaves):
        await runner.start_run("r")
    run = await world.store.get_run("r")
    waits = step == ToolEffect.NON_IDEMPOTENT
    expected = RunStatus.WAITING if waits else RunStatus.RUNNING
    assert (run.lease_owner, run.status) == (None, expected)
    assert (await world.inspect()).attempts[-1].status is StepStatus.FAILED


@in_loop
async def test_a_callee_cancelled_by_somebody_else_is_an_uncertain_failure(world: World) -> None:
    """The task of the advance was not cancelled, so the advance goes on: to WAITING."""
    waiting = await world.run(asyncio.CancelledError())
    assert (waiting.status, waiting.waiting_step_id) == (RunStatus.WAITING, SEND)


@in_loop
async def test_a_resolution_whose_task_is_cancelled(world: World) -> None:
    waiting = await world.wait()
    gate = Gate()
    runner = world.runner(world.agent(answers=(asks("send"), Acts(gate))))
    confirm = RunResolution.confirm_step("It was sent.", waiting_step_id=SEND)
    task = asyncio.create_task(runner.resolve_run("r", confirm, waiting.version))
    await gate.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await world.store.get_run("r")).lease_owner is None
    assert (await world.runner(world.agent()).resume_run("r")).status is RunStatus.SUCCEEDED


@in_loop
async def test_a_resumption_whose_task_is_cancelled(world: World) -> None:
    await world.crash(lambda process: world.agent(answers=(process.die,)))
    gate = Gate()
    task = asyncio.create_task(world.runner(world.agent(answers=(gate,))).resume_run("r"))
    await gate.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await world.store.get_run("r")).lease_owner is None
    assert (await world.runner(world.agent()).resume_run("r")).status is RunStatus.SUCCEEDED
    assert [attempt.number for attempt in (await world.inspect()).attempts][:3] == [1, 2, 3]

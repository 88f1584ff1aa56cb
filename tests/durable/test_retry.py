"""What is tried again and how often: classes of failure, time-outs, delays, budgets."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from labkit.durable import (
    FailureClassification,
    ModelExecutionBudget,
    ModelFailure,
    RetryPolicy,
    RunRecord,
    RunStatus,
    StepFailure,
    StepStatus,
    ToolEffect,
    ToolFailure,
)
from tests.durable.kit import (
    DONE,
    SEND,
    TTL,
    Acts,
    Killed,
    Process,
    Source,
    World,
    asks,
    at,
    each_attempt,
    in_loop,
    settle,
)

TRANSIENT, PERMANENT, UNCERTAIN = FailureClassification
NON_IDEMPOTENT = ToolEffect.NON_IDEMPOTENT
THREE = RetryPolicy(max_attempts=3)


def fails(kind: FailureClassification) -> ToolFailure:
    return ToolFailure(kind, "BUSY", "the line is busy")


# --- classes of failure


@pytest.mark.parametrize("effect", ToolEffect)
@in_loop
async def test_a_transient_failure_is_retried_whatever_the_effect(
    world: World, effect: ToolEffect
) -> None:
    """The tool asserts that no effect happened."""
    both = (fails(TRANSIENT), fails(TRANSIENT), "sent")
    ended = await world.run(*both, effect=effect, retry_policy=THREE)
    assert (ended.status, world.witness.count("send")) == (RunStatus.SUCCEEDED, 3)
    found = await world.inspect()
    assert list(each_attempt(found))[1:4] == [
        (f"{SEND}#1", "FAILED", "TRANSIENT"),
        (f"{SEND}#2", "FAILED", "TRANSIENT"),
        (f"{SEND}#3", "SUCCEEDED", None),
    ]
    assert len(found.steps) == 3


@in_loop
async def test_the_bound_of_the_policy(world: World) -> None:
    ended = await world.run(fails(TRANSIENT), retry_policy=THREE)
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, "BUSY")
    assert world.witness.count("send") == 3
    found = await world.inspect()
    assert (found.steps[1].status, found.steps[1].error_code) == (StepStatus.FAILED, "BUSY")
    assert [each.error_code for each in found.attempts[1:]] == ["BUSY"] * 3
    assert "the line is busy" in (found.attempts[1].error or "")
    kinds = await world.kinds()
    assert (kinds.count("step_error"), kinds[-1]) == (3, "task_failed")


@in_loop
async def test_without_a_policy_there_is_one_call(world: World) -> None:
    ended = await world.run(fails(TRANSIENT))
    assert (ended.status, world.witness.count("send")) == (RunStatus.FAILED, 1)


@pytest.mark.parametrize("error", [OSError("?"), ValueError("?"), TimeoutError("mine"),
                                   StepFailure(TRANSIENT), ModelFailure(TRANSIENT, "ASKED"),
                                   fails(UNCERTAIN)], ids=repr)  # fmt: skip
@pytest.mark.parametrize("effect", ToolEffect)
@in_loop
async def test_only_a_tool_failure_asserts_that_nothing_happened(
    memory: World, effect: ToolEffect, error: Exception
) -> None:
    """Not even the failure of a model that the tool asked in its turn. None is retried."""
    run = await memory.run(error, effect=effect, retry_policy=THREE)
    waits = effect is NON_IDEMPOTENT
    assert run.status is (RunStatus.WAITING if waits else RunStatus.FAILED)
    assert memory.witness.count("send") == 1
    last = (await memory.inspect()).attempts[-1]
    is_unsure = waits or isinstance(error, ToolFailure)
    assert last.classification == (UNCERTAIN if is_unsure else PERMANENT)
    assert last.error_code == ("BUSY" if isinstance(error, ToolFailure) else "UNCLASSIFIED_FAILURE")


@pytest.mark.parametrize("effect", ToolEffect)
@in_loop
async def test_a_permanent_failure_ends_the_run(memory: World, effect: ToolEffect) -> None:
    ended = await memory.run(fails(PERMANENT), effect=effect, retry_policy=THREE)
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, "BUSY")
    assert memory.witness.count("send") == 1


@pytest.mark.parametrize(
    ("error", "calls", "kind", "code"),
    [
        (ModelFailure(TRANSIENT, "OVERLOADED"), 3, TRANSIENT, "OVERLOADED"),
        (ModelFailure(PERMANENT, "NO_KEY"), 1, PERMANENT, "NO_KEY"),
        (ModelFailure(UNCERTAIN, "DROPPED"), 1, UNCERTAIN, "DROPPED"),
        (ToolFailure(TRANSIENT), 1, PERMANENT, "UNCLASSIFIED_FAILURE"),
        (ConnectionError("reset"), 1, PERMANENT, "UNCLASSIFIED_FAILURE"),
    ],
    ids=repr,
)
@in_loop
async def test_failures_of_a_model(
    memory: World, error: Exception, calls: int, kind: FailureClassification, code: str
) -> None:
    ended = await memory.run(answers=(error,), retry_policy=THREE)
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, code)
    assert memory.witness.count("model") == calls
    assert (await memory.inspect()).attempts[-1].classification is kind


@in_loop
async def test_a_model_that_recovers(world: World) -> None:
    busy = ModelFailure(TRANSIENT)
    ended = await world.run(answers=(Acts(busy, busy, DONE),), retry_policy=THREE)
    assert (ended.output, world.witness.count("model")) == (DONE, 3)


@in_loop
async def test_a_context_provider_is_retried_too(memory: World) -> None:
    source = Source(memory.witness, StepFailure(TRANSIENT), ())
    ended = await memory.run(context_provider=source, retry_policy=THREE)
    assert (ended.status, memory.witness.count("context")) == (RunStatus.SUCCEEDED, 2)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


@in_loop
async def test_an_error_that_cannot_be_printed_is_an_error(memory: World) -> None:
    waiting = await memory.run(Unprintable())
    assert waiting.status is RunStatus.WAITING


# --- across crashes


@in_loop
async def test_failures_and_crashes_use_up_the_same_attempts(world: World) -> None:
    """TRANSIENT, then killed, then TRANSIENT: three of three, counted from the store."""
    more = {"effect": ToolEffect.IDEMPOTENT, "retry_policy": THREE}
    await world.crash(lambda process: world.agent(fails(TRANSIENT), process.die, **more))
    ended = await world.runner(world.agent(fails(TRANSIENT), **more)).resume_run("r")
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, "BUSY")
    assert world.witness.count("send") == 3
    classes = [each.classification for each in (await world.inspect()).attempts[1:]]
    assert classes == [TRANSIENT, UNCERTAIN, TRANSIENT]


@pytest.mark.parametrize("policy", [THREE, None])
@in_loop
async def test_a_kill_between_two_attempts_is_no_attempt(
    world: World, policy: RetryPolicy | None
) -> None:
    """After the failure is stored: with a policy the next attempt follows, without one nothing
    does, since the failure ended the run in its own transaction."""
    process = Process(world.open(), after=6)  # its creation, the lease, two, two
    runner = world.runner(world.agent(fails(TRANSIENT), retry_policy=policy), store=process)
    await world.create(runner)
    with pytest.raises(Killed):
        await runner.start_run("r")
    run = await world.store.get_run("r")
    if policy is None:
        assert (run.status, world.witness.count("send")) == (RunStatus.FAILED, 1)
        return
    await world.expire()
    ended = await world.runner(world.agent(retry_policy=policy)).resume_run("r")
    assert (ended.status, world.witness.count("send")) == (RunStatus.SUCCEEDED, 2)


# --- delays


@in_loop
async def test_the_delay_between_two_attempts_passes_on_the_stores_clock(world: World) -> None:
    policy = RetryPolicy(3, delay=timedelta(seconds=10))
    runner = world.runner(world.agent(fails(TRANSIENT), "sent", retry_policy=policy))
    await world.create(runner)
    task = asyncio.create_task(runner.start_run("r"))
    await settle()
    assert world.witness.count("send") == 1
    world.clock.advance(9.99)
    await settle()
    assert world.witness.count("send") == 1
    world.clock.advance(0.01)
    ended = await task
    assert (ended.status, world.witness.count("send")) == (RunStatus.SUCCEEDED, 2)


@in_loop
async def test_the_lease_is_kept_during_a_delay(world: World) -> None:
    policy = RetryPolicy(2, delay=3 * TTL)
    runner = world.runner(world.agent(fails(TRANSIENT), "sent", retry_policy=policy))
    await world.create(runner)
    task = asyncio.create_task(runner.start_run("r"))
    for _ in range(8):
        await settle()
        world.clock.advance(TTL / 3)
        await settle()
        assert at(await world.store.get_run("r")) == world.clock.now() + TTL
    world.clock.advance(TTL / 3)
    ended = await task
    assert (ended.status, ended.lease_epoch) == (RunStatus.SUCCEEDED, 1)


# --- time-outs


async def never(request: Any) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("effect", ToolEffect)
@in_loop
async def test_the_end_of_a_tools_time_is_uncertain(world: World, effect: ToolEffect) -> None:
    run = await world.run(never, effect=effect, timeout_s=0.01, retry_policy=THREE)
    waits = effect is NON_IDEMPOTENT
    assert run.status is (RunStatus.WAITING if waits else RunStatus.FAILED)
    assert world.witness.count("send") == 1
    found = await world.inspect()
    assert (found.attempts[-1].classification, found.attempts[-1].error_code) == (
        UNCERTAIN,
        "TIMED_OUT",
    )
    assert "0.01 s" in (found.attempts[-1].error or "")
    assert (run.waiting_step_id, run.error_code) == ((SEND, None) if waits else (None, "TIMED_OUT"))


@in_loop
async def test_the_end_of_a_models_time_fails_the_run(world: World) -> None:
    more: dict[str, Any] = {"model_timeout_s": 0.01, "retry_policy": THREE}
    ended = await world.run(answers=(never,), **more)
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, "TIMED_OUT")
    assert world.witness.count("model") == 1


@in_loop
async def test_the_time_is_the_frozen_one(world: World) -> None:
    """The tool is registered with another later; the run keeps what it was created with."""
    await world.create(world.runner(world.agent(timeout_s=0.01)))
    run = await world.runner(world.agent(never, timeout_s=3600)).start_run("r")
    assert (run.status, world.witness.count("send")) == (RunStatus.WAITING, 1)


@in_loop
async def test_each_attempt_has_its_time(memory: World) -> None:
    run = await memory.run(fails(TRANSIENT), never, timeout_s=0.01, retry_policy=THREE)
    assert (run.status, memory.witness.count("send")) == (RunStatus.WAITING, 2)


# --- the budget of model attempts


async def budgeted(world: World, answers: tuple[Any, ...], **limits: int) -> RunRecord:
    budget = ModelExecutionBudget(**limits)
    return await world.run(
        answers=answers, model_execution_budget=budget, retry_policy=RetryPolicy(9)
    )


@pytest.mark.parametrize("limit", ["run_max_attempts", "primary_max_attempts"])
@in_loop
async def test_a_budget_that_is_used_up_ends_the_run(world: World, limit: str) -> None:
    """Nothing is stored for the attempt that is refused: no step, no attempt, no event."""
    ended = await budgeted(world, (asks("send"), DONE), **{limit: 1})
    code = "MODEL_EXECUTION_BUDGET_EXCEEDED"
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, code)
    assert (world.witness.count("model"), world.witness.count("send")) == (1, 1)
    found = await world.inspect()
    assert [step.step_id for step in found.steps] == ["model-1", SEND]
    assert len(found.attempts) == 2
    last = (await world.store.read_journal("r"))[-1]
    assert (last["kind"], json.loads(last["data"])["code"]) == ("task_failed", code)


@in_loop
async def test_a_budget_of_nothing_calls_nothing(memory: World) -> None:
    ended = await budgeted(memory, (DONE,), run_max_attempts=0)
    assert (ended.status, memory.witness.lines) == (RunStatus.FAILED, [])
    assert (await memory.inspect()).steps == []


@in_loop
async def test_a_failed_attempt_is_not_refunded(world: World) -> None:
    busy = ModelFailure(TRANSIENT, "BUSY")
    ended = await budgeted(world, (Acts(busy, busy, DONE),), run_max_attempts=2)
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, "MODEL_EXECUTION_BUDGET_EXCEEDED")
    assert world.witness.count("model") == 2
    found = await world.inspect()
    assert [step.status for step in found.steps] == [StepStatus.FAILED]


@in_loop
async def test_a_budget_that_is_just_enough(world: World) -> None:
    limits = {"run_max_attempts": 2, "primary_max_attempts": 2}
    ended = await budgeted(world, (asks("send"), DONE), **limits)
    assert ended.status is RunStatus.SUCCEEDED


@in_loop
async def test_tools_use_up_nothing_of_it(memory: World) -> None:
    ended = await budgeted(memory, (asks(*["send"] * 5), DONE), run_max_attempts=2)
    assert (ended.status, memory.witness.count("send")) == (RunStatus.SUCCEEDED, 5)


@in_loop
async def test_the_default_budget_ends_a_model_that_never_ends(world: World) -> None:
    """Eight attempts: the only bound of a run whose model asks for ever."""
    ended = await world.run(answers=[asks("send")] * 20)
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, "MODEL_EXECUTION_BUDGET_EXCEEDED")
    assert (world.witness.count("model"), world.witness.count("send")) == (8, 8)

"""Cancelling: an intent that is stored, and obeyed at the next safe point by whoever is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from labkit.durable import (
    FailureClassification,
    IllegalRunTransitionError,
    LeaseNotHeldError,
    ModelDelta,
    ModelFailure,
    ModelRequest,
    ModelResponse,
    RetryPolicy,
    Runner,
    RunRecord,
    RunResolution,
    RunStatus,
    StaleRunVersionError,
    StepStatus,
    StreamingModelAdapter,
    ToolEffect,
    ToolFailure,
)
from labkit.durable.records import ResolutionAction
from tests.durable.kit import (
    DONE,
    SEND,
    TTL,
    Gate,
    Killed,
    Meddled,
    Process,
    Source,
    World,
    asks,
    each_attempt,
    in_loop,
    settle,
    start,
    until,
)

TRANSIENT = FailureClassification.TRANSIENT
ANSWERS = {
    "CONFIRM_STEP": {"result": "It was sent."},
    "REJECT_STEP": {"code": "NO", "message": "It was not."},
    "RETRY_STEP": {},
    "FAIL_RUN": {},
    "CANCEL_RUN": {},
}


async def cancel(world: World) -> RunRecord:
    """From another process: another connection, and nothing registered."""
    return await world.runner(owner="operator").cancel_run("r")


async def answer(world: World, action: str, run: RunRecord) -> RunRecord:
    resolution = RunResolution(ResolutionAction(action), waiting_step_id=SEND, **ANSWERS[action])
    return await world.runner(world.agent()).resolve_run("r", resolution, run.version)


async def ends_cancelled(world: World, task: asyncio.Task[RunRecord]) -> None:
    ended = await task
    assert (ended.status, ended.output, ended.error_code) == (RunStatus.CANCELLED, None, None)
    assert (ended.version, ended.lease_owner) == (3, None)
    assert (await world.kinds())[-1] == "task_cancelled"


# --- where nobody advances the run


@in_loop
async def test_before_its_start_it_ends_without_a_call(world: World) -> None:
    await world.create(world.runner(world.agent()))
    ended = await cancel(world)
    assert (ended.status, ended.version, ended.lease_owner) == (RunStatus.CANCELLED, 2, None)
    assert world.witness.lines == []
    assert await world.kinds() == ["task_created", "run_started", "task_cancelled"]


@in_loop
async def test_a_waiting_run_ends_without_a_call(world: World) -> None:
    waiting = await world.wait()
    ended = await cancel(world)
    assert (ended.status, ended.version) == (RunStatus.CANCELLED, waiting.version + 1)
    assert (ended.waiting_reason, ended.waiting_step_id) == (None, None)
    assert world.witness.count("send") == 1
    assert (await world.inspect()).steps[-1].status is StepStatus.FAILED


@pytest.mark.parametrize("where", ["context", "model", "READ_ONLY", "between"])
@in_loop
async def test_an_abandoned_run_ends_without_a_call(world: World, where: str) -> None:
    if where == "between":
        process = Process(world.open(), after=3)
        await world.create(world.runner(world.agent()))
        with pytest.raises(Killed):
            await world.runner(world.agent(), store=process).start_run("r")
        await world.expire()
    else:
        await world.crash(
            lambda process: {
                "context": lambda: world.agent(context_provider=Source(world.witness, process.die)),
                "model": lambda: world.agent(answers=(process.die,)),
                "READ_ONLY": lambda: world.agent(process.die, effect=ToolEffect.READ_ONLY),
            }[where]()
        )
    calls = world.witness.lines
    ended = await cancel(world)
    assert (ended.status, world.witness.lines) == (RunStatus.CANCELLED, calls)
    assert "RUNNING" not in {status for _, status, _ in each_attempt(await world.inspect())}


@in_loop
async def test_an_uncertain_effect_beats_the_cancel_of_an_abandoned_run(world: World) -> None:
    await world.crash(lambda process: world.agent(process.die))
    waiting = await cancel(world)
    assert (waiting.status, waiting.waiting_step_id) == (RunStatus.WAITING, SEND)
    assert waiting.cancel_requested_by == "operator"
    assert (await answer(world, "CONFIRM_STEP", waiting)).status is RunStatus.CANCELLED


@in_loop
async def test_a_run_whose_runner_is_dead_but_not_expired_is_cancelled_by_the_next(
    world: World,
) -> None:
    process = Process(world.open())
    runner = world.runner(world.agent(process.die, effect=ToolEffect.READ_ONLY), store=process)
    await world.create(runner)
    with pytest.raises(Killed):
        await runner.start_run("r")
    asked = await cancel(world)
    assert (asked.status, asked.version) == (RunStatus.RUNNING, 2)
    await world.expire()
    [found] = await world.runner(world.agent()).recover_all()
    assert found.run is not None
    assert (found.run.status, world.witness.count("send")) == (RunStatus.CANCELLED, 1)


@in_loop
async def test_a_stale_version_takes_nothing_from_an_abandoned_run(world: World) -> None:
    await world.crash(lambda process: world.agent(answers=(process.die,)))
    async with world.unchanged():
        with pytest.raises(StaleRunVersionError):
            await world.runner(world.agent()).cancel_run("r", expected_version=1)


@in_loop
async def test_it_needs_no_definition(world: World) -> None:
    await world.crash(lambda process: world.agent(answers=(process.die,)))
    waiting = await world.runner().resume_run("r")
    assert waiting.waiting_reason == "DEFINITION_UNAVAILABLE"
    assert (await cancel(world)).status is RunStatus.CANCELLED


# --- where another advances it


async def asked_while(world: World, gate: Gate, runner: Runner) -> asyncio.Task[RunRecord]:
    await world.create(runner)
    task = await start(runner, gate)
    asked = await cancel(world)
    assert asked.status is RunStatus.RUNNING
    gate.open.set()
    return task


@in_loop
async def test_the_request_is_durable_and_moves_nothing_else(world: World) -> None:
    gate = Gate()
    runner = world.runner(world.agent(gate))
    await world.create(runner)
    task = await start(runner, gate)
    before = await world.store.get_run("r")
    world.clock.advance(1)
    asked = await cancel(world)
    assert (asked.version, asked.lease_epoch, asked.lease_owner) == (
        before.version,
        before.lease_epoch,
        before.lease_owner,
    )
    assert (asked.cancel_requested_by, asked.cancel_requested_at) == (
        "operator",
        world.clock.now(),
    )
    event = (await world.store.read_journal("r"))[-1]
    assert (event["kind"], "operator" in event["data"]) == ("cancel_requested", True)
    gate.open.set()
    await task


@in_loop
async def test_a_second_request_changes_nothing(world: World) -> None:
    gate = Gate()
    runner = world.runner(world.agent(gate))
    await world.create(runner)
    task = await start(runner, gate)
    await cancel(world)
    world.clock.advance(1)
    async with world.unchanged():
        again = await runner.cancel_run("r")
    assert again.cancel_requested_by == "operator"
    gate.open.set()
    await task
    async with world.unchanged():
        with pytest.raises(IllegalRunTransitionError):
            await cancel(world)


@in_loop
async def test_a_request_based_on_a_stale_version_is_refused(world: World) -> None:
    gate = Gate()
    runner = world.runner(world.agent(gate))
    await world.create(runner)
    task = await start(runner, gate)
    async with world.unchanged():
        with pytest.raises(StaleRunVersionError):
            await world.runner().cancel_run("r", expected_version=1)
    gate.open.set()
    assert (await task).status is RunStatus.SUCCEEDED


@in_loop
async def test_the_result_of_a_tool_in_flight_is_stored_first(world: World) -> None:
    gate = Gate()
    task = await asked_while(world, gate, world.runner(world.agent(gate)))
    await ends_cancelled(world, task)
    assert "passed" in (await world.inspect()).checkpoints[1].output
    assert world.witness.count("model") == 1


@pytest.mark.parametrize("answer", [DONE, asks("send")])
@in_loop
async def test_the_answer_of_a_model_in_flight_is_stored_first(world: World, answer: Any) -> None:
    """Its final answer is a checkpoint, and yet the run has not SUCCEEDED."""
    gate = Gate(answer)
    task = await asked_while(world, gate, world.runner(world.agent(answers=(gate,))))
    await ends_cancelled(world, task)
    assert [each.step_id for each in (await world.inspect()).checkpoints] == ["model-1"]
    assert world.witness.count("send") == 0


@in_loop
async def test_a_context_in_flight_is_stored_first(world: World) -> None:
    gate = Gate(())
    agent = world.agent(context_provider=Source(world.witness, gate))
    await ends_cancelled(world, await asked_while(world, gate, world.runner(agent)))
    assert world.witness.lines == ["context"]
    assert len((await world.inspect()).checkpoints) == 1


class Slow(StreamingModelAdapter):
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelResponse]:
        yield ModelDelta("Do")
        await self._gate(request)
        yield ModelDelta("ne.")
        yield ModelResponse(DONE)


@in_loop
async def test_a_stream_in_flight_is_stored_first(world: World) -> None:
    gate = Gate()
    agent = world.agent(model_adapter=Slow(gate))
    await ends_cancelled(world, await asked_while(world, gate, world.runner(agent)))
    assert DONE in (await world.inspect()).checkpoints[0].output


@pytest.mark.parametrize("is_tool", [True, False], ids=["tool", "model"])
@pytest.mark.parametrize("policy", [None, RetryPolicy(3)])
@pytest.mark.parametrize("classification", [TRANSIENT, FailureClassification.PERMANENT])
@in_loop
async def test_the_failure_of_a_call_in_flight_is_kept_and_the_run_is_not_failed(
    memory: World,
    is_tool: bool,
    policy: RetryPolicy | None,
    classification: FailureClassification,
) -> None:
    failure = (ToolFailure if is_tool else ModelFailure)(classification, "NO_LUCK", "no luck")
    gate = Gate(failure)
    acts: Any = {"answers": (asks("send"),)} if is_tool else {"answers": (gate,)}
    agent = memory.agent(gate, retry_policy=policy, **acts)
    await ends_cancelled(memory, await asked_while(memory, gate, memory.runner(agent)))
    last = (await memory.inspect()).attempts[-1]
    assert (last.classification, last.error_code) == (classification, "NO_LUCK")
    assert len(memory.witness.lines) == 1 + is_tool  # no second attempt


@in_loop
async def test_seen_in_a_renewal_it_waits_for_the_end_of_the_call(world: World) -> None:
    gate = Gate()
    runner = world.runner(world.agent(gate))
    await world.create(runner)
    task = await start(runner, gate)
    await settle()
    await cancel(world)
    for _ in range(4):
        world.clock.advance(TTL / 3)
        await settle()
    assert not task.done()
    gate.open.set()
    await ends_cancelled(world, task)
    assert len((await world.inspect()).checkpoints) == 2


@pytest.mark.parametrize("delay_s", [1, 25])
@in_loop
async def test_between_two_attempts_there_is_no_second(world: World, delay_s: int) -> None:
    """With a renewal in between, and without one."""
    policy = RetryPolicy(3, delay=timedelta(seconds=delay_s))
    runner = world.runner(world.agent(ToolFailure(TRANSIENT), retry_policy=policy))
    await world.create(runner)
    task = asyncio.create_task(runner.start_run("r"))
    await until(lambda: world.witness.count("send"))
    await settle()
    await cancel(world)
    for _ in range(delay_s):
        world.clock.advance(1)
        await settle()
    await ends_cancelled(world, task)
    assert world.witness.count("send") == 1


async def asked_before(world: World, verb: str, nth: int) -> RunRecord:
    """Another process asks just before a write of this one, which has looked already."""
    seen = 0

    async def write(*args: Any, **kwargs: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == nth:
            await cancel(world)
        return await getattr(world.store, verb)(*args, **kwargs)

    runner = world.runner(
        world.agent(context_provider=Source(world.witness, ())),
        store=Meddled(world.store, **{verb: write}),
    )
    await world.create(runner)
    ended = await runner.start_run("r")
    assert seen >= nth
    return ended


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@in_loop
async def test_what_the_reservation_sees_is_obeyed_before_the_dispatch(
    world: World, nth: int
) -> None:
    """Neither a call nor a row for each of context, model, tool, model."""
    ended = await asked_before(world, "begin_attempt", nth)
    assert (ended.status, ended.version) == (RunStatus.CANCELLED, 3)
    assert len(world.witness.lines) == len((await world.inspect()).attempts) == nth - 1


@in_loop
async def test_a_request_just_before_the_last_write_is_obeyed(world: World) -> None:
    ended = await asked_before(world, "change_run", 1)
    assert (ended.status, ended.output) == (RunStatus.CANCELLED, None)
    assert len((await world.inspect()).checkpoints) == 4


@in_loop
async def test_by_the_runner_that_advances_it(memory: World) -> None:
    gate = Gate()
    runner = memory.runner(memory.agent(gate))
    await memory.create(runner)
    task = await start(runner, gate)
    assert (await runner.cancel_run("r")).status is RunStatus.RUNNING
    gate.open.set()
    await ends_cancelled(memory, task)


@pytest.mark.parametrize("end", ["CANCELLED", "RUNNING"])
@in_loop
async def test_who_loses_the_race_for_the_lease_has_asked_all_the_same(
    world: World, end: str
) -> None:
    """The run was nobody's when it was asked for; then a recovery was faster: it has obeyed the
    request already, or holds the lease and will."""
    await world.crash(lambda process: world.agent(answers=(process.die,)))
    other = world.open() if end == "CANCELLED" else Process(world.open(), after=1)

    async def late(*args: Any, **kwargs: Any) -> Any:
        with suppress(Killed):
            await world.runner(world.agent(), store=other).resume_run("r")
        return await world.store.acquire_lease(*args, **kwargs)

    store = Meddled(world.store, acquire_lease=late)
    asked = await world.runner(owner="operator", store=store).cancel_run("r")
    assert (asked.status, asked.cancel_requested_by) == (end, "operator")


# --- an effect that nobody can prove


async def uncertain_and_asked(world: World) -> RunRecord:
    gate = Gate(OSError("the line broke"))
    waiting = await (await asked_while(world, gate, world.runner(world.agent(gate))))
    assert (waiting.status, waiting.waiting_step_id) == (RunStatus.WAITING, SEND)
    assert waiting.cancel_requested_by == "operator"
    return waiting


@pytest.mark.parametrize("action", ["CONFIRM_STEP", "REJECT_STEP"])
@in_loop
async def test_the_fact_is_stored_and_then_the_request_is_obeyed(world: World, action: str) -> None:
    waiting = await uncertain_and_asked(world)
    ended = await answer(world, action, waiting)
    assert (ended.status, ended.version) == (RunStatus.CANCELLED, waiting.version + 2)
    assert (await world.inspect()).checkpoints[1].attempt_id == f"{SEND}#2"
    assert (world.witness.count("model"), world.witness.count("send")) == (1, 1)


@in_loop
async def test_a_retry_withdraws_the_request(world: World) -> None:
    ended = await answer(world, "RETRY_STEP", await uncertain_and_asked(world))
    assert (ended.status, ended.output) == (RunStatus.SUCCEEDED, DONE)
    assert (ended.cancel_requested_by, ended.cancel_requested_at) == (None, None)
    assert world.witness.count("send") == 2


@pytest.mark.parametrize(
    ("action", "status"), [("FAIL_RUN", "FAILED"), ("CANCEL_RUN", "CANCELLED")]
)
@in_loop
async def test_an_end_that_the_application_chooses_is_the_end(
    world: World, action: str, status: str
) -> None:
    ended = await answer(world, action, await uncertain_and_asked(world))
    assert (ended.status, world.witness.count("send")) == (status, 1)


@in_loop
async def test_a_late_cancel_does_not_touch_an_effect_in_flight_elsewhere(world: World) -> None:
    """The lease has expired while the tool is still at it: WAITING, not CANCELLED."""
    gate = Gate()
    runner = world.runner(world.agent(gate))
    await world.create(runner)
    task = await start(runner, gate)
    await settle()
    world.clock.advance(TTL)
    await settle()
    assert (await cancel(world)).status is RunStatus.WAITING
    async with world.unchanged():
        gate.open.set()
        with pytest.raises((LeaseNotHeldError, StaleRunVersionError)):
            await task

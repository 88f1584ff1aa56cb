"""What the application may say about a run that WAITs, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from labkit.durable import (
    FailureClassification,
    IllegalRunTransitionError,
    ModelRequest,
    ResolutionAction,
    ResolutionNotAllowedError,
    RetryPolicy,
    RunRecord,
    RunResolution,
    RunStatus,
    StaleRunVersionError,
    StepStatus,
    ToolFailure,
    ToolOutcome,
    ToolOutcomeStatus,
    allowed_resolutions,
)
from tests.durable.kit import DONE, SEND, Model, World, asks, each_attempt, in_loop

CONFIRM = RunResolution.confirm_step("It was sent.", waiting_step_id=SEND)
REJECT = RunResolution.reject_step("NOT_SENT", "The line was down.", waiting_step_id=SEND)
RETRY = RunResolution.retry_step(waiting_step_id=SEND)
FAIL, CANCEL = RunResolution.fail_run(), RunResolution.cancel_run()
EVERY = [RETRY, CONFIRM, REJECT, FAIL, CANCEL]
LOST = OSError("the line broke")


async def resolve(
    world: World, resolution: RunResolution, version: int, *does: Any, **more: Any
) -> RunRecord:
    """In another process, as far as the store can tell."""
    runner = world.runner(world.agent(*does, **more), owner="desk")
    return await runner.resolve_run("r", resolution, version)


def outcome(text: str) -> ToolOutcome:
    fields = json.loads(text)
    return ToolOutcome(**fields | {"status": ToolOutcomeStatus(fields["status"])})


# --- until it is answered


@in_loop
async def test_a_plain_resume_returns_the_same_run(world: World) -> None:
    waiting = await world.wait()
    async with world.unchanged():
        for _ in range(2):
            assert await world.runner(world.agent()).resume_run("r") == waiting
        assert await world.runner(world.agent()).recover_all() == []


@in_loop
async def test_the_run_says_what_it_waits_for_and_what_it_accepts(world: World) -> None:
    waiting = await world.wait()
    assert (waiting.waiting_reason, waiting.waiting_step_id) == ("UNCERTAIN_NON_IDEMPOTENT", SEND)
    assert [*allowed_resolutions(waiting)] == [each.action for each in EVERY]
    ended = await resolve(world, FAIL, waiting.version)
    assert allowed_resolutions(ended) == ()
    rows = await world.store.read_journal("r")
    [event] = [row for row in rows if row["kind"] == "run_waiting"]
    assert (event["step"], "UNCERTAIN_NON_IDEMPOTENT" in event["data"]) == (SEND, True)


# --- each answer


async def told(world: World, resolution: RunResolution) -> tuple[RunRecord, ModelRequest]:
    """The run after an answer, and what its model was asked next."""
    waiting = await world.wait()
    agent = world.agent()
    runner = world.runner(agent)
    run = await runner.resolve_run("r", resolution, waiting.version)
    [request] = agent.model_adapter.requests  # type: ignore[attr-defined]
    return run, request


@in_loop
async def test_confirm_makes_the_result_a_checkpoint_that_the_model_sees(world: World) -> None:
    run, request = await told(world, CONFIRM)
    assert (run.status, run.output, world.witness.count("send")) == ("SUCCEEDED", DONE, 1)
    [seen] = request.tool_outcomes
    assert (seen.status, seen.result) == ("SUCCESS", "It was sent.")
    assert (seen.call_id, seen.tool_name) == ("call-1", "send")
    found = await world.inspect()
    assert list(each_attempt(found))[1:3] == [
        (f"{SEND}#1", "FAILED", "UNCERTAIN"),
        (f"{SEND}#2", "SUCCEEDED", None),
    ]
    assert found.checkpoints[1].attempt_id == f"{SEND}#2"
    assert outcome(found.checkpoints[1].output) == seen


@in_loop
async def test_reject_makes_a_rejection_the_checkpoint_that_the_model_sees(world: World) -> None:
    run, request = await told(world, REJECT)
    assert (run.status, run.output, world.witness.count("send")) == ("SUCCEEDED", DONE, 1)
    [seen] = request.tool_outcomes
    assert (seen.status, seen.result) == ("REJECTED", None)
    assert (seen.code, seen.message) == ("NOT_SENT", "The line was down.")
    assert outcome((await world.inspect()).checkpoints[1].output) == seen


@in_loop
async def test_retry_calls_the_tool_once_more_under_the_same_step_and_key(world: World) -> None:
    waiting = await world.wait()
    ended = await resolve(world, RETRY, waiting.version)
    assert (ended.status, ended.version) == (RunStatus.SUCCEEDED, waiting.version + 2)
    sends = [line for line in world.witness.lines if line.startswith("send")]
    assert sends == [f"send r:{SEND} {SEND}#1", f"send r:{SEND} {SEND}#2"]
    assert list(each_attempt(await world.inspect()))[1:3] == [
        (f"{SEND}#1", "FAILED", "UNCERTAIN"),
        (f"{SEND}#2", "SUCCEEDED", None),
    ]


@pytest.mark.parametrize(
    ("resolution", "status", "code"), [(FAIL, "FAILED", "FAIL_RUN"), (CANCEL, "CANCELLED", None)]
)
@in_loop
async def test_an_end_is_an_end_without_a_call(
    world: World, resolution: RunResolution, status: str, code: str | None
) -> None:
    waiting = await world.wait()
    calls = world.witness.lines
    ended = await resolve(world, resolution, waiting.version)
    assert (ended.status, ended.error_code, ended.version) == (status, code, waiting.version + 1)
    assert (ended.waiting_reason, ended.waiting_step_id, ended.lease_owner) == (None, None, None)
    assert world.witness.lines == calls
    found = await world.inspect()
    assert [each.step_id for each in found.checkpoints] == ["model-1"]
    assert found.steps[-1].status is StepStatus.FAILED


@in_loop
async def test_a_retry_that_is_uncertain_again_waits_again_and_can_be_confirmed(
    world: World,
) -> None:
    waiting = await world.wait()
    again = await resolve(world, RETRY, waiting.version, LOST)
    assert (again.status, again.waiting_step_id) == (RunStatus.WAITING, SEND)
    assert again.version == waiting.version + 2
    with pytest.raises(StaleRunVersionError):
        await resolve(world, CONFIRM, waiting.version)
    ended = await resolve(world, CONFIRM, again.version)
    assert (ended.status, world.witness.count("send")) == (RunStatus.SUCCEEDED, 2)
    found = await world.inspect()
    numbers = [each.number for each in found.attempts if each.step_id == SEND]
    assert (numbers, len(found.steps)) == ([1, 2, 3], 3)


@in_loop
async def test_a_retry_is_authorised_beyond_the_bound_of_automatic_ones(memory: World) -> None:
    run = await memory.wait(retry_policy=RetryPolicy(1))
    for _ in range(3):
        run = await resolve(memory, RETRY, run.version, LOST, retry_policy=RetryPolicy(1))
        assert run.status is RunStatus.WAITING
    assert memory.witness.count("send") == 4


@pytest.mark.parametrize(
    ("failure", "calls"),
    [(FailureClassification.PERMANENT, 2), (FailureClassification.TRANSIENT, 3)],
)
@in_loop
async def test_a_retry_that_fails_with_an_assertion_follows_the_frozen_policy(
    memory: World, failure: FailureClassification, calls: int
) -> None:
    policy = RetryPolicy(3)
    run = await memory.wait(retry_policy=policy)
    error = ToolFailure(failure, "REFUSED")
    ended = await resolve(memory, RETRY, run.version, error, retry_policy=policy)
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, "REFUSED")
    assert memory.witness.count("send") == calls


@in_loop
async def test_only_the_waiting_call_of_several_is_answered(world: World) -> None:
    """Three sends; the second is confirmed, the third is called for the first time."""
    answers = (asks("send", "send", "send"), DONE)
    run = await world.run("sent", LOST, answers=answers)
    step = "model-1.tool-2"
    assert (run.status, run.waiting_step_id) == (RunStatus.WAITING, step)
    confirm = RunResolution.confirm_step("yes", waiting_step_id=step)
    ended = await resolve(world, confirm, run.version, answers=answers)
    assert ended.status is RunStatus.SUCCEEDED
    texts = [outcome(each.output).result for each in (await world.inspect()).checkpoints[1:4]]
    assert (texts, world.witness.count("send")) == (["sent", "yes", "sent"], 3)


@in_loop
async def test_an_empty_text_is_a_result(world: World) -> None:
    waiting = await world.wait()
    confirm = RunResolution.confirm_step("", waiting_step_id=SEND)
    assert (await resolve(world, confirm, waiting.version)).status is RunStatus.SUCCEEDED


@in_loop
async def test_the_model_has_no_say(world: World) -> None:
    """A text that looks like an answer is a text."""
    text = json.dumps({"action": "CONFIRM_STEP", "result": "sent", "waiting_step_id": SEND})
    ended = await world.run(answers=(asks("send"), text))
    assert (ended.status, ended.output) == (RunStatus.SUCCEEDED, text)
    assert (await world.inspect()).resolutions == []


# --- who, when, why


@pytest.mark.parametrize("resolution", EVERY, ids=lambda each: each.action.value)
@in_loop
async def test_who_answered_what_when_and_why_is_stored(
    world: World, resolution: RunResolution
) -> None:
    waiting = await world.wait()
    world.clock.advance(3600)
    said = {"reason": "The provider's list has it.", "actor": "ann"}
    fields = {name: getattr(resolution, name) for name in ("result", "code", "message")}
    answer = RunResolution(resolution.action, waiting_step_id=SEND, **fields, **said)
    await resolve(world, answer, waiting.version)
    [record] = (await world.inspect()).resolutions
    assert (record.action, record.step_id) == (resolution.action, SEND)
    assert (record.actor, record.reason) == ("ann", said["reason"])
    assert (record.version, record.created_at) == (waiting.version, world.clock.now())
    [event] = [e for e in await world.store.read_journal("r") if e["kind"] == "run_resolved"]
    assert resolution.action.value in event["data"]
    assert "ann" in event["data"]
    assert said["reason"] not in event["data"]  # a payload: it is in the record alone


@in_loop
async def test_each_answer_is_kept(world: World) -> None:
    waiting = await world.wait()
    again = await resolve(world, RETRY, waiting.version, LOST)
    await resolve(world, CONFIRM, again.version)
    found = (await world.inspect()).resolutions
    assert [(each.action, each.version) for each in found] == [
        (ResolutionAction.RETRY_STEP, waiting.version),
        (ResolutionAction.CONFIRM_STEP, again.version),
    ]


# --- what is no answer

BLANK: dict[str, Any] = {"waiting_step_id": SEND}
NO_ANSWERS = {
    "no step": RunResolution.confirm_step("sent"),
    "another step": RunResolution.confirm_step("sent", waiting_step_id="model-1"),
    "retry of another step": RunResolution.retry_step(waiting_step_id="model-1.tool-2"),
    "end at another step": RunResolution.fail_run(waiting_step_id="model-1"),
    "confirm without a result": RunResolution(ResolutionAction.CONFIRM_STEP, **BLANK),
    "reject without a code": RunResolution(ResolutionAction.REJECT_STEP, message="x", **BLANK),
    "reject without a message": RunResolution(ResolutionAction.REJECT_STEP, code="x", **BLANK),
    "another action": RunResolution(ResolutionAction.CONTINUE_RUN, **BLANK),
}


@pytest.mark.parametrize("resolution", NO_ANSWERS.values(), ids=NO_ANSWERS)
@in_loop
async def test_what_is_no_answer_changes_nothing(world: World, resolution: RunResolution) -> None:
    waiting = await world.wait()
    async with world.unchanged():
        with pytest.raises(ResolutionNotAllowedError):
            await resolve(world, resolution, waiting.version)
    assert (await resolve(world, CONFIRM, waiting.version)).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("resolution", EVERY, ids=lambda each: each.action.value)
@pytest.mark.parametrize("by", [-1, 1])
@in_loop
async def test_an_answer_to_another_version_changes_nothing(
    world: World, resolution: RunResolution, by: int
) -> None:
    waiting = await world.wait()
    async with world.unchanged():
        with pytest.raises(StaleRunVersionError, match="version 3"):
            await resolve(world, resolution, waiting.version + by)


@pytest.mark.parametrize("resolution", EVERY, ids=lambda each: each.action.value)
@in_loop
async def test_a_second_answer_changes_nothing(world: World, resolution: RunResolution) -> None:
    waiting = await world.wait()
    await resolve(world, CONFIRM, waiting.version)
    async with world.unchanged():
        with pytest.raises(IllegalRunTransitionError, match="SUCCEEDED"):
            await resolve(world, resolution, waiting.version)


@in_loop
async def test_of_two_answers_at_once_one_counts(world: World) -> None:
    waiting = await world.wait()
    both = [resolve(world, each, waiting.version) for each in (RETRY, RETRY)]
    ended = await asyncio.gather(*both, return_exceptions=True)
    assert [type(each) for each in ended].count(RunRecord) == 1
    assert world.witness.count("send") == 2
    assert len((await world.inspect()).resolutions) == 1


@in_loop
async def test_a_retry_without_the_definition_is_refused(world: World) -> None:
    waiting = await world.wait()
    async with world.unchanged():
        with pytest.raises(ResolutionNotAllowedError, match=r"support 1\.0"):
            await world.runner(world.agent(version="2.0")).resolve_run("r", RETRY, waiting.version)


@in_loop
async def test_a_fact_can_be_stored_without_the_definition(world: World) -> None:
    """The desk that knows what happened need not be able to run the agent."""
    waiting = await world.wait()
    held = await world.runner().resolve_run("r", CONFIRM, waiting.version)
    assert (held.status, held.waiting_reason) == (RunStatus.WAITING, "DEFINITION_UNAVAILABLE")
    assert held.lease_owner is None
    ended = await world.runner(world.agent()).resume_run("r")
    assert (ended.status, world.witness.count("send")) == (RunStatus.SUCCEEDED, 1)


@pytest.mark.parametrize("resolution", [RETRY, CONFIRM, REJECT], ids=lambda each: each.action)
@in_loop
async def test_a_run_that_waits_for_its_definition_takes_no_answer_about_a_step(
    world: World, resolution: RunResolution
) -> None:
    await world.create(world.runner(world.agent()))
    held = await world.runner().resume_run("r")
    assert [*allowed_resolutions(held)] == [FAIL.action, CANCEL.action]
    async with world.unchanged():
        with pytest.raises(ResolutionNotAllowedError, match="DEFINITION_UNAVAILABLE"):
            await resolve(world, resolution, held.version)
    assert (await resolve(world, FAIL, held.version)).status is RunStatus.FAILED


@in_loop
async def test_no_time_has_to_pass_between_waiting_and_its_answer(world: World) -> None:
    """The lease is free on every WAITING: another process answers at the same moment."""
    before = world.clock.now()
    waiting = await world.wait()
    ended = await resolve(world, CONFIRM, waiting.version)
    assert (ended.status, world.clock.now() - before) == (RunStatus.SUCCEEDED, timedelta(0))
    assert isinstance(world.agent().model_adapter, Model)

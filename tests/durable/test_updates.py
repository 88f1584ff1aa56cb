"""Live updates: who watches an advance sees all of it and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from labkit.durable import (
    DeterministicStreamingModelAdapter,
    FailureClassification,
    ModelDelta,
    ModelFailure,
    ModelRequest,
    ModelResponse,
    RetryPolicy,
    Runner,
    RunNotFoundError,
    RunStatus,
    RunUpdate,
    RunUpdateType,
    StreamingModelAdapter,
    ToolCall,
    ToolEffect,
    ToolFailure,
)
from tests.durable.kit import DONE, SEND, Gate, Source, World, in_loop, start

DELTA = RunUpdateType.MODEL_DELTA


async def watch(runner: Runner, run_id: str = "r") -> list[RunUpdate]:
    return [update async for update in runner.subscribe_run(run_id)]


async def started(runner: Runner) -> tuple[Any, list[RunUpdate]]:
    """A start, and all that a subscriber sees who came right after its task was made."""
    task = asyncio.create_task(runner.start_run("r"))
    seen = await watch(runner)
    assert task.done() or not seen  # the updates end when the advance ends
    return await task, seen


def brief(updates: Sequence[RunUpdate]) -> list[tuple[str, str | None, str | None]]:
    return [(each.update_type.value, each.attempt_id, each.status) for each in updates]


@in_loop
async def test_the_whole_of_an_advance(world: World) -> None:
    runner = world.runner(world.agent(context_provider=Source(world.witness, ())))
    await world.create(runner)
    ended, seen = await started(runner)
    assert ended.status is RunStatus.SUCCEEDED
    steps = ["context", "model-1", SEND, "model-2"]
    both = [
        (kind, f"{step}#1", None) for step in steps for kind in ("STEP_STARTED", "STEP_COMPLETED")
    ]
    running = ("STATUS_CHANGED", None, "RUNNING")
    assert brief(seen) == [running, *both, ("STATUS_CHANGED", None, "SUCCEEDED")]
    types = [each.step_type for each in seen if each.update_type == "STEP_STARTED"]
    assert types == ["CONTEXT", "MODEL", "TOOL", "MODEL"]
    assert {each.run_id for each in seen} == {"r"}
    assert {each.created_at for each in seen} == {world.clock.now()}


@in_loop
async def test_failed_attempts_and_the_end_in_waiting(world: World) -> None:
    transient = ToolFailure(FailureClassification.TRANSIENT)
    agent = world.agent(transient, OSError("?"), retry_policy=RetryPolicy(3))
    runner = world.runner(agent)
    await world.create(runner)
    _, seen = await started(runner)
    assert brief(seen)[3:] == [
        ("STEP_STARTED", f"{SEND}#1", None),
        ("ATTEMPT_FAILED", f"{SEND}#1", "TRANSIENT"),
        ("STEP_STARTED", f"{SEND}#2", None),
        ("ATTEMPT_FAILED", f"{SEND}#2", "UNCERTAIN"),
        ("STATUS_CHANGED", None, "WAITING"),
    ]


@in_loop
async def test_a_recovered_attempt_is_told_and_what_is_reused_is_not(world: World) -> None:
    effect = ToolEffect.READ_ONLY
    await world.crash(lambda process: world.agent(process.die, effect=effect))
    runner = world.runner(world.agent(effect=effect))
    task = asyncio.create_task(runner.resume_run("r"))
    seen = await watch(runner)
    await task
    assert brief(seen)[1:3] == [
        ("ATTEMPT_FAILED", f"{SEND}#1", "UNCERTAIN"),
        ("STEP_STARTED", f"{SEND}#2", None),
    ]
    assert "model-1#1" not in {each.attempt_id for each in seen}


@pytest.mark.parametrize("status", ["CREATED", "WAITING"])
@in_loop
async def test_where_nothing_advances_it_ends_at_once(world: World, status: str) -> None:
    runner = world.runner(world.agent())
    if status == "WAITING":
        await world.wait()
    else:
        await world.create(runner)
    assert await watch(runner) == []


@in_loop
async def test_an_advance_elsewhere_is_not_seen_here(world: World) -> None:
    gate = Gate()
    runner = world.runner(world.agent(gate))
    await world.create(runner)
    task = await start(runner, gate)
    assert await watch(world.runner(world.agent())) == []
    gate.open.set()
    await task


@in_loop
async def test_an_unknown_run(memory: World) -> None:
    with pytest.raises(RunNotFoundError):
        await watch(memory.runner(memory.agent()))


@in_loop
async def test_who_comes_later_sees_only_what_is_new(world: World) -> None:
    gate = Gate()
    runner = world.runner(world.agent(gate))
    await world.create(runner)
    task = await start(runner, gate)
    asyncio.get_running_loop().call_soon(gate.open.set)
    seen = await watch(runner)
    await task
    assert brief(seen)[:1] == [("STEP_COMPLETED", f"{SEND}#1", None)]
    assert brief(seen)[-1:] == [("STATUS_CHANGED", None, "SUCCEEDED")]


@in_loop
async def test_a_refused_command_does_not_take_the_updates_away(world: World) -> None:
    """Nor do those of its own end what another reads."""
    gate = Gate()
    runner = world.runner(world.agent(gate))
    await world.create(runner)
    task = await start(runner, gate)
    reader = asyncio.create_task(watch(runner))
    await asyncio.sleep(0)
    for _ in range(2):
        with pytest.raises(Exception, match="run r"):
            await runner.resume_run("r")
    gate.open.set()
    await task
    assert brief(await reader)[-1:] == [("STATUS_CHANGED", None, "SUCCEEDED")]


@pytest.mark.parametrize("how", ["leaves", "raises", "never reads"])
@in_loop
async def test_a_subscriber_changes_nothing(world: World, how: str) -> None:
    runner = world.runner(world.agent())
    await world.create(runner)

    async def bad() -> None:
        async for _ in runner.subscribe_run("r"):
            if how == "leaves":
                return
            if how == "raises":
                raise ValueError("a bug of the subscriber")
            await asyncio.Event().wait()

    task, reader = asyncio.create_task(runner.start_run("r")), asyncio.create_task(bad())
    others = await watch(runner)
    assert (await task).status is RunStatus.SUCCEEDED
    assert len(others) == 8
    reader.cancel()
    [left] = await asyncio.gather(reader, return_exceptions=True)
    assert left is None or isinstance(left, ValueError | asyncio.CancelledError)
    assert world.witness.lines == ["model 1", f"send r:{SEND} {SEND}#1", "model 2"]


@in_loop
async def test_the_updates_end_when_the_advance_raises(world: World) -> None:
    gate = Gate()
    runner = world.runner(world.agent(gate))
    await world.create(runner)
    task = asyncio.create_task(runner.start_run("r"))
    reader = asyncio.create_task(watch(runner))
    await gate.entered.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert brief(await reader)[-1][0] == "ATTEMPT_FAILED"


# --- streaming

TRANSIENT = FailureClassification.TRANSIENT


class Stream(StreamingModelAdapter):
    """One stream for each call, the last for ever: texts are deltas, exceptions are raised."""

    def __init__(self, *streams: Sequence[Any]) -> None:
        self._streams = list(streams)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelResponse]:
        many = len(self._streams) > 1
        for part in self._streams.pop(0) if many else self._streams[0]:
            if isinstance(part, BaseException):
                raise part
            yield ModelDelta(part) if isinstance(part, str) else part


AB_FAILS = ("A", "B", ModelFailure(TRANSIENT, "DROPPED"))
ABC = ("A", "B", "C", ModelResponse("ABC"))


@in_loop
async def test_a_reader_replaces_text_by_attempt(world: World) -> None:
    adapter = Stream(AB_FAILS, ABC)
    runner = world.runner(world.agent(model_adapter=adapter, retry_policy=RetryPolicy(2)))
    await world.create(runner)
    ended, seen = await started(runner)
    shown: dict[str | None, str] = {}
    for update in seen:
        if update.update_type is DELTA:
            shown[update.attempt_id] = shown.get(update.attempt_id, "") + (update.content or "")
    assert shown == {"model-1#1": "AB", "model-1#2": "ABC"}
    assert (ended.status, ended.output) == (RunStatus.SUCCEEDED, "ABC")
    first, second = (await world.inspect()).attempts
    assert (first.output, first.error_code) == (None, "DROPPED")
    assert '"ABC"' in (second.output or "")


@in_loop
async def test_deltas_carry_the_ids_of_the_stored_attempt_and_are_never_stored(
    world: World,
) -> None:
    call = ToolCall("c", "send", "{}")
    chunks = ("Se", "cret ", "chunk.")
    adapter = DeterministicStreamingModelAdapter(chunks, tool_calls=(call,))
    runner = world.runner(world.agent(model_adapter=adapter))
    await world.create(runner)
    ended, seen = await started(runner)
    deltas = [each for each in seen if each.update_type is DELTA]
    assert "".join(each.content or "" for each in deltas) == ended.output == "Secret chunk."
    last = (await world.inspect()).attempts[-1]
    assert {(each.run_id, each.step_id, each.attempt_id) for each in deltas} == {
        (last.run_id, last.step_id, last.attempt_id)
    }
    rows = [str(row) for row in await world.store.read_journal("r")]
    assert not any("cret" in row for row in rows)
    assert len(rows) == 9  # the steps' own events, none for a delta


@in_loop
async def test_deltas_are_seen_while_the_stream_runs(memory: World) -> None:
    seen: list[str] = []

    class Watched(StreamingModelAdapter):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelResponse]:
            for letter in "abc":
                yield ModelDelta(letter)
                assert "".join(seen).endswith(letter)
            yield ModelResponse("abc")

    runner = memory.runner(memory.agent(model_adapter=Watched()))
    await memory.create(runner)
    task = asyncio.create_task(runner.start_run("r"))
    async for update in runner.subscribe_run("r"):
        seen.append(update.content or "")
    assert (await task).status is RunStatus.SUCCEEDED


MALFORMED = {
    "no response": ("A", "B"),
    "nothing": (),
    "two responses": (ModelResponse(DONE), ModelResponse(DONE)),
    "a delta after the response": (ModelResponse(DONE), "A"),
    "something else": (b"A",),
    "an empty response": ("A", ModelResponse()),
}


@pytest.mark.parametrize("stream", MALFORMED.values(), ids=MALFORMED)
@in_loop
async def test_a_malformed_stream_fails_without_a_checkpoint(
    world: World, stream: Sequence[Any]
) -> None:
    runner = world.runner(world.agent(model_adapter=Stream(stream), retry_policy=RetryPolicy(3)))
    await world.create(runner)
    ended, _ = await started(runner)
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, "MODEL_CONTRACT_VIOLATION")
    found = await world.inspect()
    assert found.checkpoints == []
    assert [(each.classification, each.output) for each in found.attempts] == [("PERMANENT", None)]

"""The lease: who may advance a run, until when, and what becomes of those who come late."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from labkit.durable import (
    AgentDefinition,
    FailureClassification,
    IllegalRunTransitionError,
    LeaseNotHeldError,
    RunRecord,
    RunResolution,
    RunStatus,
    RunUpdateType,
    StaleRunVersionError,
    StoreBusyError,
    StoreError,
    ToolEffect,
    ToolFailure,
)
from labkit.errors import LabkitError
from tests.durable.kit import (
    DONE,
    SEND,
    TTL,
    Gate,
    Meddled,
    Process,
    Source,
    World,
    asks,
    at,
    each_attempt,
    in_loop,
    settle,
    start,
    until,
)

THIRD = TTL / 3
READ_ONLY = {"effect": ToolEffect.READ_ONLY}
LATE = (LeaseNotHeldError, StaleRunVersionError)


# --- who may


@in_loop
async def test_each_acquire_is_a_new_epoch(world: World) -> None:
    await world.crash(lambda process: world.agent(process.die))
    epochs = [(await world.store.get_run("r")).lease_epoch]
    waiting = await world.runner(world.agent()).resume_run("r")
    epochs.append(waiting.lease_epoch)
    retry = RunResolution.retry_step(waiting_step_id=SEND)
    ended = await world.runner(world.agent()).resolve_run("r", retry, waiting.version)
    assert [*epochs, ended.lease_epoch] == [1, 2, 3]
    owners = [row["owner"] for row in await world.store.read_journal("r") if row["owner"]]
    assert [owner.rpartition("#")[2] for owner in dict.fromkeys(owners)] == ["1", "2", "3"]


@pytest.mark.parametrize("owner", ["one", "other"])
@in_loop
async def test_expiry_is_half_open_for_anyone(world: World, owner: str) -> None:
    """A moment before the end nobody enters, not even under the same name; at the end, anybody."""
    process = Process(world.open())
    runner = world.runner(world.agent(process.die, **READ_ONLY), owner="one", store=process)
    await world.create(runner)
    with suppress(BaseException):
        await runner.start_run("r")
    expires_at = at(await world.store.get_run("r"))
    assert expires_at == world.clock.now() + TTL
    second = world.runner(world.agent(**READ_ONLY), owner=owner)
    world.clock.set(expires_at - timedelta(milliseconds=1))
    async with world.unchanged():
        with pytest.raises(LeaseNotHeldError) as caught:
            await second.resume_run("r")
    assert (caught.value.owner, caught.value.expires_at) == ("one", expires_at)
    world.clock.set(expires_at)
    assert (await second.resume_run("r")).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("is_same", [True, False], ids=["one runner", "two runners"])
@in_loop
async def test_a_second_advance_is_refused_and_the_first_goes_on(
    world: World, is_same: bool
) -> None:
    gate = Gate()
    first = world.runner(world.agent(gate))
    second = first if is_same else world.runner(world.agent())
    await world.create(first)
    task = await start(first, gate)
    async with world.unchanged():
        with pytest.raises(LeaseNotHeldError):
            await second.resume_run("r")
        with pytest.raises(IllegalRunTransitionError):
            await second.start_run("r")
    gate.open.set()
    assert (await task).status is RunStatus.SUCCEEDED
    assert (world.witness.count("model"), world.witness.count("send")) == (2, 1)


@in_loop
async def test_two_that_resume_at_once_are_one_advance(world: World) -> None:
    await world.crash(lambda process: world.agent(answers=(process.die,)))
    runner = world.runner(world.agent())
    both = [runner.resume_run("r"), runner.resume_run("r")]
    ended = await asyncio.gather(*both, return_exceptions=True)
    [won] = [each for each in ended if isinstance(each, RunRecord)]
    [lost] = [each for each in ended if isinstance(each, LabkitError)]
    assert won.status is RunStatus.SUCCEEDED
    assert isinstance(lost, (*LATE, IllegalRunTransitionError))
    assert world.witness.count("send") == 1


@in_loop
async def test_the_lease_ends_with_every_status_but_running(world: World) -> None:
    for run_id, agent in {
        "succeeded": world.agent(),
        "waiting": world.agent(OSError("?")),
        "failed": world.agent(answers=(ValueError("?"),)),
    }.items():
        runner = world.runner(agent)
        await world.create(runner, run_id)
        run = await runner.start_run(run_id)
        assert (run.status.lower(), run.lease_owner, run.lease_expires_at) == (run_id, None, None)


# --- renewal


@pytest.mark.parametrize("where", ["model", "send", "context"])
@in_loop
async def test_the_lease_is_renewed_while_a_call_takes_long(world: World, where: str) -> None:
    gate = Gate({"model": DONE, "send": "sent", "context": ()}[where])
    agent = {
        "model": lambda: world.agent(answers=(gate,)),
        "send": lambda: world.agent(gate),
        "context": lambda: world.agent(context_provider=Source(world.witness, gate)),
    }[where]()
    runner, other = world.runner(agent), world.runner(world.agent())
    await world.create(runner)
    task = await start(runner, gate)
    await settle()
    for _ in range(7):  # more than twice the time to live
        world.clock.advance(THIRD)
        await settle()
        run = await other.get_run("r")
        assert (at(run), run.lease_epoch, run.version) == (world.clock.now() + TTL, 1, 2)
        with pytest.raises(LeaseNotHeldError):
            await other.resume_run("r")
    gate.open.set()
    assert (await task).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("yields", [True, False], ids=["yielding", "blocking"])
@in_loop
async def test_many_short_calls_may_take_longer_than_the_lease(world: World, yields: bool) -> None:
    """Each takes a quarter of it; a blocking one keeps the loop, and so the renewal, from running
    meanwhile."""

    async def short(request: Any) -> str:
        world.clock.advance(TTL / 4)
        if yields:
            await settle()
        return "sent"

    ended = await world.run(short, answers=(asks(*["send"] * 10), DONE))
    assert (ended.status, ended.lease_epoch) == (RunStatus.SUCCEEDED, 1)
    assert world.clock.now() - ended.created_at > 2 * TTL


@in_loop
async def test_nothing_renews_when_the_run_has_ended(memory: World) -> None:
    gate = Gate()
    runner = memory.runner(memory.agent(gate))
    await memory.create(runner)
    task = await start(runner, gate)
    gate.open.set()
    await task
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert others == set()


@in_loop
async def test_a_renewal_that_meets_a_busy_store_is_tried_again(memory: World) -> None:
    gate, tries = Gate(), 0

    async def renew(*args: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise StoreBusyError("busy")
        return await memory.store.renew_lease(*args)

    runner = memory.runner(memory.agent(gate), store=Meddled(memory.store, renew_lease=renew))
    await memory.create(runner)
    task = await start(runner, gate)
    await settle()
    memory.clock.advance(THIRD)
    for _ in range(3):
        await settle()
        memory.clock.advance(0.02)
    await until(lambda: tries == 3)
    world_run = await memory.store.get_run("r")
    assert at(world_run) > memory.clock.now() + 2 * THIRD
    gate.open.set()
    assert (await task).status is RunStatus.SUCCEEDED


# --- those who come late


async def overtake(world: World, agent: AgentDefinition, gate: Gate, other: AgentDefinition) -> Any:
    """The first runner hangs in its call for longer than its lease; the second resumes."""
    first = world.runner(agent)
    await world.create(first)
    task = await start(first, gate)
    await settle()
    world.clock.advance(TTL)
    await settle()
    run = await world.runner(other, owner="second").resume_run("r")
    return task, run


@pytest.mark.parametrize("late", ["late", ToolFailure(FailureClassification.PERMANENT)])
@in_loop
async def test_what_comes_late_is_refused(world: World, late: Any) -> None:
    """Success and failure alike. The second runner's end stays, and nothing more is called."""
    gate = Gate(late)
    task, run = await overtake(
        world, world.agent(gate, **READ_ONLY), gate, world.agent(**READ_ONLY)
    )
    assert run.status is RunStatus.SUCCEEDED
    async with world.unchanged():
        gate.open.set()
        with pytest.raises(LATE):
            await task
    assert (world.witness.count("model"), world.witness.count("send")) == (2, 2)


@in_loop
async def test_a_late_result_does_not_answer_for_the_application(world: World) -> None:
    """The second runner found a NON_IDEMPOTENT call open: the run WAITs, whatever comes."""
    gate = Gate()
    task, run = await overtake(world, world.agent(gate), gate, world.agent())
    assert run.status is RunStatus.WAITING
    async with world.unchanged():
        gate.open.set()
        with pytest.raises(LATE):
            await task
    assert world.witness.count("send") == 1


@in_loop
async def test_a_late_result_is_refused_under_the_same_owner_and_version(world: World) -> None:
    """The epoch alone tells them apart: both are called "one", and no transition lies between."""
    old, new = Gate("late"), Gate("in time")
    first = world.runner(world.agent(old, **READ_ONLY), owner="one")
    second = world.runner(world.agent(new, **READ_ONLY), owner="one")
    await world.create(first)
    late = await start(first, old)
    await settle()
    world.clock.advance(TTL)
    await settle()
    taken = asyncio.create_task(second.resume_run("r"))
    await new.entered.wait()
    old.open.set()
    with pytest.raises(LeaseNotHeldError):
        await late
    new.open.set()
    assert (await taken).status is RunStatus.SUCCEEDED
    assert "in time" in (await world.inspect()).checkpoints[1].output


@pytest.mark.parametrize("late", ["late", RuntimeError("late")])
@in_loop
async def test_after_expiry_nothing_more_is_dispatched(world: World, late: Any) -> None:
    """Nobody has taken over. The run is as a kill would have left it."""
    gate = Gate(late)
    runner = world.runner(world.agent(gate, **READ_ONLY))
    await world.create(runner)
    task = await start(runner, gate)
    await settle()
    world.clock.advance(TTL)
    await settle()
    gate.open.set()
    with pytest.raises(LeaseNotHeldError):
        await task
    assert world.witness.count("model") == 1
    assert list(each_attempt(await world.inspect()))[1] == (f"{SEND}#1", "RUNNING", None)
    assert (await world.runner(world.agent(**READ_ONLY)).resume_run("r")).status == "SUCCEEDED"


@in_loop
async def test_after_a_refused_renewal_nothing_more_is_dispatched(world: World) -> None:
    """By the clock the lease is valid still. What the call did is stored; no other follows."""
    gate = Gate()

    async def refuse(*args: Any) -> Any:
        raise LeaseNotHeldError("taken", "another", None)

    runner = world.runner(world.agent(gate), store=Meddled(world.store, renew_lease=refuse))
    await world.create(runner)
    task = await start(runner, gate)
    await settle()
    world.clock.advance(THIRD)
    await settle()
    gate.open.set()
    [left] = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(left, LeaseNotHeldError)
    assert (world.witness.count("model"), world.witness.count("send")) == (1, 1)
    assert SEND in [each.step_id for each in (await world.inspect()).checkpoints]


@pytest.mark.parametrize(
    ("step", "calls"),
    [("context", []), ("model-1", ["context"]), (SEND, ["context", "model 1"])],
)
@in_loop
async def test_a_subscriber_that_lets_the_lease_expire_leads_to_no_call(
    world: World, step: str, calls: list[str]
) -> None:
    runner = world.runner(world.agent(context_provider=Source(world.witness, ())))
    await world.create(runner)
    task = asyncio.create_task(runner.start_run("r"))
    async for update in runner.subscribe_run("r"):
        if (update.update_type, update.step_id) == (RunUpdateType.STEP_STARTED, step):
            world.clock.advance(TTL)
    with pytest.raises(LeaseNotHeldError):
        await task
    assert world.witness.lines == calls
    assert (await world.store.get_run("r")).status is RunStatus.RUNNING


@pytest.mark.parametrize(("verb", "calls"), [("acquire_lease", 0), ("record_success", 1)])
@in_loop
async def test_a_lease_that_ends_between_two_steps(world: World, verb: str, calls: int) -> None:
    """Not even an attempt is stored: the run can be resumed by anybody."""

    async def slow(*args: Any, **kwargs: Any) -> Any:
        done = await getattr(world.store, verb)(*args, **kwargs)
        world.clock.advance(TTL)
        return done

    runner = world.runner(world.agent(), store=Meddled(world.store, **{verb: slow}))
    await world.create(runner)
    with pytest.raises(LeaseNotHeldError):
        await runner.start_run("r")
    assert len(world.witness.lines) == len((await world.inspect()).attempts) == calls
    assert (await world.runner(world.agent()).resume_run("r")).status is RunStatus.SUCCEEDED


# --- a store that is busy, or broken


async def tick(world: World) -> None:
    while True:
        await asyncio.sleep(0)
        world.clock.advance(0.02)


@pytest.mark.parametrize(
    "verb", ["create_run", "acquire_lease", "begin_attempt", "record_success", "change_run"]
)
@in_loop
async def test_a_busy_store_is_asked_again(memory: World, verb: str) -> None:
    tries = 0

    async def busy(*args: Any, **kwargs: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries <= 4:
            raise StoreBusyError("busy")
        return await getattr(memory.store, verb)(*args, **kwargs)

    runner = memory.runner(memory.agent(), store=Meddled(memory.store, **{verb: busy}))
    ticking = asyncio.create_task(tick(memory))
    await memory.create(runner)
    ended = await runner.start_run("r")
    ticking.cancel()
    assert (ended.status, tries > 4) == (RunStatus.SUCCEEDED, True)
    assert len(memory.witness.lines) == 3


@in_loop
async def test_a_file_locked_by_another_process_is_asked_again(on_disk: World) -> None:
    runner = on_disk.runner(on_disk.agent())
    await on_disk.create(runner)
    other = sqlite3.connect(on_disk.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    task = asyncio.create_task(runner.start_run("r"))
    await settle()  # it has met the lock and waits for a time that does not pass
    assert not task.done()
    other.execute("ROLLBACK")
    other.close()
    on_disk.clock.advance(0.02)
    assert (await task).status is RunStatus.SUCCEEDED


@in_loop
async def test_a_store_busy_for_longer_than_the_lease(memory: World) -> None:
    """The result is lost, as in a crash; the error says that the store was busy."""

    async def busy(*args: Any, **kwargs: Any) -> Any:
        raise StoreBusyError("busy")

    meddled = Meddled(memory.store, record_success=busy)
    runner = memory.runner(memory.agent(), store=meddled)
    await memory.create(runner)
    ticking = asyncio.create_task(tick(memory))
    begun = memory.clock.now()
    with pytest.raises(StoreBusyError):
        await runner.start_run("r")
    ticking.cancel()
    waited = memory.clock.now() - begun
    assert TTL - timedelta(seconds=1) < waited < TTL + timedelta(seconds=1)
    memory.clock.set(begun + TTL)
    ended = await memory.runner(memory.agent()).resume_run("r")
    assert (ended.status, memory.witness.count("model")) == (RunStatus.SUCCEEDED, 3)


@pytest.mark.parametrize(
    ("verb", "calls"), [("begin_attempt", 0), ("record_success", 1), ("change_run", 3)]
)
@in_loop
async def test_a_store_that_fails_once_leaves_the_run_to_anybody_at_once(
    world: World, verb: str, calls: int
) -> None:
    """No time passes: the lease was given back, and an open attempt was put in order."""
    fails = [StoreError("disk full")]

    async def fail(*args: Any, **kwargs: Any) -> Any:
        if fails:
            raise fails.pop()
        return await getattr(world.store, verb)(*args, **kwargs)

    runner = world.runner(world.agent(), store=Meddled(world.store, **{verb: fail}))
    await world.create(runner)
    with pytest.raises(StoreError, match="disk full"):
        await runner.start_run("r")
    assert len(world.witness.lines) == calls
    run = await world.store.get_run("r")
    assert (run.status, run.lease_owner) == (RunStatus.RUNNING, None)
    assert (await world.runner(world.agent()).resume_run("r")).status is RunStatus.SUCCEEDED
    assert world.witness.count("send") == 1


@in_loop
async def test_a_result_that_could_not_be_stored_is_uncertain(world: World) -> None:
    fails = [StoreError("disk full")]

    async def fail(hold: Any, attempt: Any, *rest: Any, **kwargs: Any) -> Any:
        if attempt.step_id == SEND and fails:
            raise fails.pop()
        return await world.store.record_success(hold, attempt, *rest, **kwargs)

    runner = world.runner(world.agent(), store=Meddled(world.store, record_success=fail))
    await world.create(runner)
    with pytest.raises(StoreError, match="disk full"):
        await runner.start_run("r")
    run = await world.runner(world.agent()).get_run("r")
    assert (run.status, run.waiting_step_id) == (RunStatus.WAITING, SEND)


@in_loop
async def test_a_renewal_that_fails_does_not_lose_the_result(world: World) -> None:
    """The lease is valid still when the call returns: what it did is stored."""
    gate, fails = Gate(), [StoreError("a moment's fault")]

    async def renew(*args: Any) -> Any:
        if fails:
            raise fails.pop()
        return await world.store.renew_lease(*args)

    runner = world.runner(world.agent(gate), store=Meddled(world.store, renew_lease=renew))
    await world.create(runner)
    task = await start(runner, gate)
    await settle()
    world.clock.advance(THIRD)
    await settle()
    assert fails == []
    gate.open.set()
    with suppress(LabkitError):
        await task
    checkpoints = [each.step_id for each in (await world.inspect()).checkpoints]
    assert SEND in checkpoints


@in_loop
async def test_a_store_that_is_gone_leaves_what_a_kill_leaves(world: World) -> None:
    """The first error is the one reported."""
    process = Process(world.open())

    def gone(request: Any) -> str:
        process.is_dead = True
        return "sent"

    def die(request: object = None) -> None:
        raise StoreError("the disk is gone")

    process.die = die  # type: ignore[method-assign]
    runner = world.runner(world.agent(gone), store=process)
    await world.create(runner)
    with pytest.raises(StoreError, match="the disk is gone"):
        await runner.start_run("r")
    await world.expire()
    waiting = await world.runner(world.agent()).resume_run("r")
    assert (waiting.status, world.witness.count("send")) == (RunStatus.WAITING, 1)

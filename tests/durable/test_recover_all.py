"""Lists of runs, and the recovery of all that nobody holds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from labkit.durable import RunStatus, RunStoreIntegrityError, ToolEffect
from labkit.errors import LabkitError
from tests.durable.kit import Killed, Process, World, in_loop


@in_loop
async def test_the_list_of_runs_by_status_definition_and_lease(world: World) -> None:
    runner = world.runner(world.agent(), world.agent(definition_id="sales"))
    await world.create(runner, "a")
    await world.create(runner, "b")
    await runner.create_run("sales", "1.0", "x", run_id="c")
    await runner.start_run("b")
    await world.abandon()

    async def ids(**of: Any) -> list[str]:
        return [run.run_id for run in await runner.list_runs(**of)]

    assert await ids() == ["a", "b", "c", "r"]
    assert await ids(limit=2, after="a") == ["b", "c"]
    assert await ids(status=RunStatus.CREATED) == ["a", "c"]
    assert await ids(definition_id="sales") == ["c"]
    assert await ids(lease="expired") == []
    world.clock.advance(30)
    assert await ids(lease="expired") == ["r"]


@in_loop
async def test_recover_all_resumes_what_nobody_holds_and_nothing_else(world: World) -> None:
    runner = world.runner(world.agent())
    for name in ("created", "ended"):
        await world.create(runner, name)
    await runner.start_run("ended")
    await world.abandon()
    assert await runner.recover_all() == []  # its lease is valid
    world.clock.advance(30)
    [found] = await runner.recover_all()
    assert (found.run_id, found.error) == ("r", None)
    assert found.run is not None
    assert found.run.status is RunStatus.SUCCEEDED
    assert (await runner.get_run("created")).status is RunStatus.CREATED


OF_B = "WHERE run_id = 'b'"
DAMAGES = {
    "its input cannot be read": f"UPDATE runs SET input = x'00' {OF_B}",
    "its checkpoint is cut off": f"""UPDATE attempts
        SET output = CAST('plaintext:"{{\\"content"' AS BLOB) {OF_B}""",
    "its checkpoint is no answer": f"""UPDATE attempts
        SET output = CAST('plaintext:"{{}}"' AS BLOB) {OF_B}""",
}


async def killed_in_its_tool(world: World, run_id: str) -> None:
    process = Process(world.open())
    agent = world.agent(process.die, effect=ToolEffect.IDEMPOTENT)
    runner = world.runner(agent, store=process)
    await world.create(runner, run_id)
    with pytest.raises(Killed):
        await runner.start_run(run_id)


@pytest.mark.parametrize("damage", DAMAGES)
@in_loop
async def test_one_bad_run_does_not_stop_the_others(world: World, damage: str) -> None:
    for name in ("a", "b", "c"):
        await killed_in_its_tool(world, name)
    world.store._db.execute(DAMAGES[damage])
    world.clock.advance(30)
    found = await world.runner(world.agent()).recover_all()
    assert [each.run_id for each in found] == ["a", "b", "c"]
    assert isinstance(found[1].error, RunStoreIntegrityError)
    others = [each.run.status for each in (found[0], found[2]) if each.run]
    assert others == [RunStatus.SUCCEEDED, RunStatus.SUCCEEDED]


@in_loop
async def test_recover_all_takes_so_many_at_a_time(world: World) -> None:
    runner = world.runner(world.agent())
    for name in ("a", "b", "c"):
        await world.abandon(name)
    world.clock.advance(30)
    assert [each.run_id for each in await runner.recover_all(limit=2)] == ["a", "b"]
    assert [each.run_id for each in await runner.recover_all()] == ["c"]


@in_loop
async def test_two_that_recover_all_at_once_advance_each_run_once(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.abandon(name)
    world.clock.advance(30)
    both = [world.runner(world.agent()).recover_all() for _ in range(2)]
    found = [each for half in await asyncio.gather(*both) for each in half]
    ended = [each.run_id for each in found if each.run]
    assert sorted(ended) == ["a", "b", "c"]
    assert all(isinstance(each.error, LabkitError) for each in found if not each.run)
    assert (world.witness.count("model"), world.witness.count("send")) == (6, 3)

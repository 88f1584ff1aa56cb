"""What the tests of the durable runner share: runs under a fake clock, with a witness outside.

The witness is a file of its own: every call of a model, a tool or a context provider appends its
line there before it does anything else. What the store says about calls is never taken for
evidence of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from labkit.durable import (
    AgentDefinition,
    DefinitionRegistry,
    FakeClock,
    InMemoryRunStore,
    PlaintextPayloadCodec,
    RunInspection,
    Runner,
    RunRecord,
    RunStatus,
    SQLiteRunStore,
)
from tests.durable.acts import (
    DONE,
    TTL,
    Acts,
    Gate,
    Model,
    Source,
    Witness,
    WitnessedTool,
    asks,
    success,
)

SEND = "model-1.tool-1"  # the step of the only tool call of `World.agent`
P = ParamSpec("P")
__all__ = [
    "DONE", "SEND", "TTL", "Acts", "Gate", "Killed", "Meddled", "Model", "Process", "Source",
    "Witness", "WitnessedTool", "World", "asks", "at", "each_attempt", "in_loop", "settle",
    "start", "success", "until",
]  # fmt: skip


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Makes a test of a coroutine function: one event loop, closed afterwards."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def until(holds: Callable[[], object], rounds: int = 1000) -> None:
    """Lets the other tasks go on until something holds, which needs no time to pass."""
    for _ in range(rounds):
        if holds():
            return
        await asyncio.sleep(0)
    pytest.fail("it did not come to that")


async def settle() -> None:
    """Lets the other tasks go as far as they can without time passing."""
    for _ in range(50):
        await asyncio.sleep(0)


class Killed(BaseException):
    """What this process never lives to see."""


class Process:
    """A store as one process has it, until the process is killed: then no verb does anything.

    `before` and `after` name the ordinal, from 1, of the write at which it is killed.
    """

    WRITES = frozenset({
        "create_run", "acquire_lease", "renew_lease", "release_lease", "begin_attempt",
        "record_success", "record_failure", "change_run", "resolve_run", "request_cancel",
    })  # fmt: skip

    def __init__(self, store: Any, before: int = 0, after: int = 0) -> None:
        self._store, self._before, self._after = store, before, after
        self.clock, self.writes, self.is_dead = store.clock, 0, False

    def die(self, request: object = None) -> None:
        self.is_dead = True
        raise Killed

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if name not in self.WRITES:
            return verb

        async def write(*args: Any, **kwargs: Any) -> Any:
            self.writes += 1
            if self.is_dead or self.writes == self._before:
                self.die()
            result = await verb(*args, **kwargs)
            if self.writes == self._after:
                self.die()
            return result

        return write


class Meddled:
    """A store on which a test puts something before, or in place of, a verb."""

    def __init__(self, store: Any, **verbs: Callable[..., Awaitable[Any]]) -> None:
        self.store, self._verbs = store, verbs

    def __getattr__(self, name: str) -> Any:
        return self._verbs.get(name) or getattr(self.store, name)


class World:
    """Runs of one store, their clock and their witness; any number of processes look at them."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind, self.path, self.clock = kind, folder / "runs.db", FakeClock()
        self.witness, self._opened = Witness(folder / "witness"), list[SQLiteRunStore]()
        self.store = self.open()

    def open(self) -> SQLiteRunStore:
        """The store as another process has it; in memory there is only the one."""
        if self.kind == "sqlite":
            store = SQLiteRunStore(self.path, PlaintextPayloadCodec(), self.clock)
        else:
            store = self._opened[0] if self._opened else InMemoryRunStore(clock=self.clock)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()

    # --- who acts

    def tool(self, *does: Any, name: str = "send", **more: Any) -> WitnessedTool:
        return WitnessedTool(self.witness, name, *does, **more)

    def agent(self, *does: Any, **more: Any) -> AgentDefinition:
        """Model, tool `send`, model. `does` is the tool's, `effect` and `timeout_s` too."""
        of_tool = {name: more.pop(name) for name in ("effect", "timeout_s") if name in more}
        answers = more.pop("answers", (asks("send"), DONE))
        fields = {
            "definition_id": "support",
            "version": "1.0",
            "instructions": "Be brief.",
            "model_adapter": Model(self.witness, *answers),
            "tools": (self.tool(*does, **of_tool),),
        }
        return AgentDefinition.for_adapter(**(fields | more))

    def runner(self, *agents: AgentDefinition, owner: str | None = None, store: Any = None) -> Any:
        registry = DefinitionRegistry()
        for agent in agents:
            registry.register(agent)
        return Runner(registry=registry, store=store or self.open(), owner=owner, lease_ttl=TTL)

    async def create(self, runner: Runner, run_id: str = "r") -> RunRecord:
        return await runner.create_run("support", "1.0", "Where is my order?", run_id=run_id)

    async def run(self, *does: Any, **more: Any) -> RunRecord:
        """A run of `agent`, from its creation to where one start leads."""
        runner = self.runner(self.agent(*does, **more))
        run = await self.create(runner)
        return await runner.start_run(run.run_id)

    async def wait(self, **more: Any) -> RunRecord:
        """A run that WAITs: its mail has gone out, and then nobody knows."""
        run = await self.run(OSError("the line broke"), **more)
        assert (run.status, self.witness.count("send")) == (RunStatus.WAITING, 1)
        return run

    async def crash(self, agent_of: Callable[[Process], AgentDefinition]) -> RunRecord:
        """A run whose process is killed where the agent calls `Process.die`; its lease is over."""
        process = Process(self.open())
        runner = self.runner(agent_of(process), store=process)
        await self.create(runner)
        with pytest.raises(Killed):
            await runner.start_run("r")
        return await self.expire()

    async def abandon(self, run_id: str = "r") -> RunRecord:
        """A run whose process is killed as soon as it has the lease, which is valid still."""
        process = Process(self.open(), after=1)
        runner = self.runner(self.agent(), owner="another", store=process)
        await self.create(self.runner(self.agent()), run_id)
        with pytest.raises(Killed):
            await runner.start_run(run_id)
        return await runner.get_run(run_id)

    async def expire(self, run_id: str = "r") -> RunRecord:
        """To the moment at which the run is nobody's any more."""
        run = await self.store.get_run(run_id)
        assert run.lease_expires_at
        self.clock.set(run.lease_expires_at)
        return run

    # --- what is left

    async def inspect(self, run_id: str = "r") -> RunInspection:
        return await self.store.inspect_run(run_id)

    async def kinds(self, run_id: str = "r") -> list[str]:
        return [event["kind"] for event in await self.store.read_journal(run_id)]

    @asynccontextmanager
    async def unchanged(self, run_id: str = "r") -> Any:
        """Nothing at all is written meanwhile, and nothing called."""
        before = await self._everything(run_id)
        yield
        assert await self._everything(run_id) == before

    async def _everything(self, run_id: str) -> Any:
        journal = await self.store.read_journal()
        return await self.inspect(run_id), journal, self.witness.lines


async def start(runner: Runner, gate: Gate, run_id: str = "r") -> asyncio.Task[RunRecord]:
    """An advance that is in the middle of its call."""
    task = asyncio.create_task(runner.start_run(run_id))
    await gate.entered.wait()
    return task


def each_attempt(inspection: RunInspection) -> Iterator[tuple[str, str, str | None]]:
    for attempt in inspection.attempts:
        yield attempt.attempt_id, attempt.status.value, attempt.classification


def at(run: RunRecord) -> datetime:
    """When the lease of a run ends."""
    assert run.lease_expires_at
    return run.lease_expires_at

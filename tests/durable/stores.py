"""Every implementation of the store, and a bench that drives one from plain tests.

A further store joins all of its contract's tests by one line in FACTORIES.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from labkit.durable import (
    AgentDefinition,
    DeterministicModelAdapter,
    FailureClassification,
    FakeClock,
    InMemoryRunStore,
    PlaintextPayloadCodec,
    RunInspection,
    RunRecord,
    RunResolution,
    RunStatus,
    RunStore,
    RunSummary,
    SQLiteRunStore,
    StepAttempt,
    StepType,
    ToolCall,
    ToolEffect,
)
from labkit.durable.records import (
    REASON_UNCERTAIN_NON_IDEMPOTENT,
    Change,
    Claim,
    Failed,
    Hold,
    ModelPurpose,
    NewStep,
    Receipt,
    RunFilter,
)

TTL = timedelta(seconds=30)
MODEL = NewStep("model-1", StepType.MODEL, purpose=ModelPurpose.PRIMARY)
CALL = ToolCall("c1", "send", '{"to": "bob"}')
TOOL = NewStep("model-1.tool-1", StepType.TOOL, "send", ToolEffect.NON_IDEMPOTENT, CALL)
GO = Change(RunStatus.RUNNING)
UNSURE = Failed(FailureClassification.UNCERTAIN, "effect_unconfirmed", "cut off")
WAITS = Change(
    RunStatus.WAITING,
    waiting_reason=REASON_UNCERTAIN_NON_IDEMPOTENT,
    waiting_step_id=TOOL.step_id,
)
SNAPSHOT = AgentDefinition.for_adapter(
    definition_id="support",
    version="1.0",
    instructions="Be kind.",
    model_adapter=DeterministicModelAdapter(("ok",)),
).frozen_snapshot()
CONFIRM = RunResolution.confirm_step("sent", waiting_step_id=TOOL.step_id)
REJECT = RunResolution.reject_step("NO", "was not sent", waiting_step_id=TOOL.step_id)
RETRY = RunResolution.retry_step(waiting_step_id=TOOL.step_id)
FAIL, CANCEL = RunResolution.fail_run(), RunResolution.cancel_run()
BROKEN = Failed(FailureClassification.PERMANENT, "BROKEN", "no such table")
_Result = TypeVar("_Result")


class Factory(NamedTuple):
    """`open` gives a store without runs; what it needs of files lies in the folder."""

    name: str
    open: Callable[[Path, FakeClock], RunStore]


def open_memory(folder: Path, clock: FakeClock) -> RunStore:
    return InMemoryRunStore(clock=clock)


def open_file(folder: Path, clock: FakeClock) -> RunStore:
    return SQLiteRunStore(folder / "runs.db", PlaintextPayloadCodec(), clock)


FACTORIES = [Factory("memory", open_memory), Factory("sqlite", open_file)]


class Bench:
    """A store, its clock, and its verbs as plain calls. `start` and the like prepare a run."""

    def __init__(self, store: RunStore, clock: FakeClock) -> None:
        self.store, self.clock, self._loop = store, clock, asyncio.Runner()

    def close(self) -> None:
        self._loop.close()
        if close := getattr(self.store, "close", None):
            close()

    def do(self, verb: Coroutine[Any, Any, _Result]) -> _Result:
        return self._loop.run(verb)

    # --- verbs

    def new(self, run_id: str = "r", **fields: Any) -> RunRecord:
        """A run as a runner would hand it in; nothing is stored."""
        now = self.clock.now()
        made: dict[str, Any] = {
            "definition_id": "support",
            "definition_version": "1.0",
            "input": "Where is my order?",
            "snapshot": SNAPSHOT,
            "created_at": now,
            "updated_at": now,
        }
        return RunRecord(run_id=run_id, **made | fields)

    def create(self, run_id: str = "r", **fields: Any) -> RunRecord:
        return self.do(self.store.create_run(self.new(run_id, **fields)))

    def acquire(
        self,
        run_id: str = "r",
        owner: str = "ann",
        version: int | None = None,
        change: Change | None = None,
    ) -> Hold:
        claim = Claim(run_id, owner, TTL, self.version(run_id) if version is None else version)
        run = self.do(self.store.acquire_lease(claim, change)).run
        return Hold(run_id, run.lease_epoch, run.version)

    def begin(
        self, hold: Hold, step: NewStep = MODEL, budget: tuple[int, int] | None = None
    ) -> StepAttempt:
        attempt, _ = self.do(self.store.begin_attempt(hold, step, budget))
        assert attempt is not None
        return attempt

    def succeed(self, hold: Hold, attempt: StepAttempt, output: str = '"ok"') -> Receipt:
        return self.do(self.store.record_success(hold, attempt, output))

    def fail(
        self,
        hold: Hold,
        attempt: StepAttempt,
        failed: Failed = UNSURE,
        change: Change | None = None,
        recovered: bool = False,
    ) -> Receipt:
        verb = self.store.record_failure(hold, attempt, failed, change=change, recovered=recovered)
        return self.do(verb)

    def change(self, hold: Hold, change: Change) -> Receipt:
        return self.do(self.store.change_run(hold, change))

    def renew(self, hold: Hold) -> RunSummary:
        return self.do(self.store.renew_lease(hold, TTL))

    def release(self, hold: Hold) -> None:
        self.do(self.store.release_lease(hold))

    def resolve(
        self,
        resolution: RunResolution,
        run_id: str = "r",
        owner: str = "ann",
        version: int | None = None,
    ) -> RunInspection:
        claim = Claim(run_id, owner, TTL, self.version(run_id) if version is None else version)
        return self.do(self.store.resolve_run(claim, resolution))

    def cancel(
        self, run_id: str = "r", actor: str | None = "eve", version: int | None = None
    ) -> RunSummary:
        return self.do(self.store.request_cancel(run_id, actor, expected_version=version))

    # --- reading

    def run(self, run_id: str = "r") -> RunRecord:
        return self.do(self.store.get_run(run_id))

    def version(self, run_id: str = "r") -> int:
        return self.run(run_id).version

    def inspect(self, run_id: str = "r") -> RunInspection:
        return self.do(self.store.inspect_run(run_id))

    def ids(self, **fields: Any) -> list[str]:
        return [run.run_id for run in self.do(self.store.list_runs(RunFilter(**fields)))]

    def journal(self, run_id: str | None = None, after: int = 0) -> list[dict[str, Any]]:
        return list(self.do(self.store.read_journal(run_id, after=after)))

    def kinds(self, run_id: str = "r") -> list[str]:
        return [event["kind"] for event in self.journal(run_id)]

    def everything(self) -> tuple[Any, ...]:
        """All that the store says of all runs, and the whole journal."""
        return [self.inspect(run_id) for run_id in self.ids(limit=1000)], self.journal()

    @contextmanager
    def refused(self, error: type[BaseException], match: str | None = None) -> Iterator[None]:
        """The block raises exactly this, in one line, and nothing at all is changed."""
        before = self.everything()
        with pytest.raises(error, match=match) as caught:
            yield
        assert type(caught.value) is error
        assert len(str(caught.value).splitlines()) == 1
        assert self.everything() == before

    # --- runs that have come so far

    def start(self, run_id: str = "r", owner: str = "ann") -> Hold:
        self.create(run_id)
        return self.acquire(run_id, owner, change=GO)

    def wait(self, run_id: str = "r") -> int:
        """WAITING for the application over a tool's effect; its version."""
        hold = self.start(run_id)
        return self.fail(hold, self.begin(hold, TOOL), change=WAITS).version

    def reach(self, status: RunStatus, run_id: str = "r") -> Hold:
        """A run of that status, and a lease on it."""
        if status is RunStatus.WAITING:
            self.wait(run_id)
        elif status is RunStatus.RUNNING:
            return self.start(run_id)
        else:
            self.create(run_id)
        if status.is_terminal:
            hold = self.acquire(run_id, change=GO)
            self.change(hold, Change(status))
            return hold._replace(version=self.version(run_id))
        return self.acquire(run_id)


class Fault:
    """Fails one statement of SQLite, the n-th from `at` on, before it does anything.

    A store that is opened while this is in force uses connections that obey it.
    """

    def __init__(self) -> None:
        self._left = 0
        self.delivered = False

    def at(self, nth: int) -> None:
        """From the next statement on; 0: none fails."""
        self._left, self.delivered = nth, False

    def reach(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.delivered = True
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error


def connections_that_obey(fault: Fault) -> type[sqlite3.Connection]:
    class Connection(sqlite3.Connection):
        def execute(self, *args: Any) -> sqlite3.Cursor:
            fault.reach()
            return super().execute(*args)

    return Connection


# A module that wants one imports it; the name under which a test asks for it is another.


@pytest.fixture(name="fault")
def a_fault(monkeypatch: pytest.MonkeyPatch) -> Fault:
    made, connect = Fault(), sqlite3.connect
    kind = connections_that_obey(made)
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **kw: connect(*a, **kw, factory=kind))
    return made


@pytest.fixture(name="bench", params=FACTORIES, ids=[factory.name for factory in FACTORIES])
def a_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    clock = FakeClock()
    made = Bench(request.param.open(tmp_path, clock), clock)
    yield made
    made.close()

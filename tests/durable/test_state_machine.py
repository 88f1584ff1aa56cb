"""Any order of verbs, by two owners at any time: the store does what the model store does.

After each verb the two are compared as a whole, so a verb that is refused must have changed nothing
and one run must know nothing of the other. The controls plant a mistake each, which must be found.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from copy import deepcopy
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from labkit.durable import (
    REASON_DEFINITION_UNAVAILABLE,
    REASON_UNCERTAIN_NON_IDEMPOTENT,
    FakeClock,
    InMemoryRunStore,
    PlaintextPayloadCodec,
    RunInspection,
    RunRecord,
    RunResolution,
    RunStatus,
    RunStore,
    SQLiteRunStore,
    StepAttempt,
    StepStatus,
)
from labkit.durable.records import Change, Claim, Hold
from labkit.errors import LabkitError
from tests.durable import model_store
from tests.durable.model_store import ModelStore
from tests.durable.stores import MODEL, TOOL, Bench

# What leads on is drawn more often than what is refused: else few runs would come far.
NAMES, OWNERS = st.sampled_from(["a", "b", "c"]), st.sampled_from(["ann", "bob"])
STEPS = {step.step_id: step for step in (MODEL, TOOL)}
KEYS = st.sampled_from([*STEPS])
TARGETS = st.sampled_from(["RUNNING", "WAITING"] * 6 + [status.value for status in RunStatus])
ENDS = st.sampled_from([None, None, "WAITING", "WAITING", "FAILED", "CANCELLED"])
ODDLY = st.sampled_from([False] * 7 + [True])
SLIPS = st.sampled_from([0] * 14 + [1, -1])  # now and then an epoch or a version is another one
ANSWERS: dict[str, Callable[..., RunResolution]] = {
    "RETRY": RunResolution.retry_step,
    "CONFIRM": lambda **more: RunResolution.confirm_step("sent", **more),
    "REJECT": lambda **more: RunResolution.reject_step("NO", "not sent", **more),
    "FAIL": RunResolution.fail_run,
    "CANCEL": RunResolution.cancel_run,
}
WORDS = {"task_done": "task_succeeded", "step_recovered": "step_error"}  # the model's
Make = Callable[[FakeClock], RunStore]


class Machine(RuleBasedStateMachine):
    """Drives both. The hold and the attempt of a verb are mostly the right ones."""

    make: Make

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.model = FakeClock(), ModelStore()
        self.start = self.clock.now()
        self.bench = Bench(type(self).make(self.clock), self.clock)

    def teardown(self) -> None:
        self.bench.close()

    def same(self, ours: Callable[[], Any], models: Callable[[], Any]) -> None:
        """Both refuse with the same error, or neither does; and then they hold the same."""
        saved = deepcopy(self.model.runs)
        try:
            models()
            expected = None
        except LabkitError as error:
            self.model.runs, expected = saved, type(error)
        try:
            ours()
            got = None
        except LabkitError as error:
            got = type(error)
        assert got is expected
        self.compare()

    def compare(self) -> None:
        kinds: dict[str, list[str]] = {}
        for event in self.bench.journal():
            kind = WORDS.get(event["kind"], event["kind"])
            kinds.setdefault(event["run_id"], []).append(kind)
        for name, run in self.model.runs.items():
            order = list(run["steps"])
            attempts = sorted(run["attempts"], key=lambda each: (order.index(each[0]), each[1]))
            wanted = run | {"attempts": attempts, "steps": list(run["steps"].items())}
            assert seen(self.bench.inspect(name), self.start) | {"kinds": kinds[name]} == wanted

    def hold(self, name: str, epoch: int, version: int) -> Hold:
        run = self.model.runs[name]
        return Hold(name, run["epoch"] + epoch, run["version"] + version)

    def is_there(self, name: str) -> bool:
        return name in self.model.runs

    @initialize()
    def begin_with_two(self) -> None:
        for name in ("a", "b"):
            self.create(name, "x")
            self.acquire(name, "ann", 0, False)

    # --- verbs

    @rule(name=NAMES, input=st.sampled_from(["x", "x", "y"]))
    def create(self, name: str, input: str) -> None:
        self.same(
            lambda: self.bench.create(name, input=input), lambda: self.model.create(name, input)
        )

    @rule(seconds=st.sampled_from([1, 1, 15, 31]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.now += seconds

    @rule(name=NAMES)
    def wait_for_the_lease_to_end(self, name: str) -> None:
        until = self.model.runs[name]["until"] if self.is_there(name) else None
        self.wait(max(0, (until or 0) - self.model.now))

    @rule(name=NAMES, owner=OWNERS, slip=SLIPS, oddly=ODDLY)
    def acquire(self, name: str, owner: str, slip: int, oddly: bool) -> None:
        if self.is_there(name):
            version = self.hold(name, 0, slip).version
            to = "RUNNING" if (self.model.runs[name]["status"] == "CREATED") != oddly else None
            self.same(
                lambda: self.bench.acquire(name, owner, version, change(to, None) if to else None),
                lambda: self.model.acquire(name, owner, version, to, None),
            )

    @rule(name=NAMES, owner=OWNERS, step=KEYS, ends=ENDS, succeeds=st.booleans(), asked=ODDLY)
    def attempt(
        self, name: str, owner: str, step: str, ends: str | None, succeeds: bool, asked: bool
    ) -> None:
        """All that it takes for one attempt, from its lease to its end."""
        if self.is_there(name):
            if self.model.now >= (self.model.runs[name]["until"] or 0):
                self.acquire(name, owner, 0, False)
            self.begin(name, 0, 0, step, 4)
            if asked:
                self.cancel(name, "eve", None)
            self.end(name, 0, 0, -1, ends, succeeds)

    @rule(name=NAMES, epoch=SLIPS, version=SLIPS, verb=st.sampled_from(["renew", "release"]))
    def keep(self, name: str, epoch: int, version: int, verb: str) -> None:
        if self.is_there(name):
            hold = self.hold(name, epoch, version)
            self.same(
                lambda: getattr(self.bench, verb)(hold), lambda: getattr(self.model, verb)(*hold)
            )

    @rule(
        name=NAMES, epoch=SLIPS, version=SLIPS, to=TARGETS, at=st.sampled_from([TOOL.step_id, None])
    )
    def move(self, name: str, epoch: int, version: int, to: str, at: str | None) -> None:
        """Rarely: most of these end the run, or leave it waiting for what no step has."""
        if self.is_there(name) and (at is None or self.model.runs[name]["steps"]):
            steps = self.model.runs[name]["steps"]
            at = at if to == "WAITING" and at in steps else None
            if to == "SUCCEEDED" and "RUNNING" in steps.values():
                return  # the answer is the result of the last step: no runner asks for this
            hold = self.hold(name, epoch, version)
            self.same(
                lambda: self.bench.change(hold, change(to, at)),
                lambda: self.model.change(*hold, to=to, at=at),
            )

    @rule(name=NAMES, epoch=SLIPS, version=SLIPS, step=KEYS,
          limit=st.integers(1, 4))  # fmt: skip
    def begin(self, name: str, epoch: int, version: int, step: str, limit: int) -> None:
        if self.is_there(name):
            hold = self.hold(name, epoch, version)
            of_a_model = (limit, 9) if limit % 2 else (9, limit)
            budget = of_a_model if step == MODEL.step_id else None
            verb = self.bench.store.begin_attempt
            self.same(
                lambda: self.bench.do(verb(hold, STEPS[step], budget)),
                lambda: self.model.begin(*hold, step=step, limit=limit),
            )

    @rule(name=NAMES, epoch=SLIPS, version=SLIPS, nth=st.sampled_from([-1] * 9 + [0]),
          ends=ENDS, succeeds=st.booleans())  # fmt: skip
    def end(
        self, name: str, epoch: int, version: int, nth: int, ends: str | None, succeeds: bool
    ) -> None:
        if not (self.is_there(name) and self.model.runs[name]["attempts"]):
            return
        hold, of = self.hold(name, epoch, version), self.model.runs[name]["attempts"][nth][:2]
        attempt = attempt_of(name, *of, self.clock.now())
        if succeeds:
            self.same(
                lambda: self.bench.succeed(hold, attempt),
                lambda: self.model.end(*hold, of=of, status="SUCCEEDED", to=None, at=None),
            )
            return
        is_sure = ends != "WAITING" or of[0] == MODEL.step_id  # a model is just asked again
        at = None if is_sure else of[0]
        self.same(
            lambda: self.bench.fail(hold, attempt, change=change(ends, at) if ends else None),
            lambda: self.model.end(*hold, of=of, status="FAILED", to=ends, at=at),
        )

    @rule(name=NAMES, owner=OWNERS, slip=SLIPS, answer=st.sampled_from([*ANSWERS]),
          elsewhere=ODDLY)  # fmt: skip
    def resolve(self, name: str, owner: str, slip: int, answer: str, elsewhere: bool) -> None:
        if self.is_there(name):
            at = "model-9.tool-1" if elsewhere else self.model.runs[name]["waits"]
            version = self.hold(name, 0, slip).version
            resolution = ANSWERS[answer](waiting_step_id=at)
            self.same(
                lambda: self.bench.resolve(resolution, name, owner, version),
                lambda: self.model.resolve(name, owner, version, answer, at),
            )

    @rule(name=NAMES, owner=OWNERS, answer=st.sampled_from([*ANSWERS]), asked=ODDLY)
    def wait_and_answer(self, name: str, owner: str, answer: str, asked: bool) -> None:
        """All that it takes for one answer."""
        self.attempt(name, owner, TOOL.step_id, "WAITING", False, asked)
        self.resolve(name, owner, 0, answer, False)

    @rule(name=NAMES, actor=OWNERS, slip=st.sampled_from([None, 0, 1]))
    def cancel(self, name: str, actor: str, slip: int | None) -> None:
        if self.is_there(name):
            version = None if slip is None else self.hold(name, 0, slip).version
            self.same(
                lambda: self.bench.cancel(name, actor, version),
                lambda: self.model.cancel(name, actor, version),
            )


def change(to: str, at: str | None) -> Change:
    """A run that waits for no step waits for its definition."""
    reason = REASON_UNCERTAIN_NON_IDEMPOTENT if at else REASON_DEFINITION_UNAVAILABLE
    is_waiting = to == "WAITING"
    return Change(RunStatus(to), waiting_reason=reason if is_waiting else None, waiting_step_id=at)


def attempt_of(run_id: str, step_id: str, number: int, now: datetime) -> StepAttempt:
    return StepAttempt(
        run_id=run_id, step_id=step_id, attempt_id=f"{step_id}#{number}", number=number,
        status=StepStatus.RUNNING, created_at=now,
    )  # fmt: skip


def seen(found: RunInspection, start: datetime) -> dict[str, Any]:
    """A stored run in the words of the model."""
    run, until = found.run, found.run.lease_expires_at
    done = {s.step_id for s in found.steps if s.checkpoint_attempt_id}
    assert done == {each.step_id for each in found.checkpoints}
    assert done == {s.step_id for s in found.steps if s.status == "SUCCEEDED"}
    return {
        "input": run.input, "status": run.status, "version": run.version, "owner": run.lease_owner,
        "epoch": run.lease_epoch, "until": until and (until - start).total_seconds(),
        "asked": run.cancel_requested_by, "waits": run.waiting_step_id,
        "steps": [(step.step_id, step.status) for step in found.steps],
        "attempts": [[each.step_id, each.number, each.status] for each in found.attempts],
        "answers": [(answer.action, answer.version) for answer in found.resolutions],
    }  # fmt: skip


def examine(make: Make, examples: int, steps: int = 40) -> None:
    """Always the same examples. Nothing is shrunk: a mutant only has to be found."""
    machine = type("Examined", (Machine,), {"make": staticmethod(make)})
    how = settings(
        max_examples=examples, stateful_step_count=steps, derandomize=True, deadline=None,
        database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=how)


def files(folder: Path, trigger: str = "") -> Make:
    """Stores in files of their own; `trigger` is a mistake that the database makes by itself."""
    numbers = count()

    def make(clock: FakeClock) -> RunStore:
        path = folder / f"{next(numbers)}.db"
        store = SQLiteRunStore(path, PlaintextPayloadCodec(), clock)
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(trigger)
        return store

    return make


def in_memory(clock: FakeClock) -> RunStore:
    return InMemoryRunStore(clock=clock)


def test_the_memory_store_does_what_the_model_does() -> None:
    examine(in_memory, 15)


def test_the_file_does_what_the_model_does(tmp_path: Path) -> None:
    examine(files(tmp_path), 3)


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_the_memory_store_does_what_the_model_does_at_length() -> None:
    examine(in_memory, 500, steps=60)


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_the_file_does_what_the_model_does_at_length(tmp_path: Path) -> None:
    examine(files(tmp_path), 60)


def test_the_model_is_short() -> None:
    lines = Path(model_store.__file__).read_text("utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) < 100


# --- controls: each mistake must be found

TRIGGERS = {
    "the version does not grow": """CREATE TRIGGER planted AFTER UPDATE OF version ON runs
        BEGIN UPDATE runs SET version = OLD.version WHERE run_id = NEW.run_id; END""",
    "an acquire begins no epoch": """CREATE TRIGGER planted AFTER UPDATE OF lease_epoch ON runs
        BEGIN UPDATE runs SET lease_epoch = max(OLD.lease_epoch, 1) WHERE seq = NEW.seq; END""",
    "a request to cancel is a transition": """CREATE TRIGGER planted
        AFTER UPDATE OF cancel_requested_at ON runs
        BEGIN UPDATE runs SET version = version + 1 WHERE run_id = NEW.run_id; END""",
    "a release frees every run": """CREATE TRIGGER planted AFTER UPDATE OF lease_owner ON runs
        WHEN NEW.lease_owner IS NULL
        BEGIN UPDATE runs SET lease_owner = NULL, lease_expires_at = 0; END""",
    "a success is not in the journal": """CREATE TRIGGER planted BEFORE INSERT ON events
        WHEN NEW.kind = 'step_finished' BEGIN SELECT RAISE(IGNORE); END""",
    "an answer is not kept": """CREATE TRIGGER planted BEFORE INSERT ON resolutions
        BEGIN SELECT RAISE(IGNORE); END""",
    "the end of a run leaves its steps": """CREATE TRIGGER planted BEFORE UPDATE ON steps
        WHEN NEW.status = 'FAILED' BEGIN SELECT RAISE(IGNORE); END""",
}


@pytest.mark.parametrize("planted", TRIGGERS)
def test_a_mistake_of_the_database_is_found(tmp_path: Path, planted: str) -> None:
    with pytest.raises(AssertionError):
        examine(files(tmp_path, TRIGGERS[planted]), 50)


HELD = ["renew_lease", "release_lease", "begin_attempt", "record_success", "record_failure",
        "change_run"]  # fmt: skip
Forget = Callable[[InMemoryRunStore, Hold, RunRecord], Hold]


def no_epoch(store: InMemoryRunStore, hold: Hold, run: RunRecord) -> Hold:
    return hold._replace(epoch=run.lease_epoch)


def no_version(store: InMemoryRunStore, hold: Hold, run: RunRecord) -> Hold:
    return hold._replace(version=run.version)


def no_half_open_end(store: InMemoryRunStore, hold: Hold, run: RunRecord) -> Hold:
    """At the end of the lease this store looks at a clock that is a moment late."""
    if run.lease_expires_at == store.clock.now():
        store.clock = FakeClock(store.clock.now() - timedelta(microseconds=1))
    return hold


def no_change(store: InMemoryRunStore, hold: Hold, run: RunRecord) -> Hold:
    return hold


def forgetful(forget: Forget) -> Make:
    """A store whose writes under a lease are given the hold that `forget` makes of theirs."""

    def wrapped(name: str) -> Any:
        async def call(self: InMemoryRunStore, hold: Hold, *args: Any, **more: Any) -> Any:
            run, clock = await self.get_run(hold.run_id), self.clock
            try:
                return await getattr(InMemoryRunStore, name)(
                    self, forget(self, hold, run), *args, **more
                )
            finally:
                self.clock = clock

        return call

    kind = type("Mutant", (InMemoryRunStore,), {name: wrapped(name) for name in HELD})
    return lambda clock: kind(clock=clock)


@pytest.mark.parametrize("forget", [no_epoch, no_version, no_half_open_end])
def test_a_guard_that_is_left_out_is_found(forget: Forget) -> None:
    with pytest.raises(AssertionError):
        examine(forgetful(forget), 50)


def test_a_store_that_only_looks_like_a_mutant_passes() -> None:
    examine(forgetful(no_change), 5)


class Reentrant(InMemoryRunStore):
    """Lets an owner in twice, as a store that compares names would."""

    async def acquire_lease(self, claim: Claim, change: Change | None = None) -> RunInspection:
        run = await self.get_run(claim.run_id)
        if run.lease_owner == claim.owner and run.version == claim.expected_version:
            await self.release_lease(Hold(run.run_id, run.lease_epoch, run.version))
        return await super().acquire_lease(claim, change)


def test_an_owner_that_enters_twice_is_found() -> None:
    with pytest.raises(AssertionError):
        examine(lambda clock: Reentrant(clock=clock), 50)

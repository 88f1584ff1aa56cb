"""Recovery, window by window: what a kill leaves, and what the next runner makes of it.

Here a process is killed by taking its store away: from then on it writes nothing. Real processes
and SIGKILL are in test_killed.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from labkit.durable import (
    AgentDefinition,
    ContextItem,
    DeterministicModelAdapter,
    FailureClassification,
    ModelExecutionBudget,
    PlaintextPayloadCodec,
    RetryPolicy,
    Runner,
    RunRecord,
    RunResolution,
    RunStatus,
    StepAttempt,
    StepStatus,
    StepType,
    ToolEffect,
)
from labkit.durable.recovery import TABLE, Last, Next, decide, kind_of, last_of
from tests.durable.kit import (
    DONE,
    SEND,
    Acts,
    Killed,
    Process,
    Source,
    World,
    asks,
    each_attempt,
    in_loop,
)

SAFE = [ToolEffect.READ_ONLY, ToolEffect.IDEMPOTENT]
NON_IDEMPOTENT = ToolEffect.NON_IDEMPOTENT
POLICY = RetryPolicy(max_attempts=3)

# --- the table

EXPECTED = """
                ABSENT  CHECKPOINT  CRASHED  TIMED_OUT  TRANSIENT  PERMANENT
CONTEXT         CALL    REUSE       REPLAY   FAIL       RETRY      FAIL
MODEL           CALL    REUSE       REPLAY   FAIL       RETRY      FAIL
READ_ONLY       CALL    REUSE       REPLAY   FAIL       RETRY      FAIL
IDEMPOTENT      CALL    REUSE       REPLAY   FAIL       RETRY      FAIL
NON_IDEMPOTENT  CALL    REUSE       WAIT     WAIT       RETRY      FAIL
UNDECLARED      FAIL    REUSE       WAIT     WAIT       FAIL       FAIL
"""
HEADS, *ROWS = [line.split() for line in EXPECTED.strip().splitlines()]
CELLS = [(kind, last, found) for kind, *row in ROWS for last, found in zip(HEADS, row, strict=True)]


def snapshot(**fields: Any) -> Any:
    model = DeterministicModelAdapter(responses=(DONE,))
    given = {"retry_policy": POLICY, "instructions": "Be brief.", "model_adapter": model}
    fields = given | fields
    return AgentDefinition(definition_id="d", version="1", **fields).frozen_snapshot()


@pytest.mark.parametrize(("kind", "last", "found"), CELLS)
def test_each_cell_of_the_table(kind: str, last: str, found: str) -> None:
    assert decide(kind, Last(last), 1, snapshot()) is Next(found)


def test_the_table_has_no_other_cells() -> None:
    assert ([*TABLE], [*Last]) == ([kind for kind, *_ in ROWS], HEADS)
    assert {len(row) for row in TABLE.values()} == {len(HEADS)}


@pytest.mark.parametrize("last", [*Last, None])
def test_an_unknown_kind_of_step_never_leads_to_a_call(last: Last | None) -> None:
    for kind in ("COMPRESSION", "TOOL", "", "model"):
        assert decide(kind, last, 0, snapshot()) is Next.FAIL


@pytest.mark.parametrize("kind", TABLE)
def test_an_unknown_end_of_an_attempt_never_leads_to_a_call(kind: str) -> None:
    assert decide(kind, None, 0, snapshot()) is Next.FAIL
    of_no_class = StepAttempt(
        attempt_id="s#1",
        step_id="s",
        run_id="r",
        number=1,
        status=StepStatus.FAILED,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert last_of([of_no_class], has_checkpoint=False) is None


@pytest.mark.parametrize(("kind", "last", "found"), CELLS)
def test_without_attempts_left_nothing_is_called_again(kind: str, last: str, found: str) -> None:
    again = found in (Next.REPLAY, Next.RETRY)
    assert decide(kind, Last(last), 3, snapshot()) is (Next.FAIL if again else Next(found))


@pytest.mark.parametrize(("kind", "last", "found"), CELLS)
def test_without_a_policy_only_a_crash_is_replayed(kind: str, last: str, found: str) -> None:
    none = snapshot(retry_policy=None)
    expected = Next.FAIL if found == Next.RETRY else Next(found)
    assert decide(kind, Last(last), 2, none) is expected
    assert decide(kind, Last(last), 3, none) is (Next.FAIL if expected is Next.REPLAY else expected)


def test_a_tool_of_no_declaration_is_of_no_known_effect() -> None:
    assert kind_of(StepType.TOOL, "send", snapshot()) == "UNDECLARED"
    assert kind_of(StepType.TOOL, None, snapshot()) == "UNDECLARED"
    assert kind_of(StepType.MODEL, None, snapshot()) == "MODEL"


# --- each window of each step


async def resume(world: World, *does: Any, **more: Any) -> RunRecord:
    return await world.runner(world.agent(*does, **more)).resume_run("r")


async def killed(world: World, before: int = 0, after: int = 0, **more: Any) -> RunRecord:
    """A run whose process was killed at a write: 1 is the lease; then two for each step."""
    process = Process(world.open(), before=before, after=after)
    runner = world.runner(world.agent(**more), store=process)
    await world.create(world.runner(world.agent(**more)))
    with pytest.raises(Killed):
        await runner.start_run("r")
    return await world.expire() if before != 1 else await world.store.get_run("r")


WINDOWS = {  # the ordinal of the write, by what is stored when the process is killed before it
    "nothing": (1, []),
    "the lease": (2, []),
    "model-1": (4, ["model 1"]),
    SEND: (6, ["model 1", f"send r:{SEND} {SEND}#1"]),
}


@pytest.mark.parametrize("window", WINDOWS)
@in_loop
async def test_before_an_attempt_is_stored_its_step_is_called_for_the_first_time(
    world: World, window: str
) -> None:
    before, called = WINDOWS[window]
    await killed(world, before=before)
    assert world.witness.lines == called
    ended = await resume(world)
    assert (ended.status, ended.output) == (RunStatus.SUCCEEDED, DONE)
    assert world.witness.lines == ["model 1", f"send r:{SEND} {SEND}#1", "model 2"]
    assert len((await world.inspect()).attempts) == 3


@pytest.mark.parametrize(("after", "calls"), [(3, 1), (5, 2), (7, 3)])
@in_loop
async def test_what_has_a_checkpoint_is_reused(world: World, after: int, calls: int) -> None:
    """The one after the last: SUCCEEDED without any call."""
    await killed(world, after=after)
    assert len(world.witness.lines) == calls
    ended = await resume(world)
    assert (ended.status, ended.output) == (RunStatus.SUCCEEDED, DONE)
    assert len(world.witness.lines) == 3
    assert len((await world.inspect()).attempts) == 3


@in_loop
async def test_a_model_call_without_a_checkpoint_is_replayed_and_the_journal_says_so(
    world: World,
) -> None:
    run = await world.crash(lambda process: world.agent(answers=(process.die,)))
    assert run.status is RunStatus.RUNNING
    ended = await resume(world)
    assert ended.status is RunStatus.SUCCEEDED
    assert world.witness.count("model") == 3  # the first one is billed again
    first, second, *_ = (await world.inspect()).attempts
    assert (first.status, first.classification) == ("FAILED", FailureClassification.UNCERTAIN)
    assert (first.error_code, first.output) == ("model_checkpoint_unconfirmed", None)
    assert (second.step_id, second.number, second.status) == ("model-1", 2, "SUCCEEDED")
    kinds = (await world.kinds())[:7]
    assert kinds[2:] == [
        "step_started",
        "run_started",
        "step_recovered",
        "step_started",
        "step_finished",
    ]


@pytest.mark.parametrize("effect", SAFE)
@in_loop
async def test_a_safe_tool_is_called_again_under_the_same_step_and_key(
    world: World, effect: ToolEffect
) -> None:
    await world.crash(lambda process: world.agent(process.die, effect=effect))
    ended = await resume(world, effect=effect)
    assert ended.status is RunStatus.SUCCEEDED
    sends = [line for line in world.witness.lines if line.startswith("send")]
    assert sends == [f"send r:{SEND} {SEND}#1", f"send r:{SEND} {SEND}#2"]
    first = (await world.inspect()).attempts[1]
    assert (first.classification, first.error_code) == ("UNCERTAIN", "effect_unconfirmed")


@pytest.mark.parametrize("is_called", [True, False], ids=["called", "not called"])
@in_loop
async def test_a_non_idempotent_tool_is_never_called_again(world: World, is_called: bool) -> None:
    """Whether its effect is there, nobody can know: the attempt is stored in either case."""
    if is_called:
        await world.crash(lambda process: world.agent(process.die))
    else:
        await killed(world, after=4)
    calls = world.witness.lines
    waiting = await resume(world)
    assert (waiting.status, waiting.waiting_step_id) == (RunStatus.WAITING, SEND)
    assert waiting.waiting_reason == "UNCERTAIN_NON_IDEMPOTENT"
    assert (waiting.version, waiting.lease_owner) == (3, None)
    assert world.witness.lines == calls
    found = await world.inspect()
    assert list(each_attempt(found))[1:] == [(f"{SEND}#1", "FAILED", "UNCERTAIN")]
    assert found.attempts[1].error_code == "effect_unconfirmed"
    assert (found.steps[1].status, len(found.checkpoints)) == (StepStatus.RUNNING, 1)


@pytest.mark.parametrize("policy", [RetryPolicy(5), RetryPolicy(1), None])
@in_loop
async def test_no_policy_makes_a_non_idempotent_tool_safe(
    memory: World, policy: RetryPolicy | None
) -> None:
    await memory.crash(lambda process: memory.agent(process.die, retry_policy=policy))
    waiting = await resume(memory, retry_policy=RetryPolicy(9))
    assert (waiting.status, memory.witness.count("send")) == (RunStatus.WAITING, 1)


@in_loop
async def test_only_the_call_without_a_checkpoint_is_repeated(world: World) -> None:
    """Of three: the first is reused, the second repeated, the third gets its first attempt."""
    ask = {"answers": (asks("send", "send", "send"), DONE), "effect": ToolEffect.IDEMPOTENT}
    await world.crash(lambda process: world.agent("sent", process.die, **ask))
    assert (await resume(world, **ask)).status is RunStatus.SUCCEEDED
    tools = [attempt.attempt_id for attempt in (await world.inspect()).attempts[1:-1]]
    first, second, third = (f"model-1.tool-{n}" for n in (1, 2, 3))
    assert tools == [f"{first}#1", f"{second}#1", f"{second}#2", f"{third}#1"]
    assert world.witness.count("send") == 4


def item(content: str, **metadata: Any) -> list[ContextItem]:
    return [ContextItem("1", content, "orders", metadata)]


@in_loop
async def test_an_interrupted_context_is_read_again_and_may_have_changed(world: World) -> None:
    def agent(*reads: Any) -> AgentDefinition:
        source = Source(world.witness, *reads)
        return world.agent(answers=(DONE,), context_provider=source)

    await world.crash(lambda process: agent(process.die))
    agent_now = agent(item("changed"))
    ended = await world.runner(agent_now).resume_run("r")
    assert (ended.status, world.witness.count("context")) == (RunStatus.SUCCEEDED, 2)
    [request] = agent_now.model_adapter.requests  # type: ignore[attr-defined]
    assert request.context_items == tuple(item("changed"))
    ends = list(each_attempt(await world.inspect()))
    assert ends[0] == ("context#1", "FAILED", "UNCERTAIN")


@in_loop
async def test_a_context_with_its_checkpoint_is_kept_though_the_source_has_changed(
    world: World,
) -> None:
    old = Source(world.witness, item("as it was", page=7))
    await world.crash(lambda process: world.agent(answers=(process.die,), context_provider=old))
    new = Source(world.witness, item("changed"))
    agent = world.agent(answers=(DONE,), context_provider=new)
    assert (await world.runner(agent).resume_run("r")).status is RunStatus.SUCCEEDED
    assert world.witness.count("context") == 1
    [request] = agent.model_adapter.requests  # type: ignore[attr-defined]
    assert request.context_items == tuple(item("as it was", page=7))


# --- resolutions, and recovery itself, killed in their turn

ANSWERS: dict[str, Callable[[], RunResolution]] = {
    "confirm": lambda: RunResolution.confirm_step("It was sent.", waiting_step_id=SEND),
    "reject": lambda: RunResolution.reject_step("NO", "It was not.", waiting_step_id=SEND),
    "retry": lambda: RunResolution.retry_step(waiting_step_id=SEND),
}


async def answer_and_be_killed(world: World, name: str, version: int, **at: int) -> None:
    runner = world.runner(world.agent(), store=Process(world.open(), **at))
    with pytest.raises(Killed):
        await runner.resolve_run("r", ANSWERS[name](), version)


@pytest.mark.parametrize("name", ANSWERS)
@in_loop
async def test_an_answer_killed_before_its_transaction_was_not_given(
    world: World, name: str
) -> None:
    waiting = await world.wait()
    async with world.unchanged():
        await answer_and_be_killed(world, name, waiting.version, before=1)
    assert (await resume(world)).status is RunStatus.WAITING


@pytest.mark.parametrize("name", ["confirm", "reject"])
@pytest.mark.parametrize("after", [1, 2, 3])
@in_loop
async def test_an_answer_is_not_lost_and_calls_nothing(world: World, name: str, after: int) -> None:
    waiting = await world.wait()
    await answer_and_be_killed(world, name, waiting.version, after=after)
    await world.expire()
    ended = await resume(world)
    assert (ended.status, ended.output) == (RunStatus.SUCCEEDED, DONE)
    assert world.witness.count("send") == 1
    checkpoint = (await world.inspect()).checkpoints[1]
    assert checkpoint.attempt_id == f"{SEND}#2"
    assert ("It was sent." if name == "confirm" else "It was not.") in checkpoint.output


@pytest.mark.parametrize("is_called", [True, False], ids=["called", "not called"])
@in_loop
async def test_an_authorised_retry_is_authorised_once(world: World, is_called: bool) -> None:
    """Killed after its transaction, it is an attempt like any other: WAITING again, no call."""
    waiting = await world.wait()
    process = Process(world.open(), after=0 if is_called else 1)
    runner = world.runner(world.agent(process.die), store=process)
    with pytest.raises(Killed):
        await runner.resolve_run("r", ANSWERS["retry"](), waiting.version)
    calls = 2 if is_called else 1
    assert world.witness.count("send") == calls
    await world.expire()
    again = await resume(world)
    assert (again.status, again.waiting_step_id) == (RunStatus.WAITING, SEND)
    assert world.witness.count("send") == calls
    ends = list(each_attempt(await world.inspect()))[1:]
    assert ends == [(f"{SEND}#{n}", "FAILED", "UNCERTAIN") for n in (1, 2)]
    ended = await world.runner(world.agent()).resolve_run("r", ANSWERS["confirm"](), again.version)
    assert (ended.status, world.witness.count("send")) == (RunStatus.SUCCEEDED, calls)


@pytest.mark.parametrize("effect", ToolEffect)
@in_loop
async def test_a_recovery_that_is_killed_is_recovered(world: World, effect: ToolEffect) -> None:
    """At each of its writes, and once more at each of the next one's."""
    await world.crash(lambda process: world.agent(process.die, effect=effect))
    calls = world.witness.count("send")
    for at in ({"after": 1}, {"before": 2}, {"after": 1}, {"before": 2}):
        runner = world.runner(world.agent(effect=effect), store=Process(world.open(), **at))
        with pytest.raises(Killed):
            await runner.resume_run("r")
        await world.expire()
    assert world.witness.count("send") == calls
    ended = await resume(world, effect=effect)
    waits = effect is NON_IDEMPOTENT
    assert ended.status is (RunStatus.WAITING if waits else RunStatus.SUCCEEDED)
    assert world.witness.count("send") == calls + (not waits)


@pytest.mark.parametrize("side", ["before", "after"])
@in_loop
async def test_a_failure_is_stored_together_with_what_follows_from_it(
    world: World, side: str
) -> None:
    """Killed on either side of that write: an open attempt, or WAITING with nothing to recover."""
    process = Process(world.open(), **{side: 5})
    await world.create(world.runner(world.agent()))
    with pytest.raises(Killed):
        await world.runner(world.agent(OSError("?")), store=process).start_run("r")
    run = await world.store.get_run("r")
    last = (await world.inspect()).attempts[-1]
    if side == "before":
        assert (run.status, last.status) == (RunStatus.RUNNING, StepStatus.RUNNING)
        await world.expire()
        run = await resume(world)
    else:
        assert (last.classification, run.lease_owner) == ("UNCERTAIN", None)
    assert (run.status, run.waiting_step_id) == (RunStatus.WAITING, SEND)
    assert world.witness.count("send") == 1


@in_loop
async def test_what_recovery_finds_is_stored_together_with_what_follows_from_it(
    world: World,
) -> None:
    """Killed after its second write, which follows the lease: there is nothing left to recover."""
    await world.crash(lambda process: world.agent(process.die))
    runner = world.runner(world.agent(), store=Process(world.open(), after=2))
    with pytest.raises(Killed):
        await runner.resume_run("r")
    found = await world.inspect()
    assert (found.run.status, found.run.lease_owner) == (RunStatus.WAITING, None)
    assert list(each_attempt(found))[-1] == (f"{SEND}#1", "FAILED", "UNCERTAIN")


# --- the same for every write and every call, found by counting

LOOK = "model-1.tool-2"


def long_agent(world: World, **acts: Any) -> AgentDefinition:
    """Context, model, send and look, model; `acts` put something else in the place of a call."""
    return world.agent(
        answers=(
            Acts(acts.get("model-1", asks("send", "look"))),
            Acts(acts.get("model-2", DONE)),
        ),
        context_provider=Source(world.witness, acts.get("context", item("an order"))),
        tools=(
            world.tool(acts.get(SEND, "sent")),
            world.tool(acts.get(LOOK, "seen"), name="look", effect=ToolEffect.READ_ONLY),
        ),
    )


async def expected_end(world: World) -> RunStatus:
    """From the contract: WAITING exactly when a non-idempotent attempt is stored and open."""
    attempts = (await world.inspect()).attempts
    is_open = attempts and (attempts[-1].step_id, attempts[-1].status) == (SEND, "RUNNING")
    return RunStatus.WAITING if is_open else RunStatus.SUCCEEDED


async def check_after_kill(world: World, runner: Runner) -> None:
    """Whatever the kill, the run comes to its end, and the mail has gone out at most once."""
    expected = await expected_end(world)
    run = await world.store.get_run("r")
    if run.lease_expires_at:
        world.clock.set(run.lease_expires_at)
    run = await runner.resume_run("r")
    assert run.status is expected
    if run.status is RunStatus.WAITING:
        run = await runner.resolve_run("r", ANSWERS["confirm"](), run.version)
    assert (run.status, run.output) == (RunStatus.SUCCEEDED, DONE)
    lines = world.witness.lines
    assert world.witness.count("send") <= 1
    assert len(lines) - len(set(lines)) <= 1  # one kill repeats one call at most
    steps = [step.step_id for step in (await world.inspect()).steps]
    assert steps == ["context", "model-1", SEND, LOOK, "model-2"]


@pytest.mark.parametrize("side", ["before", "after"])
@in_loop
async def test_a_kill_at_any_write(world: World, side: str) -> None:
    """Ordinals until a run is no longer killed: create's runner is not the one that dies."""
    kills = 0
    for ordinal in range(1, 100):
        run_world = World(world.path.parent / "", world.kind)
        run_world.path = world.path.with_name(f"{ordinal}.db")
        run_world.witness.path = world.path.with_name(f"{ordinal}.witness")
        run_world.store = run_world.open()
        try:
            process = Process(run_world.open(), **{side: ordinal})
            await run_world.create(run_world.runner(long_agent(run_world)))
            runner = run_world.runner(long_agent(run_world), store=process)
            try:
                ended = await runner.start_run("r")
            except Killed:
                kills += 1
            else:
                assert ended.status is RunStatus.SUCCEEDED
                break
            if (await run_world.store.get_run("r")).status.is_terminal:
                continue  # killed after its last write: it had ended
            await check_after_kill(run_world, run_world.runner(long_agent(run_world)))
        finally:
            run_world.close()
    assert kills == 12  # the lease, two for each of five steps, the end


@pytest.mark.parametrize("step", ["context", "model-1", SEND, LOOK, "model-2"])
@in_loop
async def test_a_kill_in_any_call(world: World, step: str) -> None:
    await world.crash(lambda process: long_agent(world, **{step: process.die}))
    await check_after_kill(world, world.runner(long_agent(world)))


# --- whose rules


@in_loop
async def test_a_tool_registered_as_read_only_later_stays_what_it_was(world: World) -> None:
    await world.crash(lambda process: world.agent(process.die))
    waiting = await resume(world, effect=ToolEffect.READ_ONLY)
    assert (waiting.status, world.witness.count("send")) == (RunStatus.WAITING, 1)


@in_loop
async def test_a_policy_registered_later_gives_no_attempts(world: World) -> None:
    """READ_ONLY and one attempt at most: the crash has used it up."""
    one = {"effect": ToolEffect.READ_ONLY, "retry_policy": RetryPolicy(1)}
    await world.crash(lambda process: world.agent(process.die, **one))
    ended = await resume(world, effect=ToolEffect.READ_ONLY, retry_policy=RetryPolicy(9))
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, "effect_unconfirmed")
    assert world.witness.count("send") == 1


def declare(world: World, how: str) -> None:
    """Puts another list of tools into the stored snapshot, as no program of ours would."""
    codec, db = PlaintextPayloadCodec(), world.store._db
    fields = json.loads(codec.decode(db.value("SELECT snapshot FROM runs")))
    tools = fields["tool_declarations"]
    fields["tool_declarations"] = tools * 2 if how == "doubled" else []
    db.execute("UPDATE runs SET snapshot = ?", codec.encode(json.dumps(fields)))


@pytest.mark.parametrize("how", ["missing", "doubled"])
@in_loop
async def test_a_declaration_that_is_missing_or_doubled_stops(world: World, how: str) -> None:
    await killed(world, after=3)  # the model has asked; the tool has not begun
    declare(world, how)
    ended = await resume(world)
    code = "FROZEN_TOOL_DECLARATION_UNAVAILABLE"
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, code)
    assert world.witness.count("send") == 0


@pytest.mark.parametrize("how", ["missing", "doubled"])
@in_loop
async def test_an_open_call_without_its_declaration_waits(world: World, how: str) -> None:
    await world.crash(lambda process: world.agent(process.die, effect=ToolEffect.READ_ONLY))
    declare(world, how)
    waiting = await resume(world)
    assert (waiting.status, world.witness.count("send")) == (RunStatus.WAITING, 1)


# --- how often


@pytest.mark.parametrize("kind", ["context", "model", "READ_ONLY"])
@in_loop
async def test_a_step_that_kills_its_process_each_time_ends(world: World, kind: str) -> None:
    """Three attempts; the fourth runner ends the run and calls nothing."""

    def agent(process: Process) -> AgentDefinition:
        die = process.die
        if kind == "context":
            return world.agent(context_provider=Source(world.witness, die))
        if kind == "model":
            return world.agent(answers=(die,))
        return world.agent(die, effect=ToolEffect.READ_ONLY)

    await world.crash(agent)
    for _ in range(2):
        process = Process(world.open())
        with pytest.raises(Killed):
            await world.runner(agent(process), store=process).resume_run("r")
        await world.expire()
    word = "send" if kind == "READ_ONLY" else kind
    before = world.witness.count(word)
    ended = await world.runner(agent(Process(world.open()))).resume_run("r")
    assert (ended.status, before) == (RunStatus.FAILED, 3)
    assert world.witness.count(word) == 3
    assert ended.error_code in ("context_unconfirmed", "model_checkpoint_unconfirmed",
                                "effect_unconfirmed")  # fmt: skip
    assert (await world.inspect()).steps[-1].status is StepStatus.FAILED


@pytest.mark.parametrize("attempts", [1, 2])
@in_loop
async def test_a_frozen_policy_bounds_the_replays_after_crashes(
    world: World, attempts: int
) -> None:
    more = {"effect": ToolEffect.IDEMPOTENT, "retry_policy": RetryPolicy(attempts)}
    await world.crash(lambda process: world.agent(process.die, **more))
    ended = await resume(world, **more)
    assert ended.status is (RunStatus.FAILED if attempts == 1 else RunStatus.SUCCEEDED)
    assert world.witness.count("send") == attempts


@in_loop
async def test_a_replay_is_within_the_budget(world: World) -> None:
    """A crash uses up its reservation; nothing is stored for the attempt that is refused."""
    budget = {"model_execution_budget": ModelExecutionBudget(run_max_attempts=1)}
    await world.crash(lambda process: world.agent(answers=(process.die,), **budget))
    ended = await resume(world, **budget)
    code = "MODEL_EXECUTION_BUDGET_EXCEEDED"
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, code)
    assert world.witness.count("model") == 1
    assert len((await world.inspect()).attempts) == 1

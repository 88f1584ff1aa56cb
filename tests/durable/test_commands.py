"""The commands of a run: what each asks for, does, and refuses without a trace."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from labkit import durable
from labkit.durable import (
    ConversationMessage,
    ConversationRole,
    DefinitionNotFoundError,
    DuplicateRunError,
    IllegalRunTransitionError,
    LeaseNotHeldError,
    ResolutionNotAllowedError,
    Runner,
    RunNotFoundError,
    RunRecord,
    RunResolution,
    RunStatus,
    RunStoreIntegrityError,
    StaleRunVersionError,
    StepStatus,
    ToolEffect,
)
from labkit.errors import LabkitError
from tests.durable.kit import (
    DONE,
    SEND,
    Gate,
    World,
    asks,
    at,
    each_attempt,
    in_loop,
)

# --- programs, as they are published

CONTRACT = """
registry = DefinitionRegistry()
registry.register(AgentDefinition.for_adapter(definition_id="support", version="1.0", instructions="...", model_adapter=DeterministicModelAdapter(responses=("Received.",))))
runner = Runner(registry=registry, store=SQLiteRunStore("runs.db", payload_codec=PlaintextPayloadCodec()), lease_ttl=timedelta(seconds=30))
created = await runner.create_run("support", "1.0", "Please check my order.")     # CREATED
ended = await runner.start_run(created.run_id)                                    # SUCCEEDED, ended.output
"""  # noqa: E501
CONTRACT_WAITING = """
waiting = await runner.get_run(run_id)                # WAITING, waiting.waiting_reason == "UNCERTAIN_NON_IDEMPOTENT"
await runner.resolve_run(run_id, RunResolution.confirm_step(result, waiting_step_id=waiting.waiting_step_id), expected_version=waiting.version)
"""  # noqa: E501
PUBLISHED = """
from m_agent import AgentDefinition, DefinitionRegistry, Runner, RunRecord, RunStatus
from m_agent.adapters import (
    DeterministicContextProvider, DeterministicModelAdapter, DeterministicTool, FakeClock,
    PlaintextPayloadCodec, SQLiteRunStore,
)
from m_agent.runtime import (
    REASON_UNCERTAIN_NON_IDEMPOTENT, ContextItem, FailureClassification, ModelResponse,
    ResolutionAction, RetryPolicy, RunResolution, ToolCall, ToolEffect, ToolFailure,
    allowed_resolutions,
)

def notify(request):
    raise TimeoutError("no answer")

call = ToolCall(call_id="c1", tool_name="notify", arguments="{}")
registry = DefinitionRegistry()
registry.register(AgentDefinition.for_adapter(
    definition_id="support", version="1.0", instructions="Answer briefly.",
    model_adapter=DeterministicModelAdapter(
        responses=(ModelResponse(tool_calls=(call,)), ModelResponse(content="Sent."))),
    context_provider=DeterministicContextProvider(
        items=(ContextItem(item_id="1", content="an order", source="orders"),)),
    tools=(DeterministicTool("notify", effect=ToolEffect.NON_IDEMPOTENT, handler=notify),),
    retry_policy=RetryPolicy(max_attempts=2),
))
with SQLiteRunStore("runs.db", payload_codec=PlaintextPayloadCodec(), clock=FakeClock()) as store:
    runner = Runner(registry, store, owner="host-1")
    created: RunRecord = await runner.create_run("support", "1.0", "Please notify me.")
    waiting = await runner.start_run(created.run_id)
    assert waiting.status is RunStatus.WAITING
    assert waiting.waiting_reason == REASON_UNCERTAIN_NON_IDEMPOTENT
    assert ResolutionAction.CONFIRM_STEP in allowed_resolutions(waiting)
    ended = await runner.resolve_run(
        waiting.run_id,
        RunResolution(
            ResolutionAction.CONFIRM_STEP, result="sent", waiting_step_id=waiting.waiting_step_id),
        waiting.version,
    )
    seen = await runner.inspect_run(ended.run_id)
    uncertain = [a for a in seen.attempts if a.classification is FailureClassification.UNCERTAIN]
"""


async def execute(program: str, **names: Any) -> dict[str, Any]:
    """Runs the text of a program that awaits at its top level."""
    code: CodeType = compile(program, "program", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names |= {"timedelta": timedelta}
    if inspect.isawaitable(ran := eval(code, names)):
        await ran
    return names


PUBLIC = {name: getattr(durable, name) for name in durable.__all__}


@in_loop
async def test_the_code_at_the_head_of_the_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = await execute(CONTRACT, **PUBLIC)
    assert ran["created"].status is RunStatus.CREATED
    assert (ran["ended"].status, ran["ended"].output) == (RunStatus.SUCCEEDED, "Received.")
    ran["runner"].store.close()


@in_loop
async def test_the_code_of_the_contract_that_confirms_a_waiting_run(world: World) -> None:
    waiting = await world.wait()
    runner = world.runner(world.agent())
    ran = await execute(
        CONTRACT_WAITING, **PUBLIC, runner=runner, run_id=waiting.run_id, result="It was sent."
    )
    assert ran["waiting"].waiting_reason == "UNCERTAIN_NON_IDEMPOTENT"
    assert (await runner.get_run("r")).status is RunStatus.SUCCEEDED


@in_loop
async def test_a_published_program_runs_with_other_import_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = await execute(PUBLISHED.replace("from m_agent", "from labkit.durable"))
    assert (ran["ended"].status, ran["ended"].output) == (RunStatus.SUCCEEDED, "Sent.")
    assert [attempt.step_id for attempt in ran["uncertain"]] == [SEND]


def test_the_roots_of_the_published_names_only_pass_them_on() -> None:
    from labkit.durable import adapters, runtime

    for root in (adapters, runtime):
        assert sorted(root.__all__) == sorted(durable.__all__)
        assert all(getattr(root, name) is getattr(durable, name) for name in durable.__all__)


# --- create_run


@in_loop
async def test_create_freezes_and_calls_nothing(world: World) -> None:
    history = [ConversationMessage(ConversationRole.USER, "Hello.")]
    runner = world.runner(world.agent())
    run = await runner.create_run("support", "1.0", "Now?", run_id="r", history=history)
    assert (run.status, run.version, run.lease_owner) == (RunStatus.CREATED, 1, None)
    assert run == await world.open().get_run("r")
    assert run.history == tuple(history)
    assert run.snapshot.instructions == "Be brief."
    assert (await world.kinds(), world.witness.lines) == (["task_created"], [])


@in_loop
async def test_the_same_request_gives_the_stored_run(world: World) -> None:
    """However far it has come meanwhile, and whoever asks."""
    runner = world.runner(world.agent())
    await world.create(runner)
    ended = await runner.start_run("r")
    async with world.unchanged():
        assert await world.create(world.runner(world.agent())) == ended


@pytest.mark.parametrize(
    "other", [{"input": "?"}, {"version": "2.0"}, {"definition_id": "sales"}, {"history": "Hi."}]
)
@in_loop
async def test_another_request_under_that_id_is_refused(
    memory: World, other: dict[str, str]
) -> None:
    agents = [
        memory.agent(),
        memory.agent(version="2.0"),
        memory.agent(definition_id="sales"),
    ]
    runner = memory.runner(*agents)
    await memory.create(runner)
    request: dict[str, Any] = {
        "definition_id": "support",
        "version": "1.0",
        "input": "Where is my order?",
    } | other
    if "history" in other:
        request["history"] = [ConversationMessage(ConversationRole.USER, other["history"])]
    async with memory.unchanged():
        with pytest.raises(DuplicateRunError, match="another"):
            await runner.create_run(run_id="r", **request)


@in_loop
async def test_two_runs_without_an_id_are_two(memory: World) -> None:
    runner = memory.runner(memory.agent())
    runs = [await runner.create_run("support", "1.0", "The same.") for _ in range(2)]
    assert runs[0].run_id != runs[1].run_id


@in_loop
async def test_create_refuses_what_is_not_registered_and_a_blank_id(memory: World) -> None:
    runner = memory.runner(memory.agent())
    with pytest.raises(DefinitionNotFoundError, match=r"no definition support 1\.1"):
        await runner.create_run("support", "1.1", "x")
    with pytest.raises(ValueError, match="blank"):
        await runner.create_run("support", "1.0", "x", run_id=" ")
    assert await runner.list_runs() == []


# --- a whole run


@in_loop
async def test_a_run_from_its_creation_to_its_output(world: World) -> None:
    ended = await world.run()
    assert (ended.status, ended.output, ended.error_code) == (RunStatus.SUCCEEDED, DONE, None)
    assert (ended.version, ended.lease_owner, ended.lease_epoch) == (3, None, 1)
    found = await world.inspect()
    assert [step.step_id for step in found.steps] == ["model-1", SEND, "model-2"]
    assert [each.attempt_id for each in found.attempts] == ["model-1#1", f"{SEND}#1", "model-2#1"]
    assert [each.step_id for each in found.checkpoints] == ["model-1", SEND, "model-2"]
    assert world.witness.lines == ["model 1", f"send r:{SEND} {SEND}#1", "model 2"]


@in_loop
async def test_the_journal_tells_each_change(world: World) -> None:
    await world.run()
    rows = await world.store.read_journal("r")
    step = ["step_started", "step_finished"]
    assert [row["kind"] for row in rows] == ["task_created", "run_started", *step * 3, "task_done"]
    by_runner = {row["owner"] for row in rows[1:]}
    assert len(by_runner) == 1
    assert by_runner.pop().endswith("#1")
    assert {(row["run_id"], row["task_id"]) for row in rows} == {("r", "r")}
    places = [(row["step_idx"], row["step"], row["attempt"]) for row in rows[2:-1:2]]
    assert places == [(0, "model-1", 1), (1, SEND, 1), (2, "model-2", 1)]


@in_loop
async def test_a_tool_starts_after_the_checkpoint_of_the_one_before(world: World) -> None:
    seen: list[list[str]] = []

    async def look(request: Any) -> str:
        found = await world.inspect()
        seen.append([each.step_id for each in found.checkpoints])
        return "looked"

    await world.run(look, answers=(asks("send", "send", "send"), DONE))
    first, second = "model-1.tool-1", "model-1.tool-2"
    assert seen == [["model-1"], ["model-1", first], ["model-1", first, second]]


@in_loop
async def test_a_call_stands_between_two_transactions(world: World) -> None:
    """Its attempt is durable and open while it runs, for another connection too."""
    seen: list[tuple[str, str, str | None]] = []

    async def look(request: Any) -> str:
        found = await world.open().inspect_run("r")
        seen.append(list(each_attempt(found))[-1])
        return "looked"

    await world.run(look)
    assert seen == [(f"{SEND}#1", "RUNNING", None)]


@in_loop
async def test_two_runs_with_the_same_step_ids_stay_apart(world: World) -> None:
    """One is advanced while the other is blocked in its tool."""
    gate = Gate()
    blocked, free = world.runner(world.agent(gate)), world.runner(world.agent())
    await world.create(blocked, "a")
    await world.create(free, "b")
    task = asyncio.create_task(blocked.start_run("a"))
    await gate.entered.wait()
    assert (await free.start_run("b")).status is RunStatus.SUCCEEDED
    before = await world.inspect("b")
    gate.open.set()
    assert (await task).status is RunStatus.SUCCEEDED
    assert await world.inspect("b") == before
    results = [(await world.inspect(name)).checkpoints[1].output for name in ("a", "b")]
    assert "passed" in results[0]
    assert "sent" in results[1]


@in_loop
async def test_many_runs_at_once(world: World) -> None:
    runner = world.runner(world.agent())
    names = [f"run-{n}" for n in range(20)]
    for name in names:
        await world.create(runner, name)
    ended = await asyncio.gather(*map(runner.start_run, names))
    assert [run.status for run in ended] == [RunStatus.SUCCEEDED] * 20
    assert sorted(line.split()[1] for line in world.witness.lines if line.startswith("send")) == (
        sorted(f"{name}:{SEND}" for name in names)
    )


@in_loop
async def test_a_tool_may_run_an_agent_and_ask_for_the_end_of_its_own_run(world: World) -> None:
    inner = world.runner(world.agent(answers=("inner",)))

    async def delegate(request: Any) -> str:
        await world.create(inner, "inner")
        await inner.cancel_run("r")
        return (await inner.start_run("inner")).output or ""

    ended = await world.run(delegate)
    assert (ended.status, (await inner.get_run("inner")).output) == (RunStatus.CANCELLED, "inner")
    assert "inner" in (await world.inspect()).checkpoints[1].output


# --- what each command refuses, in each status

Command = Callable[[Runner, int], Awaitable[Any]]
COMMANDS: dict[str, Command] = {
    "start": lambda runner, version: runner.start_run("r"),
    "resume": lambda runner, version: runner.resume_run("r"),
    "fail": lambda runner, version: runner.resolve_run("r", RunResolution.fail_run(), version),
    "cancel": lambda runner, version: runner.cancel_run("r"),
}


async def bring(world: World, status: str) -> RunRecord:
    """A run in that status; RUNNING is abandoned with its lease still valid."""
    runner = world.runner(world.agent())
    if status == "WAITING":
        return await world.wait()
    if status == "FAILED":
        return await world.run(ValueError("no"), effect=ToolEffect.READ_ONLY)
    if status == "RUNNING":
        return await world.abandon()
    run = await world.create(runner)
    if status == "SUCCEEDED":
        return await runner.start_run("r")
    if status == "CANCELLED":
        return await runner.cancel_run("r")
    return run


REFUSED = {
    ("start", "RUNNING"): IllegalRunTransitionError,
    ("start", "WAITING"): IllegalRunTransitionError,
    ("resume", "RUNNING"): LeaseNotHeldError,
    ("fail", "CREATED"): IllegalRunTransitionError,
    ("fail", "RUNNING"): IllegalRunTransitionError,
} | {
    (command, status): IllegalRunTransitionError
    for command in COMMANDS
    for status in ("SUCCEEDED", "FAILED", "CANCELLED")
}


@pytest.mark.parametrize(("command", "status"), REFUSED, ids=lambda name: name.lower())
@in_loop
async def test_a_refused_command_changes_nothing(world: World, command: str, status: str) -> None:
    run = await bring(world, status)
    assert run.status == status
    runner = world.runner(world.agent())
    async with world.unchanged():
        with pytest.raises(REFUSED[command, status]):
            await COMMANDS[command](runner, run.version)


@pytest.mark.parametrize("command", ["start", "resume", "fail", "cancel", "get", "inspect"])
@in_loop
async def test_an_unknown_run(memory: World, command: str) -> None:
    runner = memory.runner(memory.agent())
    every = COMMANDS | {
        "get": lambda runner, version: runner.get_run("r"),
        "inspect": lambda runner, version: runner.inspect_run("r"),
    }
    with pytest.raises(RunNotFoundError, match="no run 'r'"):
        await every[command](runner, 1)
    assert await memory.store.read_journal() == []


@in_loop
async def test_the_refusal_says_who_holds_the_lease_and_until_when(world: World) -> None:
    run = await bring(world, "RUNNING")
    with pytest.raises(LeaseNotHeldError) as caught:
        await world.runner(world.agent()).resume_run("r")
    assert (caught.value.owner, caught.value.expires_at) == ("another", at(run))


@in_loop
async def test_start_without_the_definition_is_refused_before_any_lease(world: World) -> None:
    await bring(world, "CREATED")
    async with world.unchanged():
        with pytest.raises(DefinitionNotFoundError):
            await world.runner(world.agent(version="2.0")).start_run("r")


@in_loop
async def test_resume_starts_a_created_run(world: World) -> None:
    await bring(world, "CREATED")
    ended = await world.runner(world.agent()).resume_run("r")
    assert (ended.status, ended.version) == (RunStatus.SUCCEEDED, 3)


@pytest.mark.parametrize("command", ["fail", "cancel"])
@in_loop
async def test_a_stale_version_is_refused(world: World, command: str) -> None:
    runner, run = world.runner(world.agent()), await bring(world, "WAITING")
    stale = run.version - 1
    async with world.unchanged():
        with pytest.raises(StaleRunVersionError, match="version 3, not 2"):
            await (
                runner.cancel_run("r", expected_version=stale)
                if command == "cancel"
                else COMMANDS[command](runner, stale)
            )


@in_loop
async def test_a_resolution_without_a_version_is_a_mistake_in_the_program(world: World) -> None:
    await bring(world, "WAITING")
    async with world.unchanged():
        with pytest.raises(TypeError, match="expected_version"):
            await world.runner(world.agent()).resolve_run(  # type: ignore[call-arg]
                "r", RunResolution.fail_run()
            )


@in_loop
async def test_payloads_are_decoded_before_a_lease_is_taken(on_disk: World) -> None:
    """A damaged one is found, and nothing was written; metadata can still be read."""
    for name, status in (("a", "CREATED"), ("b", "WAITING")):
        runner = on_disk.runner(on_disk.agent(OSError("broke")))
        await on_disk.create(runner, name)
        if status == "WAITING":
            await runner.start_run(name)
    db = on_disk.store._db
    db.execute("UPDATE runs SET history = x'00' WHERE run_id = 'a'")
    db.execute("UPDATE attempts SET output = x'00' WHERE run_id = 'b' AND step_id = 'model-1'")
    before = await on_disk.store.read_journal(), await runner.list_runs()
    retry = RunResolution.retry_step(waiting_step_id=SEND)
    for command in (
        runner.start_run("a"),
        runner.resume_run("a"),
        runner.resolve_run("b", retry, 3),
    ):
        with pytest.raises(RunStoreIntegrityError, match="payload"):
            await command
    assert (await on_disk.store.read_journal(), await runner.list_runs()) == before


def test_every_error_is_of_one_tree() -> None:
    errors = [
        value
        for value in PUBLIC.values()
        if isinstance(value, type) and issubclass(value, BaseException)
    ]
    assert len(errors) >= 15
    assert [error for error in errors if not issubclass(error, LabkitError)] == []
    assert not any(issubclass(error, RuntimeError) for error in errors)


# --- the states of steps


@pytest.mark.parametrize(
    ("resolution", "status", "step"),
    [
        (RunResolution.fail_run(), RunStatus.FAILED, StepStatus.FAILED),
        (RunResolution.cancel_run(), RunStatus.CANCELLED, StepStatus.FAILED),
        (
            RunResolution.confirm_step("sent", waiting_step_id=SEND),
            RunStatus.SUCCEEDED,
            StepStatus.SUCCEEDED,
        ),
    ],
)
@in_loop
async def test_a_step_runs_until_its_checkpoint_or_the_end_of_its_run(
    world: World, resolution: RunResolution, status: RunStatus, step: StepStatus
) -> None:
    waiting = await world.wait()
    assert (await world.inspect()).steps[1].status is StepStatus.RUNNING
    runner = world.runner(world.agent())
    ended = await runner.resolve_run("r", resolution, waiting.version)
    assert (ended.status, (await world.inspect()).steps[1].status) == (status, step)
    assert (ended.waiting_reason, ended.waiting_step_id) == (None, None)


@in_loop
async def test_what_is_answered_under_another_reason_is_refused(world: World) -> None:
    waiting = await world.wait()
    continued = RunResolution(durable.ResolutionAction.CONTINUE_RUN, waiting_step_id=SEND)
    async with world.unchanged():
        with pytest.raises(ResolutionNotAllowedError, match="CONTINUE_RUN is no answer"):
            await world.runner(world.agent()).resolve_run("r", continued, waiting.version)

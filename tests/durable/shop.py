"""A durable agent that dies where it is told to; the tests run it as a program.

`shop.py COMMAND RUN_ID [OWNER]`: `create`, `go` (start or resume), or an answer of the application,
`confirm`, `reject`, `retry`, `fail`. `labkit runs --app shop:runner` uses it too. The environment
says more: DIE_IN=NAME kills it inside the tool of that name, after the tool has acted; HANG_IN=NAME
lets that tool wait for ever; SEALED=KEY encrypts what it stores; IMPATIENT=1 waits for no time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import datetime, timedelta

from labkit.durable import (
    AgentDefinition,
    Clock,
    DefinitionRegistry,
    DeterministicModelAdapter,
    DeterministicTool,
    EncryptedPayloadCodec,
    FakeClock,
    ModelResponse,
    PlaintextPayloadCodec,
    Runner,
    RunRecord,
    RunResolution,
    SQLiteRunStore,
    SystemClock,
    ToolCall,
    ToolEffect,
    ToolRequest,
)


class Impatient(FakeClock):
    """The moment that it is to wait for has come."""

    async def sleep_until(self, moment: datetime) -> None:
        self.set(moment)
        await asyncio.sleep(0)


async def act(request: ToolRequest) -> str:
    """Leaves a line for a witness outside, and may be the last thing that this process does."""
    with open("witness.txt", "a", encoding="utf-8") as file:
        file.write(f"{request.idempotency_key} {request.tool_name}\n")
    if os.environ.get("DIE_IN") == request.tool_name:
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ.get("HANG_IN") == request.tool_name:
        print("hanging", flush=True)
        await asyncio.Event().wait()
    return "done"


def make_runner(path: str, owner: str) -> Runner:
    tools = (
        DeterministicTool("look_up", effect=ToolEffect.READ_ONLY, handler=act),
        DeterministicTool("send", effect=ToolEffect.NON_IDEMPOTENT, handler=act),
    )
    answers = (
        ModelResponse(tool_calls=(ToolCall("c1", "look_up", "{}"),)),
        ModelResponse(tool_calls=(ToolCall("c2", "send", "{}"),)),
        "Sent.",
    )
    definition = AgentDefinition.for_adapter(
        definition_id="support",
        version="1.0",
        instructions="Be kind.",
        tools=tools,
        model_adapter=DeterministicModelAdapter(responses=answers),
    )
    registry = DefinitionRegistry()
    registry.register(definition)
    key = os.environ.get("SEALED")
    codec = EncryptedPayloadCodec([key]) if key else PlaintextPayloadCodec()
    clock: Clock = SystemClock()
    clock = Impatient(clock.now()) if os.environ.get("IMPATIENT") else clock
    store = SQLiteRunStore(path, payload_codec=codec, clock=clock)
    return Runner(registry=registry, store=store, owner=owner, lease_ttl=timedelta(seconds=30))


def runner() -> Runner:
    return make_runner("state.db", "cli")


def answer(command: str, step_id: str | None) -> RunResolution:
    more = {"waiting_step_id": step_id, "actor": "ann", "reason": "looked into the mailbox"}
    if command == "confirm":
        return RunResolution.confirm_step("found it", **more)
    if command == "reject":
        return RunResolution.reject_step("NOT_SENT", "the mailbox is empty", **more)
    return RunResolution.retry_step(**more) if command == "retry" else RunResolution.fail_run()


async def obey(command: str, run_id: str, owner: str) -> RunRecord:
    desk = make_runner("state.db", owner)
    if command == "create":
        return await desk.create_run("support", "1.0", "Where is my order?", run_id=run_id)
    if command == "go":
        return await desk.resume_run(run_id)
    run = await desk.get_run(run_id)
    return await desk.resolve_run(run_id, answer(command, run.waiting_step_id), run.version)


if __name__ == "__main__":
    print(asyncio.run(obey(sys.argv[1], sys.argv[2], [*sys.argv, "worker-a"][3])).status)

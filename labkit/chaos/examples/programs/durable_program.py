"""The durable run: a model that asks for one tool after another. `setup` makes the tables.

A start creates the run, or finds it and goes on with it. A run that waits is answered by whoever
can look at the other side: here that is this program.
"""

import asyncio
import json
import os
import sys

import task

from labkit import durable
from labkit.durable import ToolCall, ToolEffect

ASKED = ("fetch", "summarize", "send")
SEND = ToolEffect.IDEMPOTENT if task.HAS_KEY else ToolEffect.NON_IDEMPOTENT


class Model(durable.ModelAdapter):
    async def generate(self, request: durable.ModelRequest) -> durable.ModelResponse:
        results = [outcome.result for outcome in request.tool_outcomes]
        if len(results) == len(ASKED):
            return durable.ModelResponse(results[-1])
        given = json.dumps({"text": results[-1]} if results else {})
        call = ToolCall(str(len(results)), ASKED[len(results)], given)
        return durable.ModelResponse(tool_calls=(call,))


def text_of(call: ToolCall | durable.ToolRequest) -> str:
    return json.loads(call.arguments)["text"]


TOOLS = (
    durable.DeterministicTool("fetch", ToolEffect.READ_ONLY, lambda request: task.fetch()),
    durable.DeterministicTool(
        "summarize", ToolEffect.READ_ONLY, lambda request: task.summarize(text_of(request))
    ),
    durable.DeterministicTool("send", SEND, lambda request: task.send(text_of(request))),
)
AGENT = durable.AgentDefinition.for_adapter(
    definition_id="notes",
    version="1",
    instructions="Send a summary of the notes.",
    model_adapter=Model(),
    tools=TOOLS,
)


async def answer(runner: durable.Runner, run: durable.RunRecord) -> durable.RunRecord:
    steps = (await runner.inspect_run("t")).steps
    (call,) = (step.call for step in steps if step.step_id == run.waiting_step_id)
    at = {"waiting_step_id": run.waiting_step_id}
    resolution = durable.RunResolution.retry_step(**at)
    if task.is_taken(os.environ["WITNESS"]):
        resolution = durable.RunResolution.confirm_step(text_of(call), **at)
    return await runner.resolve_run("t", resolution, expected_version=run.version)


async def main() -> None:
    # Its clock stands at the end of the lease of the process that was killed: nobody waits here.
    clock = durable.FakeClock()
    store = durable.SQLiteRunStore("runs.db", durable.PlaintextPayloadCodec(), clock)
    if sys.argv[1:] == ["setup"]:
        return
    registry = durable.DefinitionRegistry()
    registry.register(AGENT)
    runner = durable.Runner(registry=registry, store=store)
    run = await runner.create_run("notes", "1", "These notes.", run_id="t")
    clock.set(max(filter(None, (run.updated_at, run.lease_expires_at))))
    if run.status == "CREATED":
        run = await runner.start_run("t")
    elif run.status == "RUNNING":
        run = await runner.resume_run("t")
    while run.status == "WAITING":
        run = await answer(runner, run)
    task.finished(run.output or "")


asyncio.run(main())

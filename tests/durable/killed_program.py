"""A run in a process of its own, which a test kills: `python -m tests.durable.killed_program`.

The arguments are a folder, a place, and what its tool promises. The program creates the run `r`
if it is not there, resumes it, and prints how it stands. Where its place is reached it prints
"here" and waits, after its line in the witness, to be killed; "itself" is a tool that kills its
own process instead.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from labkit.durable import (
    AgentDefinition,
    DefinitionRegistry,
    PlaintextPayloadCodec,
    Runner,
    SQLiteRunStore,
    ToolEffect,
)
from tests.durable.acts import DONE, TTL, Model, Source, Witness, WitnessedTool, asks


async def wait_to_be_killed(request: Any) -> None:
    print("here", flush=True)
    await asyncio.Event().wait()


def kill_this_process(request: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def agent(folder: Path, place: str, effect: ToolEffect) -> AgentDefinition:
    witness = Witness(folder / "witness")
    acts = {place: wait_to_be_killed, "send" if place == "itself" else "": kill_this_process}
    return AgentDefinition.for_adapter(
        definition_id="support",
        version="1.0",
        instructions="Be brief.",
        model_adapter=Model(witness, acts.get("model-1", asks("send")), acts.get("model-2", DONE)),
        context_provider=Source(witness, acts.get("context", ())),
        tools=(WitnessedTool(witness, "send", acts.get("send", "sent"), effect=effect),),
    )


async def main(folder: Path, place: str, effect: ToolEffect) -> None:
    registry = DefinitionRegistry()
    registry.register(agent(folder, place, effect))
    with SQLiteRunStore(folder / "runs.db", PlaintextPayloadCodec()) as store:
        runner = Runner(registry=registry, store=store, lease_ttl=TTL)
        await runner.create_run("support", "1.0", "Where is my order?", run_id="r")
        run = await runner.resume_run("r")
    print(run.status.value, run.waiting_step_id, run.output, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], ToolEffect(sys.argv[3])))

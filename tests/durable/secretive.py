"""A process that puts a secret of each kind into runs, tells what it sees, and waits for its kill.

    python -m tests.durable.secretive FILE KEY     an empty KEY: plaintext

It prints one JSON object: the journal's rows, the updates, the text of each error, and what the
store gives back to who has the key. Then it keeps the file open until its input ends.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import traceback
from collections.abc import Awaitable
from contextlib import closing
from typing import Any

from cryptography.fernet import Fernet

from labkit.durable import (
    AgentDefinition,
    ContextItem,
    ConversationMessage,
    ConversationRole,
    DefinitionRegistry,
    DeterministicContextProvider,
    DeterministicModelAdapter,
    DeterministicTool,
    EncryptedPayloadCodec,
    FailureClassification,
    FakeClock,
    ModelAdapter,
    ModelFailure,
    ModelRequest,
    ModelResponse,
    PayloadCodec,
    PlaintextPayloadCodec,
    Runner,
    RunResolution,
    SQLiteRunStore,
    ToolCall,
    ToolEffect,
    ToolFailure,
    ToolRequest,
)

KINDS = [
    "input", "instructions", "history", "model answer", "tool arguments", "tool result",
    "tool description", "context item", "context metadata", "error message", "tool failure",
    "model failure", "resolution reason", "resolution result", "resolution message",
    "final output",
]  # fmt: skip


def token(kind: str) -> str:
    return f"Tok3n{kind.title().replace(' ', '')}Zq7"


def secret(kind: str) -> str:
    """With what JSON has to escape; the token in it is what no escape changes."""
    assert kind in KINDS
    return f'the "{kind}" is ü {token(kind)}'


def codec_of(key: str) -> PayloadCodec:
    return EncryptedPayloadCodec([key]) if key else PlaintextPayloadCodec()


def look_up(request: ToolRequest) -> str:
    return secret("tool result")


def send(request: ToolRequest) -> str:
    raise RuntimeError(secret("error message"))


def refuse(request: ToolRequest) -> str:
    raise ToolFailure(FailureClassification.PERMANENT, "REFUSED", secret("tool failure"))


class Failing(ModelAdapter):
    async def generate(self, request: ModelRequest) -> ModelResponse:
        raise ModelFailure(FailureClassification.PERMANENT, "NO_MODEL", secret("model failure"))


def agent(name: str, model: ModelAdapter, *tools: DeterministicTool) -> AgentDefinition:
    item = ContextItem("i1", secret("context item"), "files", {"k": secret("context metadata")})
    return AgentDefinition.for_adapter(
        definition_id=name,
        version="1",
        instructions=secret("instructions"),
        model_adapter=model,
        tools=tools,
        context_provider=DeterministicContextProvider([item]),
    )


def asks_for(tool: str) -> DeterministicModelAdapter:
    call = ToolCall("c1", tool, json.dumps({"to": secret("tool arguments")}))
    asked = ModelResponse(secret("model answer"), (call,))
    return DeterministicModelAdapter([asked, secret("final output")])


def registry() -> DefinitionRegistry:
    made, described = DefinitionRegistry(), {"description": secret("tool description")}
    found = DeterministicTool("look_up", ToolEffect.READ_ONLY, look_up, **described)
    for definition in (
        agent("good", asks_for("look_up"), found),
        agent("unsure", asks_for("send"), DeterministicTool("send", handler=send)),
        agent("refused", asks_for("refuse"), DeterministicTool("refuse", handler=refuse)),
        agent("dumb", Failing()),
    ):
        made.register(definition)
    return made


class Told:
    """The runs of one runner, and all that it says on the way."""

    def __init__(self, path: str, key: str) -> None:
        self.path = path
        self.store = SQLiteRunStore(path, codec_of(key), FakeClock())
        self.runner = Runner(registry=registry(), store=self.store, owner="ann")
        self.updates: list[str] = []
        self.errors: list[str] = []

    async def advance(self, definition_id: str, run_id: str) -> None:
        history = (ConversationMessage(ConversationRole.USER, secret("history")),)
        await self.runner.create_run(
            definition_id, "1", secret("input"), run_id=run_id, history=history
        )
        advance = asyncio.create_task(self.runner.start_run(run_id))
        async for update in self.runner.subscribe_run(run_id):
            self.updates.append(repr(update))
        await advance

    async def resolve(self, run_id: str, resolution: RunResolution) -> None:
        run = await self.runner.get_run(run_id)
        await self.runner.resolve_run(run_id, resolution, run.version)

    async def refused(self, command: Awaitable[Any]) -> None:
        try:
            await command
        except Exception as error:
            self.errors += traceback.format_exception(error)
        else:
            raise AssertionError("this was to be refused")

    async def tell_all(self) -> None:
        for definition_id in ("good", "refused", "dumb"):
            await self.advance(definition_id, definition_id)
        for run_id in ("confirmed", "rejected", "waiting"):
            await self.advance("unsure", run_id)
        at = {"waiting_step_id": "model-1.tool-1", "reason": secret("resolution reason")}
        confirm = RunResolution.confirm_step(secret("resolution result"), **at)
        reject = RunResolution.reject_step("NO", secret("resolution message"), **at)
        await self.resolve("confirmed", confirm)
        await self.resolve("rejected", reject)
        await self.be_refused(confirm, reject)

    async def be_refused(self, confirm: RunResolution, reject: RunResolution) -> None:
        runner = self.runner
        elsewhere = RunResolution.confirm_step(secret("resolution result"), waiting_step_id="x")
        await self.refused(runner.create_run("good", "1", secret("input") + "!", run_id="good"))
        await self.refused(runner.create_run("good", "2", secret("input")))
        await self.refused(runner.start_run("good"))
        await self.refused(runner.resolve_run("good", confirm, 1))
        await self.refused(runner.resolve_run("waiting", reject, 1))
        await self.refused(runner.resolve_run("waiting", elsewhere, 3))
        await self.refused(self.with_another_key())
        await self.advance("good", "damaged")
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("UPDATE runs SET input = input || 'x' WHERE run_id = 'damaged'")
            connection.execute("UPDATE runs SET history = substr(input, 5) WHERE run_id = 'dumb'")
        await self.refused(runner.get_run("damaged"))
        await self.refused(runner.inspect_run("dumb"))

    async def with_another_key(self) -> None:
        SQLiteRunStore(self.path, EncryptedPayloadCodec([Fernet.generate_key()])).close()

    async def everything(self) -> dict[str, Any]:
        runs = ("good", "refused", "confirmed", "rejected", "waiting")
        kept = [repr(await self.runner.inspect_run(run_id)) for run_id in runs]
        journal = [str(row) for row in await self.store.read_journal()]
        told = {"journal": journal, "updates": self.updates, "errors": self.errors, "kept": kept}
        return {name: "\n".join(lines) for name, lines in told.items()}


async def main(path: str, key: str) -> Told:
    told = Told(path, key)
    await told.tell_all()
    print(json.dumps(await told.everything()), flush=True)
    return told


if __name__ == "__main__":
    keeps_the_file_open = asyncio.run(main(*sys.argv[1:]))
    sys.stdin.readline()

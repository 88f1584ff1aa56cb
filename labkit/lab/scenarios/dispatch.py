"""An agent that tells somebody: a durable run with a tool whose effect nobody may repeat.

    python -m labkit.lab.scenarios.dispatch go RUN [DEFINITION]      create it, start it, or resume
    python -m labkit.lab.scenarios.dispatch create RUN [DEFINITION]
    python -m labkit.lab.scenarios.dispatch start RUN      (or resume, or cancel)
    python -m labkit.lab.scenarios.dispatch resolve RUN retry    (or confirm, reject, fail, cancel)

The definition `notice` asks a model, sends one message, and asks the model again. `dispatch` has
every kind of step: it reads notes, looks up who is on call, opens a ticket, and sends the message.
`tickets` opens two at once. All work in the current folder. The store is state.db; outbox.txt,
tickets.txt and calls.txt lie outside it, and no runtime ever reads them.

What a process registers can differ from what the one before it did: AGENT_DECLARE=notify=READ_ONLY
gives a tool another effect, AGENT_VERSION another version, AGENT_BUDGET is how many model attempts
a run may make, and AGENT_TOOLS names a file whose functions stand in for the tools of their names.
AGENT_NOTES is the file that is read in place of input/notes.txt.

AGENT_OWNER is who holds the lease. The clock stands where LABKIT_CLOCK puts it, so no lease ends by
chance. AGENT_HOLD=notify, or the name of another call, waits in that call, its effect done, until
somebody opens the FIFO `gate`. `places` says where and how it can be killed.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import sys
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from labkit import durable
from labkit.chaos.examples.programs.durable_run import append
from labkit.clock import clock
from labkit.durable import RunResolution
from labkit.errors import BadInput, Fatal, LabkitError, UsageError, describe
from labkit.lab.scenarios.places import Places

__all__ = ["CALLS", "DATABASE", "INPUT", "OUTBOX", "TICKETS", "definition", "main", "runner"]

DATABASE, OUTBOX, TICKETS, CALLS = "state.db", "outbox.txt", "tickets.txt", "calls.txt"
INPUT = "The pump in hall B has stopped."
MESSAGE, SENT = f"To Kim: {INPUT}", "Kim was told"
# All others: 2. RUNNING is what a request to cancel leaves, where another process is at work.
ENDS = {"CREATED": 0, "RUNNING": 0, "SUCCEEDED": 0, "WAITING": 4}
TURNS = {
    "notice": [["notify"]],
    "dispatch": [["look_up", "open_ticket"], ["notify"]],
    "tickets": [["open_ticket", "open_ticket"]],
}


RESOLUTIONS: dict[str, Callable[..., RunResolution]] = {
    "retry": RunResolution.retry_step,
    "confirm": partial(RunResolution.confirm_step, SENT),
    "reject": partial(RunResolution.reject_step, "NOT_SENT", "Kim was not told."),
    "fail": RunResolution.fail_run,
    "cancel": RunResolution.cancel_run,
}


# The agent.


class Outside:
    """What the agent touches in its folder, besides the store: the world, and its witness."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def look_up(self, request: durable.ToolRequest) -> str:
        """Who is on call. It changes nothing."""
        who = self._read("input/on-call.txt")
        await self.called("look_up")
        return f"{who} is on call"

    async def open_ticket(self, request: durable.ToolRequest) -> str:
        """A ticket has its key as its number, so a second call finds the first one's."""
        if request.idempotency_key not in self._read(TICKETS):
            self._append(TICKETS, f"{request.idempotency_key}  {INPUT}")
        await self.called("open_ticket")
        return "the ticket is open"

    async def notify(self, request: durable.ToolRequest) -> str:
        """The message leaves by one call, and nobody can call it back."""
        key, attempt = request.idempotency_key, request.attempt_id
        self._append(OUTBOX, f"{key}  {attempt}  {MESSAGE}")
        await self.called("notify")
        return SENT

    async def read_notes(self) -> str:
        notes = self._read(os.environ.get("AGENT_NOTES", "input/notes.txt"))
        await self.called("context")
        return notes

    async def called(self, name: str) -> None:
        """Counts the call; where AGENT_HOLD names it, waits for the gate."""
        self._append(CALLS, name)
        if os.environ.get("AGENT_HOLD") == name:
            gate = self._folder / "gate"
            if not gate.exists():
                os.mkfifo(gate)
            gate.read_bytes()

    def _append(self, name: str, line: str) -> None:
        append(str(self._folder / name), line)

    def _read(self, name: str) -> str:
        path = self._folder / name
        return path.read_text(encoding="utf-8").strip() if path.exists() else ""


class Model(durable.ModelAdapter):
    """Asks for the tools of each turn, and at the end says what became of them. If it was shown
    notes and they say of no stop, it asks for nothing."""

    def __init__(self, turns: list[list[str]], outside: Outside) -> None:
        self._turns, self._outside = turns, outside

    async def generate(self, request: durable.ModelRequest) -> durable.ModelResponse:
        turn = len(request.turns)
        await self._outside.called(f"model-{turn + 1}")
        seen = [item.content for item in request.context_items]
        if seen and "stopped" not in " ".join(seen):
            return durable.ModelResponse("Nothing to do.")
        if turn < len(self._turns):
            asked = enumerate(self._turns[turn], start=1)
            calls = (durable.ToolCall(f"call-{turn + 1}-{n}", name) for n, name in asked)
            return durable.ModelResponse(tool_calls=tuple(calls))
        said = [outcome.result or f"not done: {outcome.code}" for outcome in request.tool_outcomes]
        return durable.ModelResponse("; ".join(said))


class Notes(durable.ContextProvider):
    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def provide(self, request: durable.ContextRequest) -> list[durable.ContextItem]:
        return [durable.ContextItem("1", await self._outside.read_notes(), "input/notes.txt")]


EFFECTS = {
    "look_up": durable.ToolEffect.READ_ONLY,
    "open_ticket": durable.ToolEffect.IDEMPOTENT,
    "notify": durable.ToolEffect.NON_IDEMPOTENT,
}


def definition(
    name: str, folder: Path, watch: Callable[[Any], Any] = lambda it: it
) -> durable.AgentDefinition:
    """Of an agent that works in this folder. Its callables go through `watch`, which may look at
    each of their calls."""
    turns, outside = TURNS[name], Outside(folder)
    handlers = learned(folder)
    tools = [
        durable.DeterministicTool(tool, effect, handlers.get(tool) or getattr(outside, tool))
        for tool, effect in (EFFECTS | declared()).items()
        if any(tool in turn for turn in turns)
    ]
    return durable.AgentDefinition.for_adapter(
        definition_id=name,
        version=version(),
        instructions="Tell who is on call.",
        model_execution_budget=durable.ModelExecutionBudget(run_max_attempts=budget()),
        model_adapter=watch(Model(turns, outside)),
        context_provider=watch(Notes(outside)) if name == "dispatch" else None,
        tools=map(watch, tools),
    )


def version() -> str:
    return os.environ.get("AGENT_VERSION", "1")


def budget() -> int:
    if (asked := os.environ.get("AGENT_BUDGET", "8")).isdecimal():
        return int(asked)
    raise UsageError(f"AGENT_BUDGET={asked}: give a number of attempts, as in AGENT_BUDGET=4")


def declared() -> dict[str, durable.ToolEffect]:
    """What AGENT_DECLARE says: TOOL=EFFECT, with commas between them."""
    asked = os.environ.get("AGENT_DECLARE", "")
    pairs = dict(pair.partition("=")[::2] for pair in asked.split(",") if pair)
    if not (pairs.keys() <= EFFECTS.keys() and set(pairs.values()) <= set(durable.ToolEffect)):
        known = f"{', '.join(EFFECTS)}, and {', '.join(durable.ToolEffect)}"
        raise UsageError(f"AGENT_DECLARE={asked}: use TOOL=EFFECT; there are {known}")
    return {tool: durable.ToolEffect(effect) for tool, effect in pairs.items()}


def learned(folder: Path) -> dict[str, Any]:
    """The functions of the file AGENT_TOOLS, by name."""
    if not (file := os.environ.get("AGENT_TOOLS")):
        return {}
    try:
        return runpy.run_path(str(folder / file))
    except Exception as error:  # a file of somebody's own
        raise BadInput(f"AGENT_TOOLS={file}: {describe(error)}; mend the file") from error


def runner(
    folder: Path = Path(), owner: str = "", start_s: float = 0, places: Places | None = None
) -> durable.Runner:
    """A runner of both definitions over the store of the folder: `labkit runs --app` takes it.

    Its clock stands still at `start_s`, or where LABKIT_CLOCK says."""
    stands_still = durable.FakeClock(datetime.fromtimestamp(start_s or clock()(), UTC))
    codec = durable.PlaintextPayloadCodec()
    store: Any = durable.SQLiteRunStore(folder / DATABASE, codec, stands_still)
    registry = durable.DefinitionRegistry()
    for name in TURNS:
        watch = [places.watch_calls] if places else []
        registry.register(definition(name, folder, *watch))
    owner = owner or os.environ.get("AGENT_OWNER", "ann")
    return durable.Runner(registry, places.watch_store(store) if places else store, owner=owner)


# The program.


async def advance(
    runner: durable.Runner, command: str, run_id: str, word: str = ""
) -> durable.RunRecord:
    """One command, as far as it goes."""
    if command in ("create", "go"):
        run = await runner.create_run(word or "notice", version(), INPUT, run_id=run_id)
        if command == "create" or run.status.is_terminal:
            return run
        command = "start" if run.status == "CREATED" else "resume"
    if command == "resolve":
        run = await runner.get_run(run_id)
        said = RESOLUTIONS[word](waiting_step_id=run.waiting_step_id, actor=runner.owner)
        return await runner.resolve_run(run_id, said, run.version)
    commands = {"start": runner.start_run, "resume": runner.resume_run, "cancel": runner.cancel_run}
    return await commands[command](run_id)


def stands(run: durable.RunRecord) -> str:
    """Its status; of one that waits or has failed why; of one that has succeeded what it says."""
    why = run.waiting_reason or run.error_code
    at = f" at {run.waiting_step_id}" if run.waiting_step_id else ""
    return run.status + (f", {why}{at}" if why else "") + (f": {run.output}" if run.output else "")


def require_usage(argv: list[str]) -> None:
    words: dict[str, Any] = {"create": TURNS, "go": TURNS, "resolve": RESOLUTIONS}
    known = (*words, "start", "resume", "cancel")
    fits = len(argv) == (3 if argv[:1] == ["resolve"] else 2) or (
        len(argv) == 3 and argv[0] in words
    )
    if not fits or argv[0] not in known or any(word not in words[argv[0]] for word in argv[2:]):
        raise UsageError(
            f"give create or go, RUN and {' or '.join(TURNS)}; start, resume or cancel, and RUN; "
            f"resolve, RUN and {', '.join(RESOLUTIONS)}"
        )


def main(argv: list[str]) -> int:
    try:
        require_usage(argv)
        places = Places()
        run = asyncio.run(advance(runner(places=places), *argv))
        places.end()
    except (LabkitError, Fatal) as error:
        said = f"{type(error).__name__}: {error}"
        print(textwrap.fill(said, 80, break_on_hyphens=False), file=sys.stderr)
        return error.exit_code
    print(f"run {run.run_id} is {stands(run)}")
    return ENDS.get(run.status, 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

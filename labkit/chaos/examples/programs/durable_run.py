"""An application around one durable run: creates it, advances it, answers it, cancels it.

    python -m labkit.chaos.examples.programs.durable_run go [REJECT_STEP | FAIL_RUN | CANCEL_RUN]
    python -m labkit.chaos.examples.programs.durable_run cancel
    python -m labkit.chaos.examples.programs.durable_run leave sent | unsent | in-model | in-tool

A process goes on where the last one was killed, and answers a run that waits: it looks whether the
message has gone out, unless it was told what to answer. `leave` makes a run that waits, or one that
was abandoned in a call. The environment says more: AGENT=long has context and tools of every kind,
FAULT=lost loses the answer of each message, HOLD is a FIFO that the first message waits for.

What it does is counted outside the store, in the working directory:

    witness   a line for each message that has gone out: its idempotency key, its attempt
    calls     a line for each other call: of the model, of the context, of the tools
    told      a line for each time that the runtime said WAITING of a run it had advanced
    passed    for each process that ended: how many boundaries it came to

Its crash points are `boundary:N`, before and after each verb of the store and each call of an
adapter, in the order in which they come.
"""

import asyncio
import inspect
import os
import signal
import sys
from datetime import timedelta
from typing import Any

from labkit import durable
from labkit.crashpoints import CrashPoints
from labkit.durable import ToolEffect
from labkit.errors import LabkitError

RUN, TTL = "r", timedelta(seconds=30)
ENDS = {"SUCCEEDED": 0, "WAITING": 4}  # all others: 2
FAULT = os.environ.get("FAULT", "")
ROUNDS = 5


class Boundaries:
    """Counts where this process comes to, and dies where it was asked to."""

    def __init__(self) -> None:
        self._points = CrashPoints(("boundary",), os.environ.get("AGENT_CRASH_AT", ""))
        self.passed = 0

    def reach(self) -> None:
        self._points.reach("boundary", self.passed)
        self.passed += 1


class Bounded:
    """Everything that another object is, with a boundary before and after each call that awaits."""

    def __init__(self, inner: Any, boundaries: Boundaries) -> None:
        self._inner, self._boundaries = inner, boundaries

    @property
    def __class__(self) -> type:  # a tool is to be a Tool: isinstance asks this
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def bounded(*args: Any, **options: Any) -> Any:
            self._boundaries.reach()
            try:
                return await found(*args, **options)
            finally:
                self._boundaries.reach()

        return bounded


def append(path: str, line: str) -> None:
    with open(path, "ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def read(path: str) -> list[str]:
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def die_in(place: str) -> None:
    if place == FAULT:
        os.kill(os.getpid(), signal.SIGKILL)


class Model(durable.ModelAdapter):
    """Asks for the calls of each turn, and at the end says what became of them."""

    def __init__(self, turns: list[list[str]]) -> None:
        self._turns = turns

    async def generate(self, request: durable.ModelRequest) -> durable.ModelResponse:
        turn = len(request.turns)
        append("calls", f"model-{turn + 1}")
        die_in("in-model")
        if turn < len(self._turns):
            names = self._turns[turn]
            calls = (durable.ToolCall(f"{turn}-{n}", name) for n, name in enumerate(names))
            return durable.ModelResponse(tool_calls=tuple(calls))
        seen = [item.content for item in request.context_items]
        outcomes = [outcome.result or outcome.code or "" for outcome in request.tool_outcomes]
        return durable.ModelResponse(", ".join(seen + outcomes))


class Notes(durable.ContextProvider):
    async def provide(self, request: durable.ContextRequest) -> list[durable.ContextItem]:
        append("calls", "context")
        return [durable.ContextItem("1", "two stops", "notes")]


async def look_up(request: durable.ToolRequest) -> str:
    append("calls", request.idempotency_key)
    return "pump B"


async def book(request: durable.ToolRequest) -> str:
    append("calls", request.idempotency_key)
    return "booked"


async def send(request: durable.ToolRequest) -> str:
    """The effect that nobody may repeat. It leaves by one call, as a request by one packet."""
    if FAULT == "unsent":
        raise ConnectionError("no connection")
    append("witness", f"{request.idempotency_key} {request.attempt_id}")
    if gate := os.environ.pop("HOLD", ""):
        with open(gate, "rb") as held:
            held.read()
    die_in("in-tool")
    if FAULT in ("sent", "lost"):
        raise ConnectionError("the answer is lost")
    return "sent"


def definition(boundaries: Boundaries) -> durable.AgentDefinition:
    tools = {
        "look_up": (ToolEffect.READ_ONLY, look_up),
        "book": (ToolEffect.IDEMPOTENT, book),
        "send": (ToolEffect.NON_IDEMPOTENT, send),
    }
    is_long = os.environ.get("AGENT") == "long"
    turns = [["look_up", "book"], ["send", "send"]] if is_long else [["send"]]
    used = [name for name in tools if any(name in turn for turn in turns)]
    return durable.AgentDefinition.for_adapter(
        definition_id="mail",
        version="1",
        instructions="Tell them.",
        model_adapter=Bounded(Model(turns), boundaries),
        context_provider=Bounded(Notes(), boundaries) if is_long else None,
        tools=[
            Bounded(durable.DeterministicTool(name, tools[name][0], tools[name][1]), boundaries)
            for name in used
        ],
    )


class Application:
    def __init__(self, boundaries: Boundaries) -> None:
        # A clock that stands still until this process sets it: no lease ends by chance.
        self._clock = durable.FakeClock()
        codec = durable.PlaintextPayloadCodec()
        store = durable.SQLiteRunStore("runs.db", codec, self._clock)
        registry = durable.DefinitionRegistry()
        registry.register(definition(boundaries))
        self._runner = durable.Runner(
            registry=registry, store=Bounded(store, boundaries), owner="app", lease_ttl=TTL
        )

    async def go(self, answer: str = "") -> str:
        """To where the run cannot go further without somebody. Gives its status."""
        found = await self._create()
        if found.status == "CREATED":
            return await self._answered(await self._runner.start_run(RUN), answer)
        if found.status.is_terminal:
            return found.status
        run = await self._runner.resume_run(RUN)
        if found.status == "WAITING" and run.version != found.version:
            raise SystemExit("a run that waits for the application was advanced without it")
        return await self._answered(run, answer, is_news=found.status != "WAITING")

    async def cancel(self) -> str:
        found = await self._create()
        if found.status in ("CREATED", "RUNNING"):
            return await self._answered(await self._runner.cancel_run(RUN))
        return await self._answered(found, is_news=False)

    async def leave(self) -> str:
        await self._create()
        return (await self._runner.start_run(RUN)).status

    async def _create(self) -> durable.RunRecord:
        """The same id and request each time: the second process gets what the first has stored."""
        run = await self._runner.create_run("mail", "1", "Two stops.", run_id=RUN)
        # Nobody waits for the lease of a killed process: this one starts when it has ended.
        self._clock.set(max(filter(None, (run.updated_at, run.lease_expires_at))))
        return run

    async def _answered(
        self, run: durable.RunRecord, answer: str = "", is_news: bool = True
    ) -> str:
        for _ in range(ROUNDS):
            if run.status != "WAITING":
                break
            if is_news:
                append("told", f"{run.status} {run.waiting_reason} {run.waiting_step_id}")
            resolution, is_news = self._resolution(run.waiting_step_id, answer), True
            run = await self._runner.resolve_run(RUN, resolution, expected_version=run.version)
        return run.status

    def _resolution(self, step_id: str | None, answer: str) -> durable.RunResolution:
        """Only the application can look whether the message has gone out."""
        sent = f"{RUN}:{step_id}" in {line.split()[0] for line in read("witness")}
        at = {"waiting_step_id": step_id, "actor": "app"}
        if answer == "REJECT_STEP":
            return durable.RunResolution.reject_step("NOT_SENT", "They do not want mail.", **at)
        if answer:
            return durable.RunResolution(durable.ResolutionAction(answer), **at)
        if sent:
            return durable.RunResolution.confirm_step("sent", **at)
        return durable.RunResolution.retry_step(**at)


def leave_behind() -> int:
    """Exits 0 if the run was left as it was to be left."""
    if FAULT in ("sent", "unsent"):
        return 0 if asyncio.run(Application(Boundaries()).leave()) == "WAITING" else 1
    if child := os.fork():
        return 0 if os.waitpid(child, 0)[1] == signal.SIGKILL else 1
    asyncio.run(Application(Boundaries()).leave())
    return os._exit(1)


def main(command: str, *words: str) -> int:
    global FAULT
    if command == "leave":
        (FAULT,) = words
        return leave_behind()
    boundaries = Boundaries()
    try:
        application = Application(boundaries)
        status = asyncio.run(getattr(application, command)(*words))
    except LabkitError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    append("passed", str(boundaries.passed))
    return ENDS.get(status, 2)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

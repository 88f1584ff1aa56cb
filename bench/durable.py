"""What the durable run costs: its commits, its time beside a loop of plain sqlite3 that stores the
same rows, and what 100,000 finished runs in the file change about it.

One run is model, tool, model. The tool's handler is a coroutine function: one that is not would run
in a thread, and the figure would be about threads.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.contenders import program, run
from bench.rows import Floor, commits_of, plant, rows_of
from labkit.durable import (
    AgentDefinition,
    DefinitionRegistry,
    DeterministicModelAdapter,
    DeterministicTool,
    ModelAdapter,
    ModelResponse,
    PlaintextPayloadCodec,
    Runner,
    RunStatus,
    SQLiteRunStore,
    ToolCall,
    ToolRequest,
)
from labkit.durable.stores.schema import schema

__all__ = ["count_commits", "time_crowd", "time_find", "time_runs"]

DEFINITION, QUESTION = ("bench", "1"), "Where is my order 4711?"
MORE = 10  # runs by which two traced processes differ
STRACE = ("strace", "-f", "-y", "--seccomp-bpf", "-e", "trace=fsync,fdatasync")
FEW = 100  # finished runs, as many as a page of a list shows
FILTERS: dict[str, dict[str, Any]] = {
    "all": {},
    "SUCCEEDED": {"status": RunStatus.SUCCEEDED},
    "FAILED": {"status": RunStatus.FAILED},
    "bench": {"definition_id": "bench"},
    "other": {"definition_id": "other"},
    "bench FAILED": {"definition_id": "bench", "status": RunStatus.FAILED},
    "expired": {"lease": "expired"},
    "bench expired": {"definition_id": "bench", "lease": "expired"},
}


def answers() -> tuple[ModelResponse, ...]:
    call = ToolCall("call-1", "look_up", '{"order": "4711"}')
    return ModelResponse(tool_calls=(call,)), ModelResponse("It is on its way.")


async def look_up(request: ToolRequest) -> str:
    return "sent on Monday"


def open_runner(
    path: str | Path, adapter: ModelAdapter | None = None
) -> tuple[SQLiteRunStore, Runner]:
    registry = DefinitionRegistry()
    registry.register(
        AgentDefinition.for_adapter(
            definition_id=DEFINITION[0],
            version=DEFINITION[1],
            instructions="Answer in one sentence, and look up what you do not know.",
            tools=(DeterministicTool("look_up", handler=look_up),),
            model_adapter=adapter or DeterministicModelAdapter(answers()),
        )
    )
    store = SQLiteRunStore(path, payload_codec=PlaintextPayloadCodec())
    return store, Runner(registry=registry, store=store)


async def run_once(runner: Runner) -> str:
    """The id of a run, from its creation to its end. Raises RuntimeError unless it SUCCEEDED."""
    created = await runner.create_run(*DEFINITION, QUESTION)
    return require_success((await runner.start_run(created.run_id)).status, created.run_id)


def require_success(status: RunStatus, run_id: str) -> str:
    if status is not RunStatus.SUCCEEDED:
        raise RuntimeError(f"run {run_id} is {status}, and a figure of it would mean nothing")
    return run_id


async def seconds(work: Callable[..., Awaitable[object]], *of: Any, **named: Any) -> float:
    began = time.perf_counter()
    await work(*of, **named)
    return time.perf_counter() - began


# --- commits


def count_commits(folder: Path) -> tuple[float, str]:
    """Syncs of the -wal for each run, by strace, and what else was synced.

    Two processes differ by ten runs: what a start, an end and their checkpoints sync is in both.
    A lease of 30 s is not renewed meanwhile.
    """
    few, many = (_synced(folder / f"{runs}-runs", runs) for runs in (1, 1 + MORE))
    more = [sum(name.endswith("-wal") for name in names) for names in (few, many)]
    others = (len(many) - more[1]) - (len(few) - more[0])
    return (more[1] - more[0]) / MORE, f"{others} other syncs in {MORE} runs"


def _synced(folder: Path, runs: int) -> list[str]:
    """The file of each sync of a process that makes so many runs in a new file."""
    folder.mkdir()
    trace = folder / "trace"
    run_program(folder, runs, before=[*STRACE, "-o", str(trace)])
    return re.findall(r"\bf(?:data)?sync\(\d+<([^>]*)>", trace.read_text("utf-8"))


def run_program(
    folder: Path, runs: int, *, crash: int | None = None, before: list[str] | None = None
) -> Path:
    """The file in which a process has made so many runs; run `crash` is left by a SIGKILL."""
    env = {"LAST": str(runs - 1), "MARKS": str(folder / "marks")}
    env |= {} if crash is None else {"CRASH": str(crash)}
    argv = [*(before or []), sys.executable, program("durable_runs")]
    run(argv, folder, env, 0 if crash is None else -signal.SIGKILL)
    return folder / "runs.db"


# --- one run beside its floor


def time_runs(folder: Path, runs: int) -> tuple[list[float], list[float], str]:
    """Seconds of each of so many runs and, in turns, of as many of the floor; bytes of the -wal.

    Raises RuntimeError if the two do not write as many.
    """
    return asyncio.run(_time_runs(folder, runs))


async def _time_runs(folder: Path, runs: int) -> tuple[list[float], list[float], str]:
    ours, bare = folder / "ours.db", folder / "floor.db"
    with ExitStack() as stack:
        store, runner = open_runner(ours)
        stack.enter_context(store)
        before = wal_size(ours)
        run_id = await run_once(runner)
        written = wal_size(ours) - before
        floor = Floor(bare, schema()[2], commits_of(rows_of(ours, run_id)))
        stack.callback(floor.close)
        before = wal_size(bare)
        floor.run()
        if written != (same := wal_size(bare) - before):
            raise RuntimeError(f"a run writes {written} bytes to its -wal, its floor {same}")

        async def run_floor() -> None:
            floor.run()

        pairs = [(await seconds(run_once, runner), await seconds(run_floor)) for _ in range(runs)]
    took, least = map(list, zip(*pairs, strict=True))
    return took, least, f"{written:,} bytes of -wal each"


def wal_size(path: Path) -> int:
    return os.path.getsize(f"{path}-wal")


# --- among many runs


class Crowd(NamedTuple):
    """A file of finished runs, open, and where a run can be had that a SIGKILL left behind."""

    path: Path
    model: Path
    killed: str
    store: SQLiteRunStore
    runner: Runner

    def leave_one(self) -> str:
        """The id of one more RUNNING run whose lease has expired."""
        return plant(self.path, self.model, self.killed)[0]


def make_crowd(folder: Path, finished: int) -> Crowd:
    """Its rows are copies of those of a real run and of a real killed one."""
    folder.mkdir()
    model, path = run_program(folder, 2, crash=1), folder / "crowd.db"
    with closing(sqlite3.connect(model)) as db:
        done, killed = (
            db.execute("SELECT run_id FROM runs WHERE status = ?", (status,)).fetchone()[0]
            for status in ("SUCCEEDED", "RUNNING")
        )
    open_runner(path)[0].close()
    plant(path, model, done, finished, fast=True)
    os.sync()  # else the first commits would pay for it
    return Crowd(path, model, killed, *open_runner(path))


def time_crowd(folder: Path, finished: int, per_round: int, rounds: int) -> dict[str, float]:
    """For start, resume and each list: the time among so many runs, over that among 100."""
    return asyncio.run(_time_crowd(folder, finished, per_round, rounds))


async def _time_crowd(folder: Path, finished: int, per_round: int, rounds: int) -> dict[str, float]:
    with ExitStack() as stack:
        few, many = make_crowd(folder / "few", FEW), make_crowd(folder / "many", finished)
        stack.enter_context(few.store)
        stack.enter_context(many.store)
        took: dict[str, list[tuple[float, float]]] = {}
        for _ in range(per_round * rounds):
            ours, others = await _each(few), await _each(many)
            for name in ours:
                took.setdefault(name, []).append((others[name], ours[name]))
    return {name: ratio(pairs) for name, pairs in took.items()}


def ratio(pairs: list[tuple[float, float]]) -> float:
    ours, others = zip(*pairs, strict=True)
    return median(ours) / median(others)


async def _each(crowd: Crowd) -> dict[str, float]:
    """Seconds of one start, one resume, and the first page by each filter. A page is asked for
    twice and timed once, so that no list pays for what the one before pushed out of the cache."""
    runner, left = crowd.runner, crowd.leave_one()

    async def resume() -> None:
        require_success((await runner.resume_run(left)).status, left)

    took = {"start": await seconds(run_once, runner), "resume": await seconds(resume)}
    for name, wanted in FILTERS.items():
        await runner.list_runs(**wanted)
        took[name] = await seconds(runner.list_runs, **wanted)
    return took


def time_find(folder: Path, finished: int, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds until the one run that a killed process left is found, and those of `recover_all`,
    which finds it and brings it to its end."""
    return asyncio.run(_time_find(folder, finished, rounds))


async def _time_find(folder: Path, finished: int, rounds: int) -> tuple[list[float], list[float]]:
    crowd, found, whole = make_crowd(folder / "many", finished), [], []
    with crowd.store:
        for _ in range(rounds):
            left = crowd.leave_one()
            found.append(await seconds(_find, crowd.runner, left))
            whole.append(await seconds(_recover, crowd.runner, left))
    return found, whole


async def _find(runner: Runner, left: str) -> None:
    if [each.run_id for each in await runner.list_runs(lease="expired")] != [left]:
        raise RuntimeError(f"not found, or not alone: run {left}")


async def _recover(runner: Runner, left: str) -> None:
    [recovered] = await runner.recover_all()
    if not recovered.run:
        raise RuntimeError(f"run {left} was not recovered: {recovered.error}")
    require_success(recovered.run.status, left)

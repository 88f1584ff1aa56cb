"""The same in real processes: SIGKILL in the middle of a call, and another process after it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit import guard
from labkit.durable import (
    FakeClock,
    PlaintextPayloadCodec,
    RunResolution,
    RunStatus,
    SQLiteRunStore,
    ToolEffect,
)
from tests.durable.kit import DONE, SEND, World, in_loop

ROOT = Path(__file__).parents[2]
START_S = FakeClock().now().timestamp()
WAITS = "NON_IDEMPOTENT"


class Lab:
    """Processes over one folder. The clock of each starts where the test says."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.started = folder, list[guard.Guarded]()
        self.now_s = START_S

    def start(self, place: str, effect: str) -> guard.Guarded:
        argv = [sys.executable, "-m", "tests.durable.killed_program"]
        environ = os.environ | {"LABKIT_CLOCK": f"{self.now_s}+0.001"}
        process = guard.start(
            [*argv, str(self.folder), place, effect],
            cwd=ROOT,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def kill_at(self, place: str, effect: str) -> None:
        """Waits until the process is in that call, and kills it there."""
        process = self.start(place, effect)
        assert process.stdout.readline() == b"here\n", process.communicate()
        assert process.kill() == -signal.SIGKILL
        self.to_expiry()

    def run(self, place: str, effect: str) -> tuple[int, str]:
        """To its end: its status, negative after a signal, and what it printed."""
        process = self.start(place, effect)
        out, err = process.communicate(timeout=30)
        assert not err
        return process.wait(), out.decode().strip()

    def to_expiry(self) -> None:
        """The next process starts at the moment at which the stored lease ends."""
        with SQLiteRunStore(self.folder / "runs.db", PlaintextPayloadCodec()) as store:
            run = asyncio.run(store.get_run("r"))
        assert run.status is RunStatus.RUNNING
        assert run.lease_expires_at
        self.now_s = run.lease_expires_at.timestamp()

    @property
    def lines(self) -> list[str]:
        return (self.folder / "witness").read_text("utf-8").splitlines()

    def count(self, word: str) -> int:
        return sum(line.split()[0] == word for line in self.lines)


@pytest.fixture
def lab(quick: Path) -> Iterator[Lab]:
    made = Lab(quick)
    yield made
    for process in made.started:
        process.kill()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("place", "effect", "calls"),
    [
        ("context", WAITS, [2, 2, 1]),
        ("model-1", WAITS, [1, 3, 1]),
        ("send", "READ_ONLY", [1, 2, 2]),
        ("send", "IDEMPOTENT", [1, 2, 2]),
        ("model-2", WAITS, [1, 3, 1]),
    ],
)
def test_killed_in_a_call_it_is_called_again_and_no_other(
    lab: Lab, place: str, effect: str, calls: list[int]
) -> None:
    lab.kill_at(place, effect)
    assert lab.run("", effect) == (0, f"SUCCEEDED None {DONE}")
    assert [lab.count(word) for word in ("context", "model", "send")] == calls
    keys = {line.split()[1] for line in lab.lines if line.startswith("send")}
    assert keys == {f"r:{SEND}"}


def test_killed_in_a_call_that_may_not_be_repeated_it_waits(lab: Lab) -> None:
    """Two processes more, and a third one that confirms: the mail has gone out once."""
    lab.kill_at("send", WAITS)
    for _ in range(2):
        assert lab.run("", WAITS) == (0, f"WAITING {SEND} None")
    assert lab.count("send") == 1
    asyncio.run(_confirm(lab))
    assert (lab.count("send"), lab.count("model")) == (1, 2)


async def _confirm(lab: Lab) -> None:
    world = World(lab.folder, "sqlite")
    runner = world.runner(world.agent(context_provider=None))
    waiting = await runner.get_run("r")
    sent = RunResolution.confirm_step("sent", waiting_step_id=SEND)
    ended = await runner.resolve_run("r", sent, waiting.version)
    world.close()
    assert ended.status is RunStatus.SUCCEEDED


def test_a_living_process_is_not_overtaken(lab: Lab) -> None:
    process = lab.start("send", "READ_ONLY")
    assert process.stdout.readline() == b"here\n"
    second = lab.start("", "READ_ONLY")
    _, err = second.communicate(timeout=30)
    assert b"LeaseNotHeldError" in err
    assert (second.wait() != 0, lab.count("send")) == (True, 1)
    assert process.poll() is None


def test_a_step_that_kills_its_process_each_time_ends(lab: Lab) -> None:
    """Three processes die of it; the fourth ends the run and calls nothing."""
    effect = ToolEffect.IDEMPOTENT.value
    for _ in range(3):
        status, _ = lab.run("itself", effect)
        assert status == -signal.SIGKILL
        lab.to_expiry()
    assert lab.count("send") == 3
    asyncio.run(_end(lab))
    assert (lab.count("send"), lab.count("model")) == (3, 1)


async def _end(lab: Lab) -> None:
    world = World(lab.folder, "sqlite")
    await world.expire()
    ended = await world.runner(world.agent(context_provider=None)).resume_run("r")
    attempts = (await world.inspect()).attempts
    world.close()
    assert (ended.status, ended.error_code) == (RunStatus.FAILED, "effect_unconfirmed")
    assert [attempt.number for attempt in attempts if attempt.step_id == SEND] == [1, 2, 3]


@in_loop
async def test_two_processes_answer_one_question(on_disk: World) -> None:
    """Another connection resolves what this one has asked; this one then sees the end."""
    waiting = await on_disk.wait()
    sent = RunResolution.confirm_step("sent", waiting_step_id=SEND)
    await on_disk.runner(on_disk.agent()).resolve_run("r", sent, waiting.version)
    assert (await on_disk.store.get_run("r")).status is RunStatus.SUCCEEDED

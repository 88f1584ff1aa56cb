"""SIGKILL around every call and every verb of the store, before every statement and system call,
once and twice, of start, resume, each resolution and cancel: a sample in every test run, all in the
proof.

What must follow a kill is computed from what the store held at it. Effects are counted by a
witness.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from labkit.chaos import syscalls
from labkit.chaos.command import main as chaos
from labkit.chaos.examples.durable import (
    BOUNDARY,
    NAMES,
    Overtaken,
    Stored,
    boundary_pairs,
    durable,
    foresee,
    foreseen,
    look,
    must_wait,
    takeovers,
    torn,
    transactions,
)
from labkit.chaos.kill import Injury, sweep, try_injuries
from labkit.chaos.points import FastWorkshop, Point, points, statements
from labkit.chaos.scenario import Workshop
from labkit.chaos.verdict import BROKEN, HELD, UNKNOWN, Report
from labkit.errors import UsageError
from tests.conftest import new_root
from tests.restart.kit import needs_strace

EACH = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def root(compiled: Path) -> Iterator[Path]:
    with new_root(compiled) as path:
        yield path


@pytest.fixture(scope="module")
def start(root: Path) -> Iterator[Workshop]:
    with FastWorkshop(durable("start"), root) as workshop:
        yield workshop


@pytest.fixture(scope="module")
def sending(start: Workshop) -> tuple[int, int]:
    """The boundaries around the call that sends: at the first nothing has gone out."""
    for n in range(100):
        with start.open() as trial:
            Point(f"{BOUNDARY}:{n}").strike(trial)
            if trial.look().effects:
                return n - 1, n
    raise AssertionError("nothing is ever sent")


def strike_all(workshop: Workshop, plan: Sequence[Injury]) -> Report:
    """Each alone. The number of kills is printed: `pytest -rP` shows it."""
    report = sweep(workshop, [[injury] for injury in plan])
    print(f"{len(plan)} kills planned: {report.summary()}")
    return report


def require_held(report: Report, at_least: int) -> None:
    assert report.exit_code == 0, str(report)
    assert report.delivered >= at_least


def require_nearly(report: Report, at_least: int) -> None:
    """As above, but one kill in a hundred may have struck at another call: a handler's thread opens
    files at the same time as the loop does, so that a call's number can be its neighbour's."""
    assert report.count("broken") == 0, str(report)
    assert len(report.verdicts) == report.planned
    assert report.count("held") >= max(at_least, report.planned - max(1, report.planned // 100))


# A sample.


def test_a_sample_around_calls_and_verbs(start: Workshop, sending: tuple[int, int]) -> None:
    """Before the message goes out, after it, and around the transactions beside."""
    first, last = sending
    require_held(
        strike_all(start, [Point(f"{BOUNDARY}:{n}") for n in range(first - 1, last + 3)]), 5
    )


def test_a_sample_between_transactions(root: Path) -> None:
    with FastWorkshop(durable("lost"), root) as workshop:
        plan = transactions(workshop)
        assert len(plan) >= 10
        require_held(strike_all(workshop, plan[4::2]), 4)


@needs_strace
def test_a_sample_of_system_calls(root: Path) -> None:
    with FastWorkshop(durable("confirm"), root) as workshop:
        plan = syscalls.plan(workshop)
        require_nearly(strike_all(workshop, plan[:: max(1, len(plan) // 3)]), 2)


def test_a_sample_of_second_kills(root: Path) -> None:
    with FastWorkshop(durable("confirm"), root) as workshop:
        report = sweep(workshop, boundary_pairs(workshop, 3, seed=3))
    require_held(report, 3)


# What the sweep would not see if it were blind.


def strike_one(workshop: Workshop, ordinal: int) -> tuple[list[dict[str, object]], Stored]:
    with workshop.open() as trial:
        Point(f"{BOUNDARY}:{ordinal}").strike(trial)
        foresee(trial.folder)
        return foreseen(trial.folder), look(trial.folder)


def test_what_is_foreseen_follows_from_what_is_stored(
    start: Workshop, sending: tuple[int, int]
) -> None:
    ([unsent], at_call), ([sent], _) = (strike_one(start, n) for n in sending)
    ([first], created), ([asked], _) = (strike_one(start, n) for n in (3, 9))
    assert (unsent["waits"], unsent["sent"]) == (True, 0)
    assert (sent["waits"], sent["sent"]) == (True, 1)
    assert (first["waits"], first["window"], created.status) == (False, "", "CREATED")
    assert (asked["waits"], asked["window"]) == (False, "model-1")
    assert must_wait(at_call)
    assert at_call.cut_off is not None
    assert at_call.cut_off.attempts == [("RUNNING", None)]


def test_what_no_kill_may_leave(start: Workshop, sending: tuple[int, int]) -> None:
    _, stored = strike_one(start, sending[0])
    assert list(torn(stored)) == []
    model, tool = stored.steps
    apart = stored._replace(steps=[model, tool._replace(attempts=[("FAILED", "UNCERTAIN")])])
    assert "model-1.tool-1 is UNCERTAIN, and the run does not wait" in list(torn(apart))
    answered = apart._replace(resolutions=[("CONFIRM_STEP", stored.version - 1)])
    assert "CONFIRM_STEP is neither stored nor is the run still waiting" in list(torn(answered))
    early = stored._replace(steps=[model, tool._replace(status="SUCCEEDED")])
    assert "model-1.tool-1 is SUCCEEDED, its checkpoint False" in list(torn(early))
    silent = stored._replace(events={**stored.events, "step_started": 1})
    assert list(torn(silent)) == ["the journal has 1 attempts, the tables have 2"]


@pytest.mark.parametrize(
    ("name", "line", "why"),
    [
        ("witness", "r:model-1.tool-1 again", "1 to send, sent: r:model-1.tool-1 2 times"),
        ("calls", "model-1", "model-1 is called 2 times, 1 to 1 are due"),
        ("told", "WAITING UNCERTAIN_NON_IDEMPOTENT x", "nobody killed it, and it waits 1"),
        ("told", "WAITING DEFINITION_UNAVAILABLE x", "it waits for something else"),
        ("foreseen", {"waits": True}, "after kill 1 it waits 0 times, not 1"),
        ("foreseen", {"torn": ["half"]}, "kill 1 leaves: half"),
    ],
)
def test_what_is_not_as_it_must_be_is_seen(
    start: Workshop, name: str, line: str | dict[str, object], why: str
) -> None:
    """A trial in which nothing is wrong but for one line that is added afterwards."""
    text = line if isinstance(line, str) else note(**line)
    with start.open() as trial:
        assert trial.call(trial.scenario.run).code == 0
        with (trial.folder / name).open("a", encoding="utf-8") as file:
            file.write(text + "\n")
        outcome, reason = start.judge(trial)
    assert (outcome, why in reason) == (BROKEN, True), reason


def note(**changed: object) -> str:
    usual = {"waits": False, "window": "", "told": 0, "sent": 1, "torn": []}
    return json.dumps({**usual, **changed})


def test_a_run_that_is_lost_is_broken(start: Workshop) -> None:
    with start.open() as trial:
        outcome, reason = start.judge(trial)
    assert outcome == BROKEN
    assert "the run is lost with None, not SUCCEEDED" in reason
    assert "1 to send, sent: none" in reason


def test_a_kill_that_is_not_delivered_shows_nothing(start: Workshop) -> None:
    report = strike_all(start, [Point(f"{BOUNDARY}:999")])
    assert (report.delivered, report.count(UNKNOWN), report.exit_code) == (0, 1, 2)


def test_a_call_that_kills_its_process_each_time_has_an_end(start: Workshop) -> None:
    """Attempts are counted in the store: no restart begins to count anew."""
    with start.open() as trial:
        codes = [trial.call(trial.scenario.run, FAULT="in-model").code for _ in range(4)]
        stored = look(trial.folder)
        calls = (trial.folder / "calls").read_text("utf-8").splitlines()
    assert codes == [-signal.SIGKILL] * 3 + [2]
    assert stored.status == "FAILED"
    assert calls == ["model-1"] * 3
    assert list(torn(stored)) == []


# Who sleeps through the end of its lease.


def test_a_late_writer_is_refused_once_another_has_the_lease(
    start: Workshop, sending: tuple[int, int]
) -> None:
    """Taken over by a process that ends the run, and by one that is killed as soon as it has the
    lease: then only the epoch tells the late writer from the owner."""
    ordinal = with_the_lease(start, sending[1])
    report = sweep(start, [[Overtaken()], [Overtaken(ordinal)]])
    assert report.delivered == report.count(HELD) == 2, str(report)


def with_the_lease(workshop: Workshop, sent: int) -> int:
    """The first boundary at which another process has the lease, and has changed nothing else."""
    with workshop.open() as trial:
        Point(f"{BOUNDARY}:{sent}").strike(trial)
        before = look(trial.folder)
        for n in range(100):
            Point(f"{BOUNDARY}:{n}").strike(trial)
            if (after := look(trial.folder)).epoch > before.epoch:
                assert (after.version, after.steps) == (before.version, before.steps)
                return n
    raise AssertionError("nobody takes the lease")


def test_where_nobody_takes_over_the_sleeper_goes_on(start: Workshop) -> None:
    verdict = try_injuries(start, [Overtaken(0)])
    assert (verdict.outcome, verdict.delivered) == (HELD, True), verdict


@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["start", "long"])
def test_every_takeover(name: str, root: Path) -> None:
    with FastWorkshop(durable(name), root) as workshop:
        report = sweep(workshop, [[each] for each in takeovers(workshop)])
    require_held(report, 20)


# All of it.


@EACH
@pytest.mark.proof
@pytest.mark.timeout(600)
def test_every_boundary(name: str, root: Path) -> None:
    with FastWorkshop(durable(name), root) as workshop:
        require_held(strike_all(workshop, points(workshop)), 6)


@EACH
@pytest.mark.proof
@pytest.mark.timeout(600)
def test_every_statement(name: str, root: Path) -> None:
    with FastWorkshop(durable(name), root) as workshop:
        require_held(strike_all(workshop, statements(workshop)), 30)


@EACH
@needs_strace
@pytest.mark.proof
@pytest.mark.timeout(600)
def test_every_system_call(name: str, root: Path) -> None:
    with FastWorkshop(durable(name), root) as workshop:
        require_nearly(strike_all(workshop, syscalls.plan(workshop)), 10)


@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["start", "long", "lost", "resume sent", "retry", "cancel sent"])
def test_two_hundred_second_kills(name: str, root: Path) -> None:
    with FastWorkshop(durable(name), root) as workshop:
        pairs = boundary_pairs(workshop, 200, seed=1)
        report = sweep(workshop, pairs)
    assert len(pairs) == 200
    require_held(report, 200)


@needs_strace
@pytest.mark.proof
@pytest.mark.timeout(600)
def test_two_hundred_second_kills_before_system_calls(root: Path) -> None:
    with FastWorkshop(durable("start"), root) as workshop:
        plan = syscalls.twice(workshop, 200, seed=1)
        report = sweep(workshop, plan)
    require_nearly(report, 190)


# The same, from the command line.


def test_the_command_tries_a_kill_of_the_durable_run_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert chaos(["replay", "boundary:1", "--how", "points", "--subject", "durable-fail"]) == 0
    said = capsys.readouterr().out
    assert "held: points boundary:1: all held" in said
    shutil.rmtree(said.split()[-1])


@pytest.mark.proof
def test_the_command_kills_the_durable_run_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert chaos(["sweep", "--subject", "durable-fail", "--how", "points", "--every", "4"]) == 0
    assert "delivered" in capsys.readouterr().out
    with pytest.raises(UsageError, match="the witness of the durable run would lose its lines"):
        chaos(["powerloss", "--subject", "durable"])

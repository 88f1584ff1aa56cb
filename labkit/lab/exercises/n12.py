"""Who may continue: which writes to a run are refused, and the guard that refuses them.

Each case plays what happened to a run in a real store, whose clock is set by hand, and then one
writer writes. What the store says to that write is the truth. The rule of exercise 2 is asked about
the same rows, and at last it guards the writes of real processes, of which one is paused.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from labkit import durable
from labkit.chaos.mutants import Mutant
from labkit.durable.records import Change, Claim, Hold
from labkit.errors import LabkitError, ensure
from labkit.lab.checks import Desk, Judgement, broken, held, not_judged
from labkit.lab.evidence import journal
from labkit.lab.folder import FIRST_START, Folder
from labkit.lab.pausing import pause_in
from labkit.lab.process import Result
from labkit.lab.runs import build_package
from labkit.lab.tables import list_rows

__all__ = ["ex1", "ex2"]

TTL = timedelta(seconds=30)
START = datetime.fromtimestamp(FIRST_START, UTC)
STORED, LEASE, VERSION = "stored", "LeaseNotHeldError", "StaleRunVersionError"
CLOSED = durable.RunStatus.SUCCEEDED
NEIGHBOUR = "another run"
EXIT_OF_LEASE = 3


class Stage:
    """One run of a real store, and a clock that goes where it is set."""

    def __init__(self, store: durable.SQLiteRunStore, run_id: str) -> None:
        self.store, self.run_id, self.clock = store, run_id, durable.FakeClock(START)
        store.clock = self.clock

    def at(self, second: int) -> None:
        self.clock.set(START + timedelta(seconds=second))

    async def take(self, owner: str) -> Hold:
        """The lease, under a new epoch, and with the first one the run is RUNNING."""
        run = await self.store.get_run(self.run_id)
        change = Change(durable.RunStatus.RUNNING) if run.status == "CREATED" else None
        claim = Claim(self.run_id, owner, TTL, run.version)
        run = (await self.store.acquire_lease(claim, change)).run
        return Hold(self.run_id, run.lease_epoch, run.version)

    async def move(self, hold: Hold, to: durable.RunStatus) -> None:
        await self.store.change_run(hold, Change(to, output="done" if to is CLOSED else None))


class Writer(NamedTuple):
    """Who writes, and what the write names."""

    name: str
    hold: Hold


class Case(NamedTuple):
    """`play` leads to the moment of the write; `why` says what decides it there."""

    play: Callable[[Stage], Awaitable[Writer]]
    why: str


class Seen(NamedTuple):
    """What the store said to the write, with the run as it stood and what the write named."""

    verdict: str
    run: dict[str, Any]
    given: dict[str, Any]

    @property
    def rows(self) -> list[str]:
        run, given = self.run, self.given
        owner = run["lease_owner"] or "nobody"
        until = f" until {_time(run['lease_expires_at'])}" if run["lease_owner"] else ""
        return [
            f"the run    version {run['version']}  epoch {run['lease_epoch']}  {owner}{until}",
            f"the write  version {given['version']}  epoch {given['epoch']}  {given['owner']} "
            f"at {_time(given['now'])}",
        ]


async def _in_time(stage: Stage) -> Writer:
    hold = await stage.take("ann")
    stage.at(29)
    return Writer("ann", hold)


async def _at_the_end(stage: Stage) -> Writer:
    hold = await stage.take("ann")
    stage.at(30)
    return Writer("ann", hold)


async def _late(stage: Stage) -> Writer:
    hold = await stage.take("ann")
    stage.at(35)
    return Writer("ann", hold)


async def _renewed(stage: Stage) -> Writer:
    hold = await stage.take("ann")
    stage.at(20)
    await stage.store.renew_lease(hold, TTL)
    stage.at(49)
    return Writer("ann", hold)


async def _taken_over(stage: Stage) -> Writer:
    hold = await stage.take("ann")
    stage.at(30)
    await stage.take("bob")
    stage.at(40)
    return Writer("ann", hold)


async def _took_over(stage: Stage) -> Writer:
    await stage.take("ann")
    stage.at(30)
    hold = await stage.take("bob")
    stage.at(40)
    return Writer("bob", hold)


async def _same_name(stage: Stage) -> Writer:
    hold = await stage.take("ann")
    stage.at(30)
    await stage.take("ann")
    stage.at(40)
    return Writer("ann", hold)


async def _ended(stage: Stage) -> Writer:
    hold = await stage.take("ann")
    stage.at(30)
    await stage.move(await stage.take("bob"), CLOSED)
    stage.at(40)
    return Writer("ann", hold)


async def _released(stage: Stage) -> Writer:
    hold = await stage.take("ann")
    stage.at(10)
    await stage.store.release_lease(hold)
    stage.at(20)
    return Writer("ann", hold)


async def _moved_on(stage: Stage) -> Writer:
    claim = Claim(stage.run_id, "ann", TTL, 1)
    run = (await stage.store.acquire_lease(claim)).run
    hold = Hold(stage.run_id, run.lease_epoch, run.version)
    await stage.move(hold, durable.RunStatus.RUNNING)
    stage.at(10)
    return Writer("ann", hold)


IN_TIME = Case(_in_time, "The lease is ann's until 00:00:30, and 00:00:29 is before that.")
AT_THE_END = Case(
    _at_the_end,
    "At 00:00:30 the lease is over, though nobody has come: else two could write in that second.",
)
LATE = Case(_late, "The lease ended at 00:00:30. Another may enter at any moment since then.")
RENEWED = Case(_renewed, "Renewed at 00:00:20, the lease ends at 00:00:50.")
TAKEN_OVER = Case(
    _taken_over,
    "The lease is valid, and it is bob's: ann writes with epoch 1, and the run is at epoch 2.",
)
TOOK_OVER = Case(_took_over, "bob holds the lease, and writes with its epoch.")
SAME_NAME = Case(
    _same_name,
    "ann took the lease a second time, which made a new epoch. Whoever writes with epoch 1 is a "
    "process of before, and that it has the same name does not help it.",
)
ENDED = Case(
    _ended,
    "bob has ended the run, so its version is not the one that ann read; that is looked at first.",
)
RELEASED = Case(_released, "ann gave the lease back: its owner is NULL, it expires at 0.")
MOVED_ON = Case(
    _moved_on,
    "ann holds the lease, but the run has moved on since she read it: what she wants to write "
    "rests on a state that is no more.",
)

# Exercise 1.

RULE = "A write is stored if the run is at its version and the lease at its epoch, and is valid."
WRITES = {
    "ann, 00:00:29": IN_TIME,
    "ann, 00:00:30, nobody else came": AT_THE_END,
    "ann, 00:00:49, renewed at 00:00:20": RENEWED,
    "ann, 00:00:40, bob took over at 00:00:30": TAKEN_OVER,
    "bob, 00:00:40, he took over at 00:00:30": TOOK_OVER,
    "ann, 00:00:40, another ann took over at 00:00:30": SAME_NAME,
    "ann, 00:00:40, bob took over and ended the run": ENDED,
}
WORDS = (STORED, LEASE, VERSION)


def ex1(verdicts: Any, desk: Desk) -> Judgement:
    """`verdicts` maps each write to what the store says; a real store is asked."""
    if not isinstance(verdicts, dict) or set(verdicts) != set(WRITES):
        return not_judged(f"Keep the table as it was, a dict with its {len(WRITES)} names.")
    if any(word is ... for word in verdicts.values()):
        return not_judged('A "..." is still there. Put a word in its place, run the cell.')
    if odd := [word for word in verdicts.values() if word not in WORDS]:
        return not_judged(f"{odd[0]!r} is none of the three: {', '.join(WORDS)}.")
    every = _play(desk, list(WRITES.values()))
    for (name, word), seen in zip(_in_order(verdicts), every, strict=True):
        if word != seen.verdict:
            said = f"{name}: you say {word}, the store says {seen.verdict}."
            return broken(f"{said} {WRITES[name].why}", RULE, seen.rows)
    return held(f"A store was asked {len(every)} times, and said what you say.", RULE)


def _in_order(verdicts: dict[str, str]) -> list[tuple[str, str]]:
    return [(name, verdicts[name]) for name in WRITES]


def _play(desk: Desk, cases: Sequence[Case]) -> list[Seen]:
    """Each case in a run of its own, in one store, in a thread: this one has a loop already."""
    path = desk.fresh("store").path / "state.db"
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _play_all(path, cases)).result()


async def _play_all(path: Path, cases: Sequence[Case]) -> list[Seen]:
    model = durable.DeterministicModelAdapter(responses=("done",))
    registry = durable.DefinitionRegistry()
    registry.register(
        durable.AgentDefinition.for_adapter(
            definition_id="notice", version="1", instructions="Say it.", model_adapter=model
        )
    )
    with durable.SQLiteRunStore(path, durable.PlaintextPayloadCodec()) as store:
        runner = durable.Runner(registry, store)
        made = []
        for number, case in enumerate(cases):
            stage = Stage(store, f"pump-{number}")
            await runner.create_run("notice", "1", "The pump has stopped.", run_id=stage.run_id)
            made.append(await _write(stage, await case.play(stage)))
        return made


async def _write(stage: Stage, writer: Writer) -> Seen:
    """One write under the hold: a renewal, which asks nothing of the run but the guard."""
    run = await stage.store.summarise_run(stage.run_id)
    expires = run.lease_expires_at.timestamp() if run.lease_expires_at else 0
    row = {
        "run_id": run.run_id, "version": run.version, "lease_owner": run.lease_owner,
        "lease_epoch": run.lease_epoch, "lease_expires_at": expires,
    }  # fmt: skip
    now = stage.clock.now().timestamp()
    hold = writer.hold._asdict()
    given = {"owner": writer.name, "now": now, **hold}
    try:
        await stage.store.renew_lease(writer.hold, TTL)
    except (durable.LeaseNotHeldError, durable.StaleRunVersionError) as error:
        return Seen(type(error).__name__, row, given)
    return Seen(STORED, row, given)


def _time(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%H:%M:%S}"


# Exercise 2.

GUARDED = (
    "A write changes its run only under the epoch that holds the lease, before the lease ends, and "
    "at the version that the writer has read."
)
CASES = {
    "ann writes in time": IN_TIME,
    "ann has renewed": RENEWED,
    "bob writes, who took over": TOOK_OVER,
    "ann writes, and bob has taken over": TAKEN_OVER,
    "ann writes, and another ann has taken over": SAME_NAME,
    "ann writes five seconds after the end": LATE,
    "ann writes in the second in which the lease ends": AT_THE_END,
    "ann writes after she gave the lease back": RELEASED,
    "ann writes by a version of before": MOVED_ON,
    "ann writes, and bob has ended the run": ENDED,
}
COLUMNS = ("run_id", "version", "lease_owner", "lease_epoch", "lease_expires_at")
NAMES = ("run_id", "owner", "epoch", "version", "now")
STEPS_MAX = 100_000  # of SQLite's machine; a guard takes some twenty
# What stands in the store, and what a learner's guard is put in the place of.
HELD = """\
        run = self._find(hold.run_id, hold.version)
        if run["lease_epoch"] != hold.epoch or not self._is_leased(run, now):
"""
BY_GUARD = """\
        import os

        run, owner = self._find(hold.run_id), os.environ.get("AGENT_OWNER", "ann")
        given = (hold.run_id, owner, hold.epoch, hold.version, now.timestamp())
        if not list(self._db.rows({query!r}, *given)):
"""


def ex2(guard: Any, desk: Desk) -> Judgement:
    """`guard` is the condition of an UPDATE; it is asked about each case, then guards a store."""
    if not isinstance(guard, str):
        kind = type(guard).__name__
        return not_judged(f"This is a {kind}. Give the text of the condition.")
    for (name, case), seen in zip(CASES.items(), _play(desk, list(CASES.values())), strict=True):
        try:
            changed = _changed(guard, seen)
        except sqlite3.Error as error:
            said = str(error).rstrip(".")
            words = f"SQLite cannot read it: {said}. The columns are {', '.join(COLUMNS)}; what "
            return not_judged(f"{words}the writer gives is :{', :'.join(NAMES)}.", GUARDED)
        if fault := _fault(name, case, seen, changed):
            return broken(fault, GUARDED, seen.rows)
    return _judge_zombie(guard, desk)


def _changed(guard: str, seen: Seen) -> list[str]:
    """The runs that the write would change: the one of the case, and its neighbour."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(f"CREATE TABLE runs ({', '.join(COLUMNS)})")
        for run in (seen.run, {**seen.run, "run_id": NEIGHBOUR}):
            db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", [run[name] for name in COLUMNS])
        db.set_progress_handler(lambda: True, STEPS_MAX)  # who gets there, never ends
        return [row[0] for row in db.execute(_query(guard), seen.given)]


def _query(guard: str) -> str:
    return f"SELECT run_id FROM runs WHERE (\n{guard}\n)"


def _fault(name: str, case: Case, seen: Seen, changed: list[str]) -> str:
    is_stored = seen.run["run_id"] in changed
    if is_stored and seen.verdict != STORED:
        return f"{name}: your guard lets the write pass. {case.why}"
    if not is_stored and seen.verdict == STORED:
        return f"{name}: your guard refuses the write, and it is good. {case.why}"
    if NEIGHBOUR in changed:
        return f"{name}: the write changes {NEIGHBOUR} too. Which run does the writer mean?"
    return ""


def _judge_zombie(guard: str, desk: Desk) -> Judgement:
    """The guard in a store, and two real processes: one paused, one killed under its lease."""
    with closing(desk.fresh("zombie")) as folder:
        before, said = _wake_zombie(guard, folder)
    if _events(folder) != before or said.code != EXIT_OF_LEASE:
        return broken(f"A real ann, paused and woken: {said!r}. {said.output}", GUARDED)
    rows = [f"seq {seq}  {owner or 'nobody'}  {kind}" for seq, owner, kind in before]
    reason = (
        f"{len(CASES)} writes to a real store, and a process that was paused, lost its lease, woke "
        "up and wrote: refused, and nothing of it is stored."
    )
    return held(reason, GUARDED, [*rows, f"ann, woken: {' '.join(said.output.split())}"])


def _wake_zombie(guard: str, folder: Folder) -> tuple[list[tuple[Any, ...]], Result]:
    """The journal as the zombie finds it, and how it ends."""
    folder.unprinted = {"PYTHONPATH": _planted(guard, folder)}
    ann = folder.start("dispatch go pump", {"AGENT_HOLD": "model-1"})
    pause_in(folder.path, ann)
    place = "the failure of model-1 is stored"
    bob = folder.start("dispatch go pump", {"AGENT_OWNER": "bob", "AGENT_DIE_BEFORE": place})
    ended = bob.finish()
    ensure(ended.killed, LabkitError(f"bob was not killed ({ended!r}): {ended.output}"))
    before = _events(folder)
    ann.wake()
    return before, ann.finish()


def _planted(guard: str, folder: Folder) -> str:
    """Where a runtime is whose writes stand under this guard."""
    numbered = re.sub(r":(\w+)", lambda m: f"?{NAMES.index(m[1]) + 1}", _query(guard))
    new = BY_GUARD.format(query=numbered)
    mutant = Mutant("guard", "", file="labkit/durable/stores/sqlite.py", old=HELD, new=new)
    package = build_package(mutant, folder.path.parent)
    return os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))


def _events(folder: Folder) -> list[tuple[Any, ...]]:
    table = journal(folder).sql("SELECT seq, owner, kind FROM journal ORDER BY seq")
    return list_rows(table, ("seq", "owner", "kind"))

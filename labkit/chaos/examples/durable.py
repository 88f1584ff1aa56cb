"""The lab's durable run, as scenarios, and what must follow each kill.

What must follow is not written down for each kill: it is computed from what the store held when the
process was dead. The run waits exactly when an attempt of a NON_IDEMPOTENT tool was stored and its
checkpoint was not; otherwise it ends as the run that nobody killed, and only the call that was cut
off is made again. A runtime that waits after every kill fails as one that never waits does.

The store is read from a copy, by SQL: the system under test does not judge itself, and the process
that goes on finds the files as the killed one left them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import labkit
from labkit.chaos.kill import Injury
from labkit.chaos.points import Point, Statement, require_stopped, statements
from labkit.chaos.scenario import Broken, Ended, NotDelivered, Scenario, Trial, Workshop
from labkit.chaos.suite import open_gate

if TYPE_CHECKING:
    from labkit.guard import Guarded

__all__ = [
    "BOUNDARY", "NAMES", "End", "Overtaken", "Stored", "boundary_pairs", "durable", "foresee",
    "foreseen", "judge_durable", "look", "must_wait", "takeovers", "torn", "transactions",
]  # fmt: skip

PROGRAM = "labkit.chaos.examples.programs.durable_run"
BOUNDARY = "boundary"
RUN, DATABASE = "r", "runs.db"
NON_IDEMPOTENT = ("send",)
OPEN = ("CREATED", "RUNNING", "WAITING")
CLOSERS = ("step_finished", "step_error", "step_recovered")
ENDED = ("task_done", "task_rejected", "task_failed", "task_cancelled")
REFUSED = (3, 65)  # another holds the lease; the run has moved on


class End(NamedTuple):
    """How the run ends that nobody kills. `calls` are those of the model, the context and the tools
    that may be repeated; `told` is how often it waits. `is_lost`: no message gets an answer."""

    status: str
    output: str | None
    calls: Sequence[str]
    sent: int = 1
    told: int = 0
    is_lost: bool = False


class Step(NamedTuple):
    """`attempts` are pairs of status and classification, the oldest first."""

    step_id: str
    kind: str
    tool: str | None
    status: str
    has_checkpoint: bool
    attempts: Sequence[tuple[str, str | None]]

    @property
    def caller(self) -> str:
        """As the witness of the calls names it."""
        return f"{RUN}:{self.step_id}" if self.kind == "TOOL" else self.step_id


class Stored(NamedTuple):
    """What the store holds of the run; `status` is empty where it holds none."""

    status: str = ""
    version: int = 0
    epoch: int = 0
    output: str | None = None
    is_leased: bool = False
    steps: Sequence[Step] = ()
    resolutions: Sequence[tuple[str, int]] = ()
    events: Mapping[str, int] = {}

    @property
    def cut_off(self) -> Step | None:
        """The step of which an attempt is stored, and no checkpoint."""
        return next((s for s in self.steps if s.attempts and not s.has_checkpoint), None)


def look(folder: Path) -> Stored:
    """Reads a copy, since opening the file itself would mend what the next process finds."""
    with tempfile.TemporaryDirectory(prefix="look-", dir=folder.parent) as place:
        for path in folder.glob(f"{DATABASE}*"):
            if not path.name.endswith("-shm"):  # made anew from the -wal
                shutil.copy(path, place)
        with closing(sqlite3.connect(Path(place) / DATABASE)) as opened:
            opened.row_factory = sqlite3.Row
            if not opened.execute("SELECT 1 FROM sqlite_schema WHERE name = 'seal'").fetchall():
                return Stored()
            return _read(opened)


def _read(opened: sqlite3.Connection) -> Stored:
    for run in opened.execute("SELECT * FROM runs"):
        resolutions = opened.execute("SELECT action, version FROM resolutions ORDER BY version")
        kinds = [row[0] for row in opened.execute("SELECT kind FROM events")]
        return Stored(
            status=run["status"],
            version=run["version"],
            epoch=run["lease_epoch"],
            output=_payload(run["output"]),
            is_leased=run["lease_owner"] is not None,
            steps=[
                _step(opened, row) for row in opened.execute("SELECT * FROM steps ORDER BY idx")
            ],
            resolutions=[tuple(row) for row in resolutions],
            events=Counter(kinds),
        )
    return Stored()


def _step(opened: sqlite3.Connection, row: sqlite3.Row) -> Step:
    sql = "SELECT status, classification FROM attempts WHERE step_id = ? ORDER BY number"
    attempts = [tuple(each) for each in opened.execute(sql, (row["step_id"],))]
    has_checkpoint = row["checkpoint_attempt_id"] is not None
    kind, tool, status = row["step_type"], row["name"], row["status"]
    return Step(row["step_id"], kind, tool, status, has_checkpoint, attempts)


def _payload(sealed: bytes | None) -> Any:
    return None if sealed is None else json.loads(sealed.removeprefix(b"plaintext:"))


# What follows a kill.


def is_uncertain(step: Step | None) -> bool:
    return step is not None and step.tool in NON_IDEMPOTENT


def must_wait(stored: Stored) -> bool:
    """Whether whoever resumes may do nothing but ask: nobody knows whether it was sent."""
    return stored.status == "RUNNING" and is_uncertain(stored.cut_off)


def torn(stored: Stored) -> Iterator[str]:
    """What no kill may leave, since one transaction holds both: parts of a change."""
    for step in stored.steps:
        succeeded = ["SUCCEEDED" in status for status, _ in step.attempts].count(True)
        if not (step.status == "SUCCEEDED") == step.has_checkpoint == (succeeded == 1):
            yield f"{step.step_id} is {step.status}, its checkpoint {step.has_checkpoint}"
    open_step = stored.cut_off
    if must_wait(stored) and open_step and open_step.attempts[-1] == ("FAILED", "UNCERTAIN"):
        answers = [
            action for action, version in stored.resolutions if version == stored.version - 1
        ]
        if answers:
            yield f"{answers[0]} is neither stored nor is the run still waiting"
        else:
            yield f"{open_step.step_id} is UNCERTAIN, and the run does not wait"
    yield from _unbalanced(stored)


def _unbalanced(stored: Stored) -> Iterator[str]:
    """State and its journal entry commit together."""
    attempts = [status for step in stored.steps for status, _ in step.attempts]
    said, is_done = Counter(stored.events), bool(stored.status) and stored.status not in OPEN
    for what, entries, rows in (
        ("attempts", said["step_started"], len(attempts)),
        (
            "ends of attempts",
            sum(said[k] for k in CLOSERS),
            len(attempts) - attempts.count("RUNNING"),
        ),
        ("leases", said["run_started"], stored.epoch),
        ("resolutions", said["run_resolved"], len(stored.resolutions)),
        ("ends of the run", sum(said[kind] for kind in ENDED), int(is_done)),
    ):
        if entries != rows:
            yield f"the journal has {entries} {what}, the tables have {rows}"
    waits = said["run_waiting"] - said["run_resolved"]
    if stored.status in OPEN and waits != (stored.status == "WAITING"):
        yield f"the run is {stored.status}, the journal has {waits} open questions"


def foresee(folder: Path) -> None:
    """Writes down what must follow from what is stored."""
    stored = look(folder)
    cut_off = stored.cut_off if stored.status == "RUNNING" else None
    note = {
        "waits": must_wait(stored),
        "window": cut_off.caller if cut_off else "",
        "told": len(_lines(folder / "told")),
        "sent": len(_lines(folder / "witness")),
        "torn": list(torn(stored)),
    }
    with (folder / "foreseen").open("a", encoding="utf-8") as file:
        file.write(json.dumps(note) + "\n")


def foreseen(folder: Path) -> list[dict[str, Any]]:
    """What was written down at each kill, in turn."""
    return [json.loads(line) for line in _lines(folder / "foreseen")]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


# The judgement.


def judge_durable(end: End, folder: Path) -> Iterator[str]:
    """What is not as it must be at the end, and was not at each kill, in words."""
    stored = look(folder)
    if (stored.status, stored.output) != (end.status, end.output):
        yield f"the run is {stored.status or 'lost'} with {stored.output!r}, not {end.status}"
    yield from _effects(end, folder)
    yield from _waits(end, folder)
    yield from _calls(end, folder)
    for n, kill in enumerate(foreseen(folder), start=1):
        yield from (f"kill {n} leaves: {fault}" for fault in kill["torn"])
    yield from torn(stored)
    running = [s.step_id for s in stored.steps if ("RUNNING", None) in s.attempts]
    if running or stored.is_leased:
        yield f"the run has ended, and {', '.join(running) or 'its lease'} is still held"


def _effects(end: End, folder: Path) -> Iterator[str]:
    sent = Counter(line.split()[0] for line in _lines(folder / "witness"))
    if sent.total() != end.sent or len(sent) != end.sent:
        how_often = ", ".join(f"{key} {count} times" for key, count in sent.items())
        yield f"{end.sent} to send, sent: {how_often or 'none'}"


def _waits(end: End, folder: Path) -> Iterator[str]:
    """After a kill the run waits exactly when it must. What was cut off by the next kill may not
    have come so far."""
    told, kills = _lines(folder / "told"), foreseen(folder)
    if unlike := [line for line in told if "UNCERTAIN_NON_IDEMPOTENT" not in line.split()]:
        yield f"it waits for something else: {unlike[0]}"
    ends = [*(kill["told"] for kill in kills), len(told)]
    if ends[0] > end.told or (not kills and ends[0] < end.told):
        yield f"nobody killed it, and it waits {ends[0]} times, not {end.told}"
    for n, kill in enumerate(kills):
        seen, is_last = ends[n + 1] - ends[n], n == len(kills) - 1
        # Where every answer is lost, a message that has not gone out is one more to ask about.
        must = kill["waits"] + (end.is_lost and kill["sent"] < end.sent)
        if seen > must or (is_last and seen < must):
            yield f"after kill {n + 1} it waits {seen} times, not {must}"


def _calls(end: End, folder: Path) -> Iterator[str]:
    """Each once, and once more for each kill that cut it off, if the run goes on to its end."""
    again = Counter(kill["window"] for kill in foreseen(folder) if end.status == "SUCCEEDED")
    once, seen = Counter(end.calls), Counter(_lines(folder / "calls"))
    for caller in once.keys() | seen.keys():
        if not once[caller] <= seen[caller] <= once[caller] + again[caller]:
            most = once[caller] + again[caller]
            yield f"{caller} is called {seen[caller]} times, {once[caller]} to {most} are due"


# The scenarios.

SHORT = ("model-1", "model-2")
LONG = (
    "context", "model-1", f"{RUN}:model-1.tool-1", f"{RUN}:model-1.tool-2", "model-2", "model-3",
)  # fmt: skip
SENT = End("SUCCEEDED", "sent", SHORT)
CANCELLED = End("CANCELLED", None, SHORT[:1])


class _Plan(NamedTuple):
    run: Sequence[str]
    end: End
    setup: Sequence[str] = ()
    environ: Mapping[str, str] = {}


_PLANS = {
    # From nothing to the end; with every kind of step; with a tool whose answer is lost.
    "start": _Plan(["go"], SENT),
    "long": _Plan(
        ["go"],
        End("SUCCEEDED", "two stops, pump B, booked, sent, sent", LONG, sent=2),
        environ={"AGENT": "long"},
    ),
    "lost": _Plan(["go"], SENT._replace(told=1, is_lost=True), environ={"FAULT": "lost"}),
    # What another process has left in a call, one that may be repeated and one that may not.
    "resume": _Plan(["go"], SENT._replace(calls=("model-1", *SHORT)), ["leave", "in-model"]),
    "resume sent": _Plan(["go"], SENT._replace(told=1), ["leave", "in-tool"]),
    # The answers to a run that waits.
    "retry": _Plan(["go"], SENT, ["leave", "unsent"]),
    "confirm": _Plan(["go"], SENT, ["leave", "sent"]),
    "reject": _Plan(
        ["go", "REJECT_STEP"], End("SUCCEEDED", "NOT_SENT", SHORT, sent=0), ["leave", "unsent"]
    ),
    "fail": _Plan(
        ["go", "FAIL_RUN"], End("FAILED", None, SHORT[:1], sent=0), ["leave", "unsent"]
    ),
    "cancel waiting": _Plan(["go", "CANCEL_RUN"], CANCELLED._replace(sent=0), ["leave", "unsent"]),
    # Of a run that was abandoned, once more in either kind of call.
    "cancel": _Plan(["cancel"], CANCELLED._replace(sent=0), ["leave", "in-model"]),
    "cancel sent": _Plan(["cancel"], CANCELLED._replace(told=1), ["leave", "in-tool"]),
}  # fmt: skip
NAMES = tuple(_PLANS)


def durable(name: str = "start", package: Path | None = None) -> Scenario:
    """One of NAMES, of the runtime in `package`, or of this one."""
    plan = _PLANS[name]
    where = str(package or Path(labkit.__file__).parents[1])
    program = [sys.executable, "-m", PROGRAM]
    return Scenario(
        run=[*program, *plan.run],
        setup=[*program, *plan.setup] if plan.setup else (),
        check=partial(judge_durable, plan.end),
        witness="witness",
        environ={"PYTHONPATH": where, "LABKIT_FIRST": "labkit.durable", **plan.environ},
        max_restarts=2,
        points=(BOUNDARY,),
        at_injury=foresee,
    )


# Kills by ordinal, and a sleeper that wakes up too late.


def transactions(workshop: Workshop) -> list[Statement]:
    """SIGKILL before each transaction: once with all that the one before it has stored."""
    return [each for each in statements(workshop) if each.sql.startswith("BEGIN")]


def boundary_pairs(workshop: Workshop, pairs: int, seed: int) -> list[list[Injury]]:
    """Pairs by chance: a kill, and another in the process that recovers; `pairs` of them, or all
    where there are fewer. How far each recovery comes is seen from one that nobody kills."""
    firsts = [_at(ordinal) for ordinal in range(_passed(workshop))]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        ends = list(pool.map(lambda first: _passed(workshop, first), firsts))
    every: list[list[Injury]] = [
        [first, _at(second)]
        for first, end in zip(firsts, ends, strict=True)
        for second in range(end)
    ]
    return random.Random(seed).sample(every, min(pairs, len(every)))


def _at(ordinal: int) -> Point:
    return Point(f"{BOUNDARY}:{ordinal}")


def _passed(workshop: Workshop, *first: Injury) -> int:
    """How many boundaries the run comes to, after these kills."""
    with workshop.open() as trial:
        for injury in first:
            injury.strike(trial)
        ended = trial.call(trial.scenario.run)
        if not (said := _lines(trial.folder / "passed")):
            raise NotDelivered(f"the run exits {ended.code}: {ended.said}")
        return int(said[-1])


class Overtaken(NamedTuple):
    """SIGSTOP in the middle of a tool whose effect has happened. Then its lease has expired, and
    another process takes over: it is killed at its n-th boundary, or without a number it ends the
    run. SIGCONT. Who has lost the lease must be refused, and nothing may be stored of what it
    comes to say."""

    ordinal: int | None = None
    how: str = "pause"

    @property
    def address(self) -> str:
        return "taken over" if self.ordinal is None else f"taken over to {BOUNDARY}:{self.ordinal}"

    def strike(self, trial: Trial) -> None:
        """Raises Broken if the late writer goes on."""
        seen: list[Stored] = []
        os.mkfifo(trial.folder / "gate")

        def meanwhile(process: Guarded) -> None:
            gate = open_gate(trial.folder / "gate", process)
            try:
                os.killpg(process.pid, signal.SIGSTOP)
                require_stopped(process.pid)
                seen.append(look(trial.folder))
                foresee(trial.folder)
                self._take_over(trial)
                seen.append(look(trial.folder))
                os.killpg(process.pid, signal.SIGCONT)
            finally:
                os.close(gate)

        late = trial.call(trial.scenario.run, meanwhile, HOLD="gate")
        seen.append(look(trial.folder))
        _require_refused(late, *seen)

    def _take_over(self, trial: Trial) -> None:
        if self.ordinal is not None:
            Point(f"{BOUNDARY}:{self.ordinal}").strike(trial)
        elif (ended := trial.call(trial.scenario.run)).code:
            raise NotDelivered(f"nobody took over: it exits {ended.code}: {ended.said}")


def _require_refused(late: Ended, stopped: Stored, taken: Stored, left: Stored) -> None:
    if stopped.epoch == taken.epoch:  # nobody had the lease but the sleeper, who may go on
        if late.code:
            raise Broken(f"nobody took over, and the sleeper exits {late.code}: {late.said}")
    elif left != taken:
        raise Broken("what the late writer said is stored, though another has the lease")
    elif late.code not in REFUSED:
        raise Broken(f"the late writer is not refused: it exits {late.code}: {late.said}")


def takeovers(workshop: Workshop) -> list[Overtaken]:
    """One for each boundary of the process that takes over, and one that goes to its end."""
    with workshop.open() as trial:
        Overtaken().strike(trial)
        passed = int(_lines(trial.folder / "passed")[0])
    return [*map(Overtaken, range(passed)), Overtaken()]

"""What the thirteen cases do not see: attempts used up, two effects, two runners, power loss, ...

Each is a case like those of the suite, and a column of the matrix. A case that is a whole sweep
says broken with the first trial that was.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from labkit.chaos import syscalls
from labkit.chaos.kill import Injury, sweep
from labkit.chaos.points import FastWorkshop, statements
from labkit.chaos.powerloss import lose_power, restart_kept
from labkit.chaos.scenario import Broken, Ended, NotDelivered, Scenario, Trial, Workshop
from labkit.chaos.suite import (
    NOTES,
    REPORT,
    SUITE,
    TASK,
    Agent,
    Bench,
    Case,
    Faults,
    calls,
    give_up,
    hold,
    judge_folder,
    published,
    read,
    require_end,
    require_killed,
    sizes,
)
from labkit.chaos.verdict import BROKEN, HELD, Report

__all__ = ["CASES", "NEED_STRACE", "Whole", "sum_up"]

ATTEMPTS = 3
IMAGES = 200
PLAN = """{"goal": "Summarize notes into a report",
 "steps": [{"tool": "fetch", "input": {"path": "input/notes.txt"}},
           {"tool": "summarize", "input": {"from": 0}},
           {"tool": "write_artifact", "input": {"from": 1}}]}
"""


def _every_attempt_killed(bench: Bench) -> Faults:
    where = "after_effect:1"
    with bench.open() as trial:
        for attempt in range(1, ATTEMPTS + 1):
            ended = trial.call(trial.scenario.run, AGENT_CRASH_AT=where)
            if ended.code != -signal.SIGKILL:
                give_up(ended, f"attempt {attempt} is not made: the run")
        last = trial.call(trial.scenario.run, AGENT_CRASH_AT=where)
        if last.code == -signal.SIGKILL:
            yield f"attempt {ATTEMPTS + 1} of {ATTEMPTS} began: such a step has no end"
            return
        if last.code != 2:
            raise NotDelivered(f"the run after the last attempt exits {last.code}: {last.said}")
        if (status := read(trial.folder).task) != "failed":
            yield f"the run says that the task failed, its row says {status}"
        if (times := calls(trial)["shorten"]) != ATTEMPTS:
            yield f"{times} calls, {ATTEMPTS} are allowed"


def _two_reports(bench: Bench) -> Faults:
    where = "after_effect:2"
    with bench.open("two reports") as trial:
        require_killed(trial.call(trial.scenario.run, AGENT_CRASH_AT=where), where)
        require_end(trial)
        yield from judge_folder(trial.folder, runs=2, reports=2)


def _lock_deleted(bench: Bench) -> Faults:
    with bench.open("held") as trial:

        def take_over() -> Ended:
            for lock in trial.folder.glob("*.lock"):
                lock.unlink()
            return trial.call(trial.scenario.run)

        first, second = hold(trial, take_over)
        codes = sorted((first.code, second.code))
        if codes == [0, 0]:
            yield "two runs of one task have both ended as if they were alone"
        elif codes != [0, 3]:
            raise NotDelivered(f"the runs exit {first.code}, {second.code}: {first.said}")
        yield from judge_folder(trial.folder)


def _a_set(bench: Bench) -> Faults:
    with bench.open("a set") as trial:
        ended = trial.call(trial.scenario.run)
        if ended.code not in (0, 2):
            raise NotDelivered(f"the run exits {ended.code}: {ended.said}")
        if ended.code == 0:
            yield "a step is done whose output JSON cannot hold"
        if (times := calls(trial)["give_set"]) != 1:
            yield f"promise 4: the effect happened {times} times, and no attempt could succeed"


# Sweeps.


def _statements(bench: Bench) -> Faults:
    with _folder(bench) as root, FastWorkshop(_scenario(bench.agent), Path(root)) as workshop:
        plan = [[statement] for statement in statements(workshop)]
        yield from sum_up(sweep(workshop, plan))


class Whole(NamedTuple):
    """A kill, after which a published report must be whole or not there."""

    injury: Injury

    @property
    def how(self) -> str:
        return self.injury.how

    @property
    def address(self) -> str:
        return self.injury.address

    def strike(self, trial: Trial) -> None:
        self.injury.strike(trial)
        files = {name: text for name, text in published(trial.folder).items() if name[0] != "."}
        if any(text != REPORT for text in files.values()):
            raise Broken(f"promise 4: at the kill a reader finds {sizes(files)}")


def _publishing(bench: Bench) -> Faults:
    with _folder(bench) as root:
        workshop = Workshop(_scenario(bench.agent), Path(root))
        kills = [k for k in syscalls.plan(workshop) if k.call.path.startswith("artifacts")]
        yield from sum_up(sweep(workshop, [[Whole(kill)] for kill in kills]))


def _power_loss(bench: Bench) -> Faults:
    with _folder(bench) as root:
        telling = bench.agent._replace(module="labkit.chaos.telling")
        scenario = _scenario(bench.agent)._replace(run=telling.argv("run", TASK))
        workshop = Workshop(scenario, Path(root))
        yield from sum_up(lose_power(workshop, IMAGES, acknowledged=restart_kept).report)


def _folder(bench: Bench) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sweep-", dir=bench.root)


def _scenario(agent: Agent) -> Scenario:
    return Scenario(
        run=agent.argv("run", TASK),
        setup=agent.argv("create", TASK, "plan.json"),
        check=judge_folder,
        material={"plan.json": PLAN, "input/notes.txt": NOTES},
        environ=agent.environ,
        max_restarts=2,
    )


def sum_up(report: Report) -> Faults:
    """One broken trial is a broken case; one that is unknown makes a case that held unknown."""
    bad = [verdict for verdict in report.verdicts if verdict.outcome == BROKEN]
    if bad:
        yield f"{len(bad)} of {report.planned} trials, the first {bad[0].address}: {bad[0].reason}"
    elif report.exit_code:
        why = [v for v in report.verdicts if v.outcome != HELD]
        first = f", the first {why[0].address}: {why[0].reason}" if why else ""
        raise NotDelivered(f"{report.summary()}{first}")


TIERS: Sequence[Case] = (
    Case(
        "every attempt killed", f"a step that kills its process fails after {ATTEMPTS} attempts",
        _every_attempt_killed, "twice",
    ),
    Case("two reports", "two effects of one task are two effects", _two_reports, "points"),
    Case("lock deleted", "of two runs without a lock only one can write", _lock_deleted, "runners"),
    Case("a set", "an output that JSON cannot hold is tried once", _a_set, "serialisation"),
    Case("statements", "killed before any SQL statement, it resumes", _statements, "statements"),
    Case("publishing", "killed while it publishes, no half report", _publishing, "syscalls"),
    Case("power loss", "a power cut takes back nothing acknowledged", _power_loss, "powerloss"),
)  # fmt: skip
CASES: tuple[Case, ...] = (*SUITE, *TIERS)
NEED_STRACE = frozenset({"publishing", "power loss"})

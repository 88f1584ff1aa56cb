"""A learner's publishing tool under the crash kit: kills, another's file, power cuts.

The tool is step 1 of an agent. What a reader finds is counted outside; the journal is asked only
what it claims. Every fault has a sentence of its own.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from labkit.chaos.kill import sweep
from labkit.chaos.points import FastWorkshop
from labkit.chaos.powerloss import lose_power
from labkit.chaos.scenario import Broken, NotDelivered, Scenario, Trial
from labkit.chaos.syscalls import Kill, plan
from labkit.chaos.verdict import BROKEN, HELD, Report
from labkit.errors import UsageError
from labkit.journal.bounded import read_text
from labkit.lab.checks import Desk
from labkit.lab.folder import RUN_IDS
from labkit.lab.handing import TOOLS_FILE, hand_over
from labkit.lab.sweeps import FETCH

__all__ = ["Fault", "Seen", "judge", "kept", "sweep_tool"]

ARTIFACTS, KEY, TASK = "artifacts", "t-1", "t"
TEXT = "".join(f"Line {n:02} of notes that the notebook never showed.\n" for n in range(24))
OTHER = "The report of another task.\n"
KILLS, IMAGES, LIMIT_S = 12, 30, 8.0
AFTER = 4  # calls behind the last one in the folder: they commit the step


class Fault(NamedTuple):
    """What is wrong, in a sentence or two, and the trial that shows it."""

    seen: str
    rows: tuple[str, ...] = ()


class Seen(NamedTuple):
    """How often the tool was harmed, if nothing went wrong."""

    kills: int = 0
    images: int = 0
    fault: Fault | None = None


def sweep_tool(tool: Callable[..., Any], desk: Desk, root: Path) -> Seen:
    """All of it, the cheap trials first. Raises NotSelfContained, NotFound without strace."""
    folder = desk.fresh("tool")
    hand_over(tool, folder)
    source = (folder.path / TOOLS_FILE).read_text(encoding="utf-8")
    scenario = _scenario(tool.__name__, source)
    try:
        workshop = FastWorkshop(scenario, root)
    except (UsageError, NotDelivered) as error:
        return Seen(fault=_of_unharmed(scenario, root, error))
    with workshop:
        if workshop.code:
            return Seen(fault=_of_unharmed(scenario, root, UsageError(f"exit {workshop.code}")))
        kills = _of_the_step(plan(workshop))
        report = sweep(workshop, [[_Whole(kill)] for kill in kills])
        if fault := _of_kills(report) or _beside_another(workshop):
            return Seen(len(kills), fault=fault)
        losses = lose_power(workshop, IMAGES, acknowledged=kept)
    return Seen(len(kills), losses.images, _of_cuts(losses.report))


def _scenario(name: str, source: str) -> Scenario:
    steps = [FETCH, {"tool": name, "input": {"from": 0}}]
    options = ["--tools", TOOLS_FILE]
    return Scenario(
        run=[sys.executable, "-m", "labkit.chaos.telling", *options, "run", TASK],
        setup=[sys.executable, "-m", "labkit.restart", *options, "create", TASK, "plan.json"],
        check=judge,
        files=[f"{ARTIFACTS}/[!.]*"],
        material={
            "plan.json": json.dumps({"goal": "An exercise", "steps": steps}),
            "input/notes.txt": TEXT,
            TOOLS_FILE: source,
            f"{ARTIFACTS}/.keep": "",
        },
        environ={"LABKIT_RUN_IDS": ",".join(RUN_IDS)},
        max_restarts=2,
        timeout_s=LIMIT_S,
    )


# What a reader finds.


def _visible(folder: Path) -> dict[str, str]:
    paths = (p for p in (folder / ARTIFACTS).rglob("*") if p.is_file() and p.name[0] != ".")
    return {p.relative_to(folder).as_posix(): read_text(p) or "" for p in paths}


def judge(folder: Path) -> Iterator[str]:
    """What is not as promised when the run has ended."""
    found = _visible(folder)
    copies = sum(text.count(TEXT) for text in found.values())
    if copies > 1:
        yield f"the report was published {copies} times"
    elif part := _torn(found):
        yield part
    elif copies == 0:
        yield "a reader finds no report"


def _torn(found: dict[str, str]) -> str:
    for name, text in found.items():
        if text.replace(TEXT, "").strip("-\n"):
            return f"{name} is no whole report: {_in_words(text)}"
        if not text:
            return f"{name} is an empty file"
    return ""


def _in_words(text: str) -> str:
    if "\0" in text:
        return f"{text.count(chr(0))} of its bytes are zero"
    return f"{len(text)} of {len(TEXT)} characters" if TEXT.startswith(text) else "other content"


def kept(folder: Path, told: Sequence[str]) -> Iterator[str]:
    """What the agent said before a power cut, or its journal says, and a reader does not find."""
    found = _visible(folder)
    if part := _torn(found):
        yield part
    elif not found and "after_commit:1" in told:
        yield "the step was committed and its file is gone"
    elif not found and _is_done(folder):
        yield "the journal says done and the file is gone"


def _is_done(folder: Path) -> bool:
    """It opens the database, and so mends it."""
    query = "SELECT status FROM steps WHERE task_id = ? AND idx = 1"
    try:
        with closing(sqlite3.connect(f"{(folder / 'state.db').as_uri()}?mode=rw", uri=True)) as db:
            return bool(db.execute(query, (TASK,)).fetchone() == ("done",))
    except sqlite3.Error:
        return False


# The trials.


def _of_unharmed(scenario: Scenario, root: Path, error: Exception) -> Fault:
    """Why it fails although nobody harmed it: once more, to see how the agent ends."""
    with Trial(scenario, root, root / "bytecode") as trial:
        try:
            trial.set_up()
            ended = trial.call(scenario.run)
        except UsageError as why:
            error = why
        except NotDelivered:
            return Fault(f"Nobody harmed it, and the agent had not ended after {LIMIT_S:g} s.")
        else:
            if ended.code:
                said = ended.said.rpartition("\n")[2]
                return Fault(f"Nobody harmed it, and the agent exits {ended.code}: {said}")
    return Fault(f"Nobody harmed it: {error}.")


class _Whole(NamedTuple):
    """A kill, after which a reader must find a whole report or none."""

    kill: Kill

    @property
    def how(self) -> str:
        return self.kill.how

    @property
    def address(self) -> str:
        return f"{self.kill.call.name} on {self.kill.call.path}"

    def strike(self, trial: Trial) -> None:
        self.kill.strike(trial)
        if part := _torn(_visible(trial.folder)):
            raise Broken(f"at that moment {part}")


def _of_the_step(kills: Sequence[Kill]) -> list[Kill]:
    """Those from its first call in the folder to the commit of the step."""
    touched = [at for at, kill in enumerate(kills) if kill.call.path.startswith(ARTIFACTS)]
    if not touched:
        return list(kills[-KILLS:])
    step = list(kills[touched[0] : touched[-1] + 1 + AFTER])
    return step[: KILLS // 2] + step[KILLS // 2 :][-KILLS // 2 :]


def _of_kills(report: Report) -> Fault | None:
    doubled_first = sorted(report.verdicts, key=lambda verdict: " times" not in verdict.reason)
    for verdict in doubled_first:
        if verdict.outcome == BROKEN:
            return Fault(f"Killed before {verdict.address} and run again: {verdict.reason}.")
        if verdict.outcome != HELD:
            said = verdict.reason.rpartition("\n")[2]
            return Fault(f"Killed before {verdict.address} and run again, no run ends well: {said}")
    return None


def _beside_another(workshop: FastWorkshop) -> Fault | None:
    """Another task's file stands under the name that the unharmed run has used."""
    name = min(workshop.left.files)
    if KEY not in name:
        return Fault(
            f"Its report is {name}, and the key {KEY} is not in that name. Two tasks would share "
            "it: make the name from idem_key."
        )
    with workshop.open() as trial:
        (trial.folder / name).write_text(OTHER, encoding="utf-8")
        ended = trial.call(trial.scenario.run)
        if (trial.folder / name).read_text("utf-8", "replace") != OTHER:
            return Fault(f"Another task's file stood under {name}, and it was replaced or changed.")
    if ended.code == 0:
        return Fault(
            f"Another task's file stood under {name}, and the step is done as if its report were "
            "published. Compare the content, and raise."
        )
    return None


def _of_cuts(report: Report) -> Fault | None:
    bad = [verdict for verdict in report.verdicts if verdict.outcome != HELD]
    if not bad:
        return None
    reasons = [verdict.reason.partition(";")[0] for verdict in bad]
    gone = [reason for reason in reasons if reason.endswith("gone")]
    if torn := [reason for reason in reasons if reason.startswith(ARTIFACTS)]:
        return Fault(
            f"After a power cut {torn[0]}. The name was on the disk before the content: fsync the "
            "file before it gets its name.",
        )
    if gone:
        return Fault(
            f"After a power cut {gone[0]}. The content was on the disk, its name was not: fsync "
            "the folder when the name is in it.",
        )
    return Fault(f"After a power cut: {reasons[0].rpartition(chr(10))[2]}.")

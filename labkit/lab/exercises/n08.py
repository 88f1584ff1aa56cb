"""Every write: what a kill and a power cut tell, an fsync found by its images, a tool swept."""

from __future__ import annotations

import inspect
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from labkit.chaos.kill import sweep
from labkit.chaos.points import POINTS, Point
from labkit.chaos.scenario import scratch
from labkit.errors import LabkitError, ensure
from labkit.journal.laws import BROKEN, HELD
from labkit.lab import breaking, images
from labkit.lab.breaking import AGENTS, Subject
from labkit.lab.checks import Desk, Judgement, broken, held, not_judged
from labkit.lab.exercises import swept
from labkit.lab.handing import source_of
from labkit.lab.scenarios.one_report import CALLS, INNER, NAME

__all__ = ["ex1", "ex2", "ex3"]

AT_ONCE = 2
KILL, CUT = "killed", "power cut"
TOLD_APART = (
    "A kill leaves the memory of the machine alone, a power cut takes it: what is acknowledged "
    "must survive both (promises 1 and 4)."
)
WHY = {
    f"synchronous OFF, {KILL}": "The commit was in the machine's memory, which a kill leaves.",
    f"synchronous OFF, {CUT}": "Nothing had forced the commit to the disk.",
    f"file not synced, {KILL}": "The content was in the machine's memory, which a kill leaves.",
    f"file not synced, {CUT}": "The name was forced to the disk, the content was not.",
    f"effect without key, {KILL}": (
        "Killed after its effect, the step ran again and appended once more. No fsync is missing "
        "here, a key is."
    ),
    f"effect without key, {CUT}": (
        "A power cut that loses nothing is a kill, so what breaks at a kill breaks here too; and "
        "the append had no fsync."
    ),
}


def ex1(outcomes: Any, desk: Desk) -> Judgement:
    """`outcomes` says held or broken for three agents and two accidents; both are made."""
    if not isinstance(outcomes, dict) or set(outcomes) != set(WHY):
        return not_judged("Keep the table as it was, a dict with its six names; fill in words.")
    if any(word is ... for word in outcomes.values()):
        return not_judged('A "..." is still there. Put "held" or "broken" in its place.')
    if odd := [word for word in outcomes.values() if word not in (HELD, BROKEN)]:
        return not_judged(f'{odd[0]!r} is neither "held" nor "broken".')
    names = list(dict.fromkeys(name.partition(",")[0] for name in WHY))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(pair for pairs in pool.map(_accidents, names) for pair in pairs)
    rows = [f"{name}: {found[name]}" for name in WHY]
    for name, why in WHY.items():
        if outcomes[name] != found[name]:
            seen = f"{name}: you say {outcomes[name]}, and it is {found[name]}. {why}"
            return broken(seen, TOLD_APART, rows)
    return held("Your words are what both accidents showed.", TOLD_APART, rows)


def _accidents(name: str) -> list[tuple[str, str]]:
    """Raises LabkitError if a kill or a disk was not delivered: then nothing can be said."""
    with Subject(AGENTS[name]) as subject:
        points = [[Point(f"{point}:2")] for point in POINTS]
        killed = sweep(subject.workshop(telling=True), points)
        cut = breaking.lose_all(subject).report
    for report in (killed, cut):
        ensure(report.delivered == report.planned, LabkitError(report.summary()))
    return [
        (f"{name}, {KILL}", BROKEN if killed.count(BROKEN) else HELD),
        (f"{name}, {CUT}", BROKEN if cut.count(BROKEN) else HELD),
    ]


# Exercise 2: the missing fsync.

ACKNOWLEDGED = (
    "What was acknowledged before a power cut is there after it: each new name is forced to the "
    "disk by an fsync of the folder that it stands in (promise 4)."
)
PATHS = tuple(dict.fromkeys(word.partition(" ")[2] for word, _ in CALLS))


def ex2(missing: Any, desk: Desk) -> Judgement:
    """`missing` names a path and a call; the program is run with that fsync, and all its disks
    are looked at."""
    if not isinstance(missing, dict) or set(missing) != {"fsync", "after"}:
        return not_judged('Keep the two names, "fsync" and "after", and fill in a path, a number.')
    path, after = missing["fsync"], missing["after"]
    if path is ... or after is ...:
        return not_judged('A "..." is still there. Put your answer in its place, run the cell.')
    if path not in PATHS:
        return not_judged(f"{path!r} is no path of these calls; one is written like {INNER!r}.")
    if type(after) is not int or not 0 <= after < len(CALLS):
        return not_judged(f"{after!r} is no number of a call; they go from 0 to {len(CALLS) - 1}.")
    try:
        seen = images.disks("nested", path, str(after))
    except LabkitError:
        why = f"After call {after}, {CALLS[after][0]}, there is no {path} that could be forced."
        return broken(f"The program was run with your fsync and failed. {why}", ACKNOWLEDGED)
    if not seen.broken:
        reason = f"With your fsync the program was run again: {seen!r}."
        return held(reason, ACKNOWLEDGED, [f"{n}  {op}" for n, op in enumerate(seen.ops)])
    left = ", ".join(seen.broken[0].paths) or "nothing"
    rows = [f"{NAME} was acknowledged; the disk holds: {left}"]
    return broken(f"With your fsync: {seen!r}. {_hint(path, after)}", ACKNOWLEDGED, rows)


def _hint(path: str, after: int) -> str:
    synced = [n for n, (word, _) in enumerate(CALLS) if word == f"fsync {path}"]
    if path == "artifacts":
        return (
            f"After call {after} the name that gets lost is not in that folder yet; an fsync "
            "forces only what is there."
        )
    if synced:
        return f"{path} is forced to the disk by call {synced[0]} already; it is not what is lost."
    return f"{path} is a file, and an fsync of a file forces its content, not a name in a folder."


# Exercise 3: the learner's tool.

EVERY_WRITE = (
    "Killed at any write, beside another task's file, and after a power cut: one whole report, "
    "under one name, and never acknowledged but gone (promise 4)."
)


def ex3(publish: Any, desk: Desk) -> Judgement:
    """`publish(input, ctx, idem_key)` is step 1 of an agent under the crash kit."""
    source_of(publish)
    try:
        inspect.signature(publish).bind({}, {}, "t-1")
    except TypeError:
        return not_judged("An agent calls publish(input, ctx, idem_key); keep its first line.")
    with tempfile.TemporaryDirectory(prefix="labkit-swept-", dir=scratch()) as root:
        seen = swept.sweep_tool(publish, desk, Path(root))
    if seen.fault:
        return broken(seen.fault.seen, EVERY_WRITE, seen.fault.rows)
    reason = (
        f"Killed before each of {seen.kills} calls of its step, beside another task's file, and "
        f"on {seen.images} disks after a power cut, it published one whole report."
    )
    return held(reason, EVERY_WRITE, ["0 broken, all delivered"])

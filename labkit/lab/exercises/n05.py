"""Nine places to die: which places break a plan, and a tool of the learner's own, swept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from labkit.errors import storage_faults
from labkit.journal.bounded import read_bytes
from labkit.lab.checks import Desk, Judgement, broken, held, not_judged
from labkit.lab.folder import Folder
from labkit.lab.handing import source_of
from labkit.lab.sweeps import (
    FETCH,
    cut_tool,
    ending,
    give_notes,
    give_plan,
    is_sound,
    raised,
    side_by_side,
    step_rows,
    try_tool,
)
from labkit.lab.trials import POINTS, Trial, crash_and_resume

__all__ = ["ex1", "ex2"]

# Exercise 1: a plan with two reports, and the places where an agent without keys breaks promise 4.

MORE = ("input/more.txt", "The pump in hall C was new in May.\nIt has not stopped since.\n")
STEPS = [
    FETCH,
    {"tool": "fetch", "input": {"path": MORE[0]}},
    {"tool": "summarize", "input": {"from": 0}},
    {"tool": "write_artifact", "input": {"from": 2}},
    {"tool": "summarize", "input": {"from": 1}},
    {"tool": "write_artifact", "input": {"from": 4}},
]
PLACES = tuple(f"{point}:{idx}" for idx in range(len(STEPS)) for point in POINTS)
BREAKS = ("after_effect:3", "after_effect:5")
LOOKED_AT_MOST = 3


def ex1(broken_places: Any, desk: Desk) -> Judgement:
    """Kills the unsafe agent where the answer is wrong, and shows what the witness counts there."""
    rule = "Effects happen once in outcome (promise 4)."
    if wrong := _unreadable(broken_places):
        return not_judged(wrong, rule)
    differ = [place for place in PLACES if (place in broken_places) != (place in BREAKS)]
    looked = differ[:LOOKED_AT_MOST] or [*BREAKS, "after_effect:4"]
    trials = side_by_side([partial(_unsafe, desk, place) for place in looked])
    for trial in trials:
        if (trial.judgement == "broken: 4") != (trial.crash_at in BREAKS):
            return not_judged(f"This agent did what it must not: {trial!r}.")
    if differ:
        return broken(_surprise(trials[0], len(differ)), rule, _evidence(trials[0]))
    reason = (
        f"Killed at {BREAKS[0]} and at {BREAKS[1]}, it published one report twice. Killed at "
        "after_effect:4, which you did not name, it called step 4 twice, and nobody outside saw it."
    )
    return held(reason, rule, _evidence(trials[0]))


def _unreadable(given: Any) -> str:
    """Why these are no places; "" for a list of them."""
    if not isinstance(given, list | tuple | set | frozenset):
        return f'Give a list of places, as in ["after_effect:2"], not {given!r:.80}.'
    for place in given:
        if place not in PLACES:
            last, points = len(STEPS) - 1, ", ".join(POINTS)
            return f"{place!r:.80} is no place: use POINT:IDX, with {points} and 0 to {last}."
    return ""


def _unsafe(desk: Desk, place: str) -> Trial:
    folder = desk.fresh(place.replace(":", "-"))
    give_plan(folder, STEPS)
    give_notes(folder, MORE[1], MORE[0])
    return crash_and_resume(folder, place, unsafe=True)


def _surprise(trial: Trial, differ: int) -> str:
    """What happened at a place where the answer says something else."""
    point, _, idx = str(trial.crash_at).partition(":")
    more = (
        f" (The check differs from you at {differ} places; this is the first.)"
        if differ > 1
        else ""
    )
    found = f"the witness counts {trial.count_reports()}, and the plan has 2"
    if trial.crash_at in BREAKS:
        return (
            f"You left out {trial.crash_at}. Killed there and run again, {found}: step {idx} had "
            f"appended its report, no record said so, and the second run appended it again.{more}"
        )
    why = {
        "before_effect": f"the tool of step {idx} had not been called, so nothing could double",
        "after_commit": f"step {idx} is done, and the second run does not call it again",
        "after_effect": f"step {idx} was called twice, but it publishes nothing",
    }[point]
    return f"You name {trial.crash_at}. Killed there and run again, {found}: {why}.{more}"


def _evidence(trial: Trial) -> list[str]:
    law = trial.verdicts[3]
    return [*step_rows(trial, int(str(trial.crash_at)[-1])), f"law 4  {law.verdict}: {law.reason}"]


# Exercise 2: a tool with an effect, killed around its call and in the middle of it.

TWICE, ONCE = "The pump in hall B runs.", "The backup was moved."
TEXTS = (TWICE, TWICE, ONCE)  # two steps may well publish the same text: two effects
SWEPT = 0  # the step that is killed; two more follow it
HALF = "half written"


class Count(NamedTuple):
    """How often a text stands in `artifacts`, and in how many files."""

    times: int
    files: int

    def __str__(self) -> str:
        times = "1 time" if self.times == 1 else f"{self.times} times"
        return f"{times}, in {self.files} file{'' if self.files == 1 else 's'}"


class Outcome(NamedTuple):
    """One trial: the promise that broke, or 0, and what was seen."""

    place: str
    trial: Trial
    promise: int
    seen: str


def ex2(publish: Any, desk: Desk) -> Judgement:
    """Three crash points around the call, one kill in it, and a witness who reads `artifacts`."""
    source_of(publish)
    steps = [{"tool": publish.__name__, "input": {"text": text}} for text in TEXTS]
    around = [f"{point}:{SWEPT}" for point in POINTS]
    sweep = [partial(try_tool, desk, publish, steps, place) for place in around]
    trials = side_by_side([*sweep, partial(cut_tool, desk, publish, steps, TWICE)])
    outcomes = [_judge(*pair) for pair in zip([*around, HALF], trials, strict=True)]
    rows = [_row(outcome) for outcome in outcomes]
    for outcome in outcomes:
        if outcome.promise:
            rule = RULES[outcome.promise]
            return broken(outcome.seen, rule, [*rows, *step_rows(outcome.trial, SWEPT)])
    reason = "Wherever step 0 was killed, it was run again; each text stands as often as it must."
    return held(reason, RULES[4], [*rows, *step_rows(trials[1], SWEPT)])


RULES = {
    2: "The task resumes, and ends (promise 2).",
    4: "Effects happen once in outcome: one for each step, however often it runs (promise 4).",
}


def _judge(place: str, trial: Trial) -> Outcome:
    if not is_sound(trial, laws=(1, 2, 3, 5, 6)):  # of law 4 the witness below knows more
        ended = f". {wrong}" if (wrong := raised(trial)) else f", it ended so: {ending(trial)}"
        return Outcome(place, trial, 2, f"{_when(place, trial)}{ended}")
    for text in (TWICE, ONCE):
        count, wanted = _count(trial.folder, text), TEXTS.count(text)
        if count.times != wanted:
            steps = "steps 0 and 1 publish" if text == TWICE else "step 2 publishes"
            found = f'"{text}" stands {count}; {steps} it'
            seen = f"{_when(place, trial)}: {found}. {_why(place, trial, count, wanted)}"
            return Outcome(place, trial, 4, seen)
    return Outcome(place, trial, 0, "")


def _why(place: str, trial: Trial, count: Count, wanted: int) -> str:
    if count.times > wanted and count.times > count.files:
        return "The second attempt added its text to what the first had left."
    if count.times > wanted:
        return "The second attempt made a file of its own: its name was another one."
    if place == HALF and trial.first.killed:
        return "The second attempt found the file, took it for whole, and never wrote it."
    if not any(_count(trial.folder, text).times for text in TEXTS):
        return "Nothing in artifacts/ holds any of the texts. Where do they go?"
    return "One step took another one's file for its own. Is its name made of the key?"


def _when(place: str, trial: Trial) -> str:
    if place != HALF:
        return f"Killed at {place} and run again"
    if trial.first.killed:
        return f"Killed in the middle of step {SWEPT}, its file begun and not whole, and run again"
    return "Without a kill"


def _row(outcome: Outcome) -> str:
    reached = outcome.trial.first.killed
    what = f"promise {outcome.promise} broken" if outcome.promise else "held"
    return f"{outcome.place:15}  {what if reached else 'no such moment'}"


def _count(folder: Folder, text: str) -> Count:
    """What a reader outside finds, under whatever names; hidden files are nobody's report."""
    with storage_faults("cannot read artifacts"):
        paths: Sequence[Any] = [p for p in folder.artifacts.rglob("[!.]*") if p.is_file()]
        found = [(read_bytes(path) or b"").count(text.encode()) for path in paths]
    return Count(sum(found), sum(number > 0 for number in found))

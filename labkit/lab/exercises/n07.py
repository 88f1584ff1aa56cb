"""Break the agent: which case sees a mutant, a mutant that points miss, a case that misses one."""

from __future__ import annotations

import ast
import copy
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from labkit.chaos.mutants import PACKAGE, Mutant, count, plant, read_mutants
from labkit.chaos.mutants.cases import CASES
from labkit.chaos.scenario import Scenario, Trial, scratch
from labkit.chaos.suite import POINTS, Agent, select, try_case
from labkit.chaos.verdict import BROKEN, Verdict
from labkit.errors import LabkitError, UsageError
from labkit.lab import trials
from labkit.lab.breaking_mutants import (
    LETTERS,
    OFFERED,
    FastBench,
    Harm,
    first_broken,
    first_broken_publishing,
    first_broken_statement,
    give_agent,
    named,
)
from labkit.lab.checks import Desk, Judgement, ask, broken, held, not_judged
from labkit.lab.sweeps import FETCH, give_plan, side_by_side

__all__ = ["ex1", "ex2", "ex3"]

# Exercise 1: three mutants, eight cases.

ITS_CASE = "A mutant is killed by a case that is broken over it, and held over the right agent."
MISSED = {
    "A": "It matters only for an output that JSON cannot hold. Which plan makes one?",
    "B": "One key for a whole task is enough as long as the task has one effect.",
    "C": "It matters only while another process is at work on the same task.",
}


def ex1(killers: Any, desk: Desk) -> Judgement:
    """Runs the case that is named for each mutant, over the mutant and over the right agent."""
    if not isinstance(killers, dict) or set(killers) != set(LETTERS):
        return not_judged('Keep the table as it was, a dict with "A", "B" and "C"; name cases.')
    if any(name is ... for name in killers.values()):
        return not_judged('A "..." is still there. Put the name of a case in its place.')
    if wrong := [name for name in killers.values() if name not in OFFERED]:
        return not_judged(f"{wrong[0]!r:.80} is no case of the table: {', '.join(OFFERED)}.")
    for letter, verdict in zip(killers, _try_named(killers), strict=True):
        if verdict.outcome != BROKEN:
            seen = (
                f"You name {verdict.address!r} for mutant {letter}. It was run over that mutant, "
                f"and is {verdict.outcome}. {MISSED[letter]}"
            )
            return broken(seen, ITS_CASE, _what(killers))
    reason = "Each case that you name was run, and broke over its mutant. " + " ".join(
        f"{letter} is called {LETTERS[letter]!r}." for letter in LETTERS
    )
    return held(reason, ITS_CASE, _what(killers))


def _try_named(killers: dict[str, str]) -> list[Verdict]:
    with tempfile.TemporaryDirectory(prefix="labkit-named-", dir=scratch()) as root:
        return side_by_side(partial(_try, Path(root), *pair) for pair in killers.items())


def _try(root: Path, letter: str, name: str) -> Verdict:
    for folder in (letter, f"agent-{letter}"):
        (root / folder).mkdir()
    agent = Agent(path=str(plant(named(LETTERS[letter]), root / f"agent-{letter}")))
    with FastBench(agent, root / letter, root / "bytecode") as bench:
        (case,) = select(CASES, [name])
        return try_case(bench, case)


def _what(killers: dict[str, str]) -> list[str]:
    says = {case.name: case.says for case in CASES}
    return [f"{letter}  {name}: {says[name]}" for letter, name in killers.items()]


# Exercise 2: a mutant of the learner's own.

NINE = tuple(f"{point}:{idx}" for idx in range(3) for point in POINTS)
FILES = tuple(
    sorted(
        path.relative_to(PACKAGE.parent).as_posix()
        for path in (*PACKAGE.glob("*.py"), *PACKAGE.glob("restart/*.py"))
        if path.name not in ("__main__.py", "__init__.py", "cli.py", "crashpoints.py", "guard.py")
    )
)
PUBLISHERS = ("labkit/files.py", "labkit/restart/tools.py")
BETWEEN = "Nine points are not all places: between two of them a kill can break a promise."
IMPORTS = "import labkit.restart.__main__, labkit.restart.agent, labkit.restart.tools"


class Dead(Exception):
    """The mutant is of no use here; the message says why."""


def ex2(mutant: Any, desk: Desk) -> Judgement:
    """Applies the change to a copy of the agent; unharmed it must pass, and at the nine points."""
    if wrong := _unusable(mutant):
        return not_judged(wrong)
    mine = Mutant("yours", "", file=mutant["file"], old=mutant["old"], new=mutant["new"])
    if twin := _twin(mine):
        return not_judged(f"That is the lab's own mutant {twin!r}. Make another one.", BETWEEN)
    with tempfile.TemporaryDirectory(prefix="labkit-yours-", dir=scratch()) as root:
        for name in ("package", "cases", "statements", "calls"):
            (Path(root) / name).mkdir()
        agent = Agent(path=str(plant(mine, Path(root) / "package")))
        try:
            _require_alive(agent, Path(root) / "cases")
            return _hunt(agent, Path(root), mine.file in PUBLISHERS)
        except Dead as dead:
            return broken(str(dead), BETWEEN)
        except UsageError as error:
            return broken(f"Unharmed, your agent does not keep its promises: {error}.", BETWEEN)


def _unusable(mutant: Any) -> str:
    """Why this is no change of a file; "" for one."""
    keys = {"file", "old", "new"}
    if not isinstance(mutant, dict) or set(mutant) != keys:
        return 'Keep the table as it was, a dict with "file", "old" and "new".'
    if not all(isinstance(text, str) for text in mutant.values()):
        return '"file", "old" and "new" must be texts.'
    file, old, new = mutant["file"], mutant["old"], mutant["new"]
    if "..." in (old.strip(), new.strip()):
        return 'A "..." is still there. Put the old text and the new one in its place.'
    if file not in FILES:
        return f"{file!r:.60} is no file of the agent. There are {', '.join(FILES)}."
    times = count(Mutant("yours", "", file=file, old=old)) if old else 0
    if not times:
        return f"The old text is not found in {file}: copy it from there, with all its spaces."
    if times > 1:
        return f"The old text stands {times} times in {file}: take more of it, until it is one."
    return "The new text is the old one: nothing changes." if old == new else ""


def _twin(mine: Mutant) -> str:
    """The name of the shipped mutant that makes the same file."""
    for mutant in read_mutants():
        if mutant.file == mine.file and _changed(mutant) == _changed(mine):
            return mutant.name
    return ""


def _changed(mutant: Mutant) -> str:
    text = (PACKAGE.parent / mutant.file).read_text("utf-8")
    changed = text.replace(mutant.old, mutant.new)
    try:
        return ast.dump(ast.parse(changed))
    except (SyntaxError, ValueError):
        return changed


def _require_alive(agent: Agent, root: Path) -> None:
    """Raises Dead for an agent that Python cannot even import, before anything is asked of it."""
    with Trial(Scenario(run=(), environ=agent.environ, timeout_s=10), root, root / "b") as trial:
        ended = trial.call([sys.executable, "-c", IMPORTS])
    if ended.code:
        last = ended.said.rpartition("\n")[2]
        raise Dead(f"The agent cannot be imported, so it shows nothing: {last}.")


def _hunt(agent: Agent, root: Path, changes_calls: bool) -> Judgement:
    with FastBench(agent, root / "cases") as bench:
        for names, when in ((["unharmed"], "unharmed"), (NINE, "at the nine points")):
            if verdict := first_broken(bench, names):
                raise Dead(_found(verdict, when))
    number, harm = first_broken_statement(agent, root / "statements")
    tried = f"the nine points, and a kill before each of its {number} SQL statements that write"
    if not harm and changes_calls:
        try:
            number, harm = first_broken_publishing(agent, root / "calls")
        except LabkitError as error:
            said = f"It survives {tried}. Kills before system calls cannot be made here: {error}."
            return not_judged(said, BETWEEN)
        tried += f" and each of the {number} system calls that publish"
    if harm:
        return held(_caught(harm), BETWEEN, [f"killed before  {harm.struck:.64}"])
    raise Dead(
        f"It survives everything that was tried: {tried}. Perhaps it breaks nothing. Or it needs "
        "another harm: a power cut (fsync), a second process (lock, fence), or a second kill."
    )


def _found(verdict: Verdict, when: str) -> str:
    why = re.sub(r"/\S*/folder/", "", verdict.reason).partition(";")[0]
    if "exits -9" in why:  # a helper kills what has not ended in time
        why = "a run had not ended in time and was killed: a loop without an end, perhaps"
    if when == "unharmed":
        return f"Its unharmed run is broken already, so any test sees it: {why}."
    if verdict.outcome == BROKEN:
        return f"It is killed by one of the nine points, the case {verdict.address}: {why}."
    return f"At {verdict.address} nothing can be said of it: {why}."


def _caught(harm: Harm) -> str:
    return (
        "Its unharmed run passes, and so do all nine points. Then it was killed before "
        f"{harm.kind} and run again, and this was found: {harm.reason.partition(';')[0]}."
    )


# Exercise 3: a case that lets mutants pass.

PUBLISH = {"tool": "write_artifact", "input": {"from": 1}}
TO_SUMMARY = (FETCH, {"tool": "summarize", "input": {"from": 0}})
PLANS: dict[int, Sequence[dict[str, Any]]] = {
    0: TO_SUMMARY,
    1: (*TO_SUMMARY, PUBLISH),
    2: (*TO_SUMMARY, PUBLISH, PUBLISH),
}
TELLS = "A case is held over the right agent, whatever its plan, and broken over a broken one."


class Subject(NamedTuple):
    """An agent, how many reports its plan has, where it is killed; `mutant` is "" for the right
    one, and "unsafe" for the one without keys."""

    mutant: str
    reports: int
    crash_at: str
    says: str

    @property
    def right(self) -> bool:
        return not self.mutant


SUBJECTS = (
    Subject("", 1, "before_effect:2", "the right agent"),
    Subject("", 2, "after_effect:2", "the right agent, whose plan has two reports"),
    Subject("", 0, "after_effect:1", "the right agent, whose plan has no report"),
    Subject("running is done", 1, "before_effect:2", "an agent that takes a step for done"),
    Subject("unsafe", 1, "after_effect:2", "an agent without keys"),
    Subject("key without step", 2, "after_effect:2", "an agent with one key for both reports"),
)


def ex3(find_faults: Any, desk: Desk) -> Judgement:
    """Judges six trials by the learner's case; three of them are of broken agents."""
    tried = side_by_side([partial(_try_subject, desk, subject) for subject in SUBJECTS])
    rows: list[str] = []
    wrong = ""
    for subject, trial in zip(SUBJECTS, tried, strict=True):
        faults = _ask_case(find_faults, subject, trial)
        if not isinstance(faults, list):
            return not_judged(f"It returned {faults!r:.60}. Return the list of faults.")
        rows.append(f"{subject.crash_at:15}  {'broken' if faults else 'held':6}  {subject.says}")
        if bool(faults) == subject.right and not wrong:
            wrong = _misjudged(subject, trial, faults)
    if wrong:
        return broken(wrong, TELLS, rows)
    return held("Three right agents are held, three broken ones are broken.", TELLS, rows)


def _try_subject(desk: Desk, subject: Subject) -> trials.Trial:
    """Raises LabkitError where the agent was not killed, or did not end: then there is no case."""
    folder = desk.fresh(f"{subject.mutant or 'right'}-{subject.reports}".replace(" ", "-"))
    give_plan(folder, PLANS[subject.reports])
    unsafe = subject.mutant == "unsafe"
    if subject.mutant and not unsafe:
        give_agent(folder, named(subject.mutant))
    trial = trials.crash_and_resume(folder, subject.crash_at, unsafe=unsafe)
    if not trial.first.killed or trial.second.code:
        raise LabkitError(f"{subject.says} did what it must not: {trial!r}")
    return trial


def _ask_case(case: Callable[..., Any], subject: Subject, trial: trials.Trial) -> Any:
    steps = copy.deepcopy(list(PLANS[subject.reports]))
    return ask(case, trial.second.code, steps, list(trial.effects))


def _misjudged(subject: Subject, trial: trials.Trial, faults: list[Any]) -> str:
    killed = f"killed at {subject.crash_at} and run again"
    plan = f"Its plan has {subject.reports} of `write_artifact`"
    found = f"a reader finds {trial.count_reports()}"
    if subject.right:
        return (
            f"A false alarm: {subject.says}, {killed}, does all it promises. {plan}, and {found}. "
            f"Your case says {str(faults[0])!r:.80}."
        )
    return (
        f"It lets a mutant pass: {subject.says}, {killed}, exits 0. {plan}, and {found}. Your "
        "case finds no fault in that."
    )

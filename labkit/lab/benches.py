"""A bench makes trials of one agent with one plan: killed at a place, gone on with, and judged.

By three things: the laws of the journal, the end that is to be expected of that place, and the
effects outside, which must be those of a run that nobody kills. Each trial keeps its folder.
"""

from __future__ import annotations

import re
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from labkit.errors import Fatal, LabkitError, describe, storage_faults
from labkit.journal.bounded import LARGEST_LIST, copy, read_text
from labkit.journal.fold import lanes
from labkit.journal.laws import BROKEN, HELD, NOT_JUDGED, Verdict, judge_file
from labkit.journal.reading import read_events, snapshot
from labkit.lab import evidence, runs
from labkit.lab.folder import Folder, fresh_folder
from labkit.lab.grid import Agent, Place
from labkit.lab.process import NotReady, exit_in_words
from labkit.lab.scenarios import dispatch
from labkit.lab.scenarios.places import WRITTEN
from labkit.lab.trials import Trial, crash_and_resume
from labkit.lab.verbs import OpenNotebook

if TYPE_CHECKING:
    from labkit.journal import Journal
    from labkit.journal.figure import Timeline

__all__ = ["AT_ONCE", "MUTANT", "Bench", "DurableBench", "Outcome", "RestartBench"]

AT_ONCE = runs.AT_ONCE
MUTANT = "three commits"  # the control of the durable run
EXPECTED = (LabkitError, Fatal, OSError)  # what ends a trial without a verdict
RESUMES, EFFECTS, REPEATS_NOT = 2, 4, 10  # the laws that an expectation belongs to
WITNESS = "witness.txt"
PLACES = "places"
ENDS = re.compile(r"run \S+ is ([A-Z]+)")
ELSEWHERE = "something else killed the process, before it came there; run it again"


class Outcome(NamedTuple):
    """One trial that ended. `number` is its place's in the grid, `word` its verdict, `left` what
    is outside now ("1 report"), `why` a sentence unless it held, `killed` the lanes that this lab
    killed. The folder holds `witness.txt`, the keys of the effects, unless the trial came to
    nothing."""

    number: int
    place: Place
    word: str
    left: str
    why: str
    task: str
    folder: Folder
    killed: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()

    @property
    def held(self) -> bool:
        """Killed at its place, and nothing was broken. What was not judged has not held."""
        return self.word == HELD

    @property
    def kind(self) -> str:
        """One of: held; waits, which is held too; broken; unproved."""
        if self.held:
            return "waits" if self.place.waits else "held"
        return "broken" if self.word.startswith(BROKEN) else "unproved"

    @property
    def where(self) -> str:
        return f"{self.place.row}, {self.place.column}"

    @property
    def lines(self) -> list[str]:
        """Its word, and what is outside: for a cell."""
        return [self.word, *filter(None, self.left.split(", "))]

    @property
    def journal(self) -> Journal:
        """Raises NotReady where there is none, or none any more."""
        if not self.folder.database.exists():
            raise NotReady("the folder of this trial holds no journal any more; run it again")
        return evidence.journal(self.folder)

    @property
    def witness(self) -> Path:
        """The keys of the effects, one in a line, as the laws take them; it may be missing."""
        return self.folder.path / WITNESS

    def story(self) -> str:
        """What its journal tells, a sentence on a line."""
        return self.journal.story(self.task)

    def timeline(self, style: str = "notebook") -> Timeline:
        from labkit.journal import timeline

        return timeline(self.journal, self.task, style=style, killed=self.killed)

    def __repr__(self) -> str:
        said = f"{self.where}: {self.word}"
        said += f", {self.left}" if self.left else ""
        return f"{said} ({self.why})" if self.why else said


class Judged(NamedTuple):
    """The word of a verdict, and the sentence for it."""

    word: str
    why: str = ""


def judge(verdicts: Sequence[Verdict], expected: dict[int, str]) -> Judged:
    """Held; broken or not judged, with the laws. `expected` says of a law more than the journal
    can: "" where what it is about came as expected, else what came instead.
    """
    broken = {law: why for law, why in expected.items() if why}
    for v in verdicts:
        if v.verdict == BROKEN:
            broken.setdefault(v.law, v.reason)
    # The witness of a run that rightly sent nothing saw nothing, and that is as expected.
    unjudged = {
        v.law: v.reason for v in verdicts if v.verdict == NOT_JUDGED and v.law not in expected
    }
    for word, laws in ((BROKEN, broken), (NOT_JUDGED, unjudged)):
        if laws:
            return Judged(f"{word}: {', '.join(map(str, sorted(laws)))}", next(iter(laws.values())))
    return Judged(HELD)


def _keep(folder: Folder, effects: Iterable[str]) -> None:
    """Where somebody opens the journal later, its fourth law needs a witness."""
    with storage_faults("cannot keep the witness"):
        (folder.path / WITNESS).write_text("".join(f"{key}\n" for key in effects), "utf-8")


def _has_come_to(folder: Folder, place: Place) -> bool:
    """Whether the file of places ends with this one, counted from 0."""
    text = read_text(folder.path / PLACES, LARGEST_LIST) or ""
    passed = [line for line in text.splitlines() if not line.startswith(WRITTEN)]
    return len(passed) == int(place.at.partition(":")[2]) + 1


class Bench:
    """Makes trials, in several threads. `stop` ends what runs, and from then on none begins."""

    def __init__(self, notebook: OpenNotebook, agent: Agent, plan: str) -> None:
        self._notebook, self.agent, self.plan = notebook, agent, plan
        self._turn, self._preparing = threading.Lock(), threading.Lock()
        self._folders: list[Folder] = []
        self._is_stopped = False
        self._unharmed: Counter[str] | None = None

    def prepare(self) -> None:
        """Runs the agent once unharmed. Raises LabkitError if that does not end well."""
        with self._preparing:  # not `_turn`: somebody may stop it meanwhile
            if self._unharmed is None:
                self._unharmed = Counter(self._run_unharmed())

    def trial(self, number: int, place: Place) -> Outcome:
        """What came of a kill at this place; of a trial that could not be made, why."""
        folder = self._open(f"{self.agent.name}-{place.at}".replace(":", "-").replace("_", "-"))
        try:
            return self._try(folder, number, place)
        except EXPECTED as error:
            return self._outcome(folder, number, place, Judged(NOT_JUDGED, describe(error)))

    def stop(self) -> None:
        """Kills what runs; a trial in another thread ends without a verdict."""
        with self._turn:
            self._is_stopped = True
            folders = list(self._folders)
        for folder in folders:
            folder.close()

    def close(self) -> None:
        """Ends what runs beside the trials, once no trial is at work."""
        self.stop()

    def _run_unharmed(self) -> list[str]:
        """The effects, by their keys."""
        raise NotImplementedError

    def _try(self, folder: Folder, number: int, place: Place) -> Outcome:
        raise NotImplementedError

    def _open(self, name: str) -> Folder:
        with self._turn:
            if self._is_stopped:
                raise NotReady("the trials were stopped; run them again")
            folder = self._make(name)
            self._folders.append(folder)
        return folder

    def _make(self, name: str) -> Folder:
        raise NotImplementedError

    def _outcome(
        self, folder: Folder, number: int, place: Place, judged: Judged, left: str = "",
        killed: Sequence[str] = (), verdicts: Sequence[Verdict] = (),
    ) -> Outcome:  # fmt: skip
        word, why = judged
        task = self.agent.task
        return Outcome(number, place, word, left, why, task, folder, tuple(killed), tuple(verdicts))

    def _count(self, number: int) -> str:
        return f"{number} {self.agent.effect}{'' if number == 1 else 's'}"

    def _compare(self, found: Counter[str]) -> str:
        """Nothing, or how these effects differ from those of the run that nobody killed."""
        if found == self._unharmed:
            return ""
        wanted = (self._unharmed or Counter()).total()
        return f"{self._count(found.total())} outside, and {wanted} by a run that nobody kills"


class RestartBench(Bench):
    """Of the restart agent: three commands in a folder with the plan and the notes of this one."""

    def __init__(self, notebook: OpenNotebook, agent: Agent, plan: str, unsafe: bool) -> None:
        super().__init__(notebook, agent, plan)
        self._unsafe, self._from = unsafe, notebook.folder.path

    def _make(self, name: str) -> Folder:
        folder = self._notebook.open_folder(name)
        with storage_faults(f"cannot copy {self.plan}"):  # a learner may have changed them
            copy(self._from / self.plan, folder.path / "plan.json")
            given, path = self._from / "input", folder.path / "input"
            shutil.copytree(given, path, dirs_exist_ok=True, copy_function=copy)
        return folder

    def _run_unharmed(self) -> list[str]:
        trial = crash_and_resume(self._open("restart-unharmed"), None, unsafe=self._unsafe)
        if not trial.effects and trial.judgement == f"{NOT_JUDGED}: {EFFECTS}":
            return []  # a plan without a report
        if trial.judgement != HELD:
            raise LabkitError(f"not even the run that nobody kills ends well: {trial}")
        return trial.effects

    def _try(self, folder: Folder, number: int, place: Place) -> Outcome:
        trial = crash_and_resume(folder, place.at, unsafe=self._unsafe)
        _keep(folder, trial.effects)
        killed = evidence.killed_runs(folder, self.agent.task)
        left, judged = self._count(len(trial.effects)), self._judge(trial, place)
        return self._outcome(folder, number, place, judged, left, killed, trial.verdicts)

    def _judge(self, trial: Trial, place: Place) -> Judged:
        if not trial.first.killed:
            return Judged("not killed", f"the process never came there: {trial.first}")
        if not trial.died_there:
            return Judged("not killed", ELSEWHERE)
        if trial.second.code:
            return Judged("not resumed", f"the second process: {trial.second}")
        return judge(trial.verdicts, {EFFECTS: self._compare(Counter(trial.effects))})


class DurableBench(Bench):
    """Of a durable run: two processes, forked from a helper, in a folder of the notebook."""

    def __init__(self, notebook: OpenNotebook, agent: Agent, plan: str, unsafe: bool) -> None:
        super().__init__(notebook, agent, plan)
        self._words = agent.run.format(plan=plan).split()[1:]
        self._trials = runs.Trials(MUTANT if unsafe else "")

    def stop(self) -> None:
        super().stop()
        self._trials.stop()

    def close(self) -> None:
        super().close()
        self._trials.__exit__()

    def _make(self, name: str) -> Folder:
        folder = fresh_folder(self._notebook.root, name, runs.SCENARIO)
        self._notebook.folders.append(folder)
        return folder

    def _run_unharmed(self) -> list[str]:
        folder = self._open("durable-unharmed")
        code, said = self._trials.call(folder.path, 0, *self._words)
        if code:
            raise LabkitError(f"not even the run that nobody kills ends well: {said.strip()}")
        return self._effects(folder)

    def _try(self, folder: Folder, number: int, place: Place) -> Outcome:
        # Written before each place: an exit by SIGKILL alone does not say who killed, and where.
        at = {**self.agent.killed_at(place.at), "LABKIT_PLACES": str(folder.path / PLACES)}
        code, said = self._trials.call(folder.path, 0, *self._words, **at)
        if code != -signal.SIGKILL:
            why = f"the process never came there: {exit_in_words(code)} {said}"
            return self._outcome(folder, number, place, Judged("not killed", why.strip()))
        if not _has_come_to(folder, place):
            return self._outcome(folder, number, place, Judged("not killed", ELSEWHERE))
        before, killed = Counter(self._effects(folder)), self._lanes(folder)
        # Another name, so that the timeline has a lane for each of the two.
        code, said = self._trials.call(folder.path, 1, *self._words, AGENT_OWNER="bob")
        after = Counter(self._effects(folder))
        _keep(folder, after.elements())
        verdicts = judge_file(str(folder.database), list(after.elements()))
        judged = self._judge(place, code, said, before, after, verdicts)
        sent = self._count(len(runs.messages(folder)))
        left = f"waits, {sent}" if code == dispatch.ENDS["WAITING"] else sent
        return self._outcome(folder, number, place, judged, left, killed, verdicts)

    def _judge(
        self, place: Place, code: int, said: str, before: Counter[str], after: Counter[str],
        verdicts: Sequence[Verdict],
    ) -> Judged:  # fmt: skip
        """By the table of recovery: a run waits where a message may have gone out, and only there;
        what it finds outside then is what it leaves."""
        found = ENDS.match(said)
        if code not in (0, dispatch.ENDS["WAITING"]) or not found:
            why = f"the second process: {exit_in_words(code)} {said}"
            return Judged("not resumed", why.strip())
        wanted = "WAITING" if place.waits else "SUCCEEDED"
        law = REPEATS_NOT if place.waits else RESUMES
        end = "" if found[1] == wanted else f"the run is {found[1]}, and should be {wanted}"
        if found[1] == "WAITING":
            sent = "" if after == before else "a run that waits has sent something meanwhile"
        else:
            sent = self._compare(after)
        return judge(verdicts, {EFFECTS: sent, law: end})

    def _effects(self, folder: Folder) -> list[str]:
        """The keys of what left the agent: messages, and tickets."""
        text = read_text(folder.path / dispatch.TICKETS, LARGEST_LIST) or ""
        opened = [f"ticket-{line.partition('  ')[0]}" for line in text.splitlines()]
        return [message.key for message in runs.messages(folder)] + opened

    def _lanes(self, folder: Folder) -> list[str]:
        if not folder.database.exists():
            return []
        with snapshot(str(folder.database)) as reader:
            return [lane.owner for lane in lanes(list(read_events(reader, self.agent.task)))]

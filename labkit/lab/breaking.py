"""Agents under the crash kit, in a notebook: killed at every write, twice, full disks, power cuts.

All that the kit does, it does in processes of its own; this Python only waits. What is shown is the
same on every machine: how many system calls an agent makes is not, so a notebook asks for a number
of trials, spread over all the calls that there are.
"""

from __future__ import annotations

import difflib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from labkit.chaos import faults, syscalls
from labkit.chaos.disk import DROPPED, Cut
from labkit.chaos.examples.restart import TASK, restart
from labkit.chaos.kill import Injury, sweep
from labkit.chaos.mutants import PACKAGE, Mutant, plant, read_mutants
from labkit.chaos.points import POINTS, FastWorkshop, Point
from labkit.chaos.powerloss import GONE, NO_FILE, Case, build, plan_cuts, restart_kept, try_cuts
from labkit.chaos.recording import Recording, record_files
from labkit.chaos.scenario import scratch
from labkit.chaos.tracing import NEEDS_STRACE, STRACE, require_strace
from labkit.chaos.verdict import BROKEN, HELD, Report
from labkit.errors import LabkitError, NotFound, UsageError, storage_faults
from labkit.lab import verbs
from labkit.lab.folder import RUN_IDS
from labkit.lab.listing import Listing
from labkit.lab.places import home

if TYPE_CHECKING:
    import pandas as pd

    from labkit.lab.pictures import Picture

__all__ = [
    "AGENTS",
    "BLUNT",
    "Cuts",
    "Subject",
    "agent",
    "cut_power",
    "draw",
    "fill_disk",
    "in_words",
    "kill_at_calls",
    "kill_at_points",
    "kill_twice",
    "leave_image",
    "lose_all",
    "needs_strace",
    "settings",
]

# It traces every call and injects nothing: what a sweep is when its injector is broken.
BLUNT = ("strace", "--seccomp-bpf")
IMAGES = 40
_PRAGMA = '("synchronous", "FULL", 2)'


def _synchronous(name: str, number: int) -> Mutant:
    return Mutant(
        f"synchronous {name}",
        "a commit is acknowledged before it is on the disk",
        file="labkit/database.py",
        old=_PRAGMA,
        new=f'("synchronous", "{name}", {number})',
    )


AGENTS: dict[str, Mutant] = {
    "right agent": Mutant("right agent", "nothing"),
    "synchronous NORMAL": _synchronous("NORMAL", 1),
    "synchronous OFF": _synchronous("OFF", 0),
    "file not synced": Mutant(
        "file not synced",
        "the report gets its name before its content is on the disk",
        file="labkit/files.py",
        old="                os.fsync(file.fileno())\n",
        new="",
    ),
    "effect without key": Mutant("effect without key", "each attempt appends one more report"),
}
T = TypeVar("T")


class Subject:
    """An agent that is to be broken, and its trials. `close` it, or use `with`."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self._root = tempfile.TemporaryDirectory(prefix="labkit-breaking-", dir=scratch())
        self._open: dict[bool, FastWorkshop] = {}
        with storage_faults("cannot copy the agent"):
            self._package = plant(mutant, Path(self._root.name)) if mutant.file else None

    @property
    def difference(self) -> Listing:
        """Its lines that are not those of the right agent."""
        return Listing("\n".join(_difference(self.mutant)), "diff")

    def workshop(self, telling: bool = False) -> FastWorkshop:
        """`telling`: the agent says each crash point that it reaches, so the outside relies on it.

        Raises UsageError if the unharmed agent does not hold.
        """
        if telling not in self._open:
            unsafe = self.mutant.name == "effect without key"
            scenario = restart(self._package, unsafe=unsafe)
            module = "labkit.chaos.telling" if telling else "labkit.restart"
            scenario = scenario._replace(
                run=[sys.executable, "-m", module, "run", TASK],
                environ={**scenario.environ, "LABKIT_RUN_IDS": ",".join(RUN_IDS)},
            )
            place = tempfile.mkdtemp(dir=self._root.name)
            self._open[telling] = FastWorkshop(scenario, Path(place))
        return self._open[telling]

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
        self._root.cleanup()

    def __enter__(self) -> Subject:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Cuts(NamedTuple):
    """Images of power cuts, each of them built and tried."""

    recording: Recording
    cases: tuple[Case, ...]
    report: Report

    @property
    def kinds(self) -> list[str]:
        """What went wrong, each kind once: an effect without its file, a commit taken back."""
        reasons = [v.reason for v in self.report.verdicts if v.outcome == BROKEN]
        found = [kind for kind in (NO_FILE, GONE) if any(r.startswith(kind) for r in reasons)]
        return found or ([BROKEN] if reasons else [])

    @property
    def word(self) -> str:
        """`held`, or how it is broken."""
        return self.kinds[0] if self.kinds else in_words(self.report)

    def __repr__(self) -> str:
        images = len({case.digest for case in self.cases})
        built = self.report.delivered == self.report.planned
        return f"{images} disks, {'all' if built else 'not all'} built and tried: {self.word}"


def needs_strace() -> str:
    """Says whether strace is here, and how to get it if not."""
    try:
        require_strace()
    except NotFound:
        return f"strace is missing: {NEEDS_STRACE}"
    return "strace is here."


def agent(name: str = "right agent") -> Subject:
    """The right agent, one of `AGENTS`, or a mutant of the kit; closed when the notebook ends.

    Raises UsageError for another name.
    """
    known = {mutant.name: mutant for mutant in read_mutants()} | AGENTS
    if name not in known:
        raise UsageError(f"there is no agent {name!r}; there are {', '.join(known)}")
    current = verbs.current_notebook()
    subject = Subject(known[name])
    current.beside[f"{name} {len(current.beside)}"] = subject
    return subject


def kill_at_points(subject: Subject) -> Report:
    """SIGKILL at the nine crash points, one in each trial, and a run that goes on."""
    points = [Point(f"{name}:{idx}") for name in POINTS for idx in range(3)]
    return sweep(subject.workshop(telling=True), [[point] for point in points])


def kill_at_calls(subject: Subject, number: int, tracer: Sequence[str] = STRACE) -> Report:
    """SIGKILL before so many of the system calls that touch state, spread over the whole run."""
    workshop = subject.workshop()
    kills = syscalls.plan(workshop, tracer=tracer)
    return sweep(workshop, [[kill] for kill in _spread(kills, number)])


def kill_twice(subject: Subject, number: int, seed: int = 0) -> Report:
    """Two kills in each trial: at a system call, and at another of the run that recovers."""
    workshop = subject.workshop()
    return sweep(workshop, syscalls.twice(workshop, number, seed))


def fill_disk(subject: Subject, number: int) -> Report:
    """The disk is full at so many of those calls, spread: a clean end, and later all goes well."""
    workshop = subject.workshop()
    once = [fault for fault in faults.plan(workshop, ("ENOSPC",)) if not fault.onward]
    plan: list[list[Injury]] = [[fault] for fault in _spread(once, number)]
    return sweep(workshop, plan)


def cut_power(subject: Subject, images: int = IMAGES, seed: int = 0) -> Cuts:
    """So many of the disks that a power cut can leave of one run; each is built, asked and run on.

    Raises LabkitError for a recording with a doubt.
    """
    recording = _record(subject)
    return _try(subject, recording, plan_cuts(recording, images, seed))


def lose_all(subject: Subject) -> Cuts:
    """One cut after each call of one run, at which all is lost that nothing had forced to the disk.

    Equal disks are tried once, at the last such cut. Raises as `cut_power`.
    """
    recording = _record(subject)
    disk, cases = recording.disk, dict[bytes, Case]()
    for at in range(len(disk.events) + 1):
        cut = Cut(at, dict.fromkeys(disk.pending(at), DROPPED))
        digest = disk.image(cut).digest()
        cases[digest] = Case(cut, digest, *disk.known(at))
    return _try(subject, recording, list(cases.values()))


def _record(subject: Subject) -> Recording:
    recording = record_files(subject.workshop(telling=True))
    if recording.doubts:
        raise LabkitError(f"the recording has doubts: {'; '.join(recording.doubts)}")
    return recording


def _try(subject: Subject, recording: Recording, cases: list[Case]) -> Cuts:
    losses = try_cuts(subject.workshop(telling=True), recording, cases, restart_kept)
    return Cuts(recording, tuple(cases), losses.report)


def leave_image(cuts: Cuts) -> None:
    """Puts the last broken disk into this notebook's folder, in place of what is there.

    Raises UsageError if none is broken.
    """
    pairs = zip(cuts.cases, cuts.report.verdicts, strict=True)
    broken = [case for case, verdict in pairs if verdict.outcome == BROKEN]
    if not broken:
        raise UsageError("none of these disks is broken; give the cuts of a broken agent")
    folder = verbs.current_folder().path
    if verbs.current_folder().processes or not folder.is_relative_to(home() / "runs"):
        raise UsageError('this folder is in use; run lab.fresh("image") before')
    with storage_faults("cannot make the disk"):
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        build(cuts.recording.disk, broken[-1].cut, folder)


def settings(*subjects: Subject) -> pd.DataFrame:
    """Each agent killed at nine points, and its power cut, which takes all that it can: held, or
    how it is broken."""
    import pandas as pd

    rows = {}
    for subject in subjects:
        killed = kill_at_points(subject)
        rows[subject.mutant.name] = {
            "killed at nine points": in_words(killed),
            "power cut": lose_all(subject).word,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def draw(table: pd.DataFrame) -> Picture:
    """That table as squares."""
    from labkit.lab.pictures_of_disks import draw_table

    return draw_table(table, f"{len(table)} agents, {len(table.columns)} accidents each")


def in_words(report: Report) -> str:
    """`held` only if every injury was delivered and nothing is unknown."""
    return {0: HELD, 1: BROKEN}.get(report.exit_code, "unknown")


def _spread(every: Sequence[T], number: int) -> list[T]:
    """So many of them, the first and the last too, or all."""
    if number >= len(every):
        return list(every)
    last = len(every) - 1
    return [every[round(n * last / max(1, number - 1))] for n in range(number)]


def _difference(mutant: Mutant) -> Iterator[str]:
    if not mutant.file:
        return
    before = (PACKAGE.parent / mutant.file).read_text("utf-8")
    old, new = before.splitlines(), before.replace(mutant.old, mutant.new).splitlines()
    yield f"# {mutant.file}"
    for line in difflib.unified_diff(old, new, lineterm="", n=1):
        if not line.startswith(("---", "+++", "@@")):
            yield re.sub(r"  # .*", "", line)

"""Agents broken on purpose, in a notebook: their difference, their trials, the cases over them."""

from __future__ import annotations

import difflib
import os
import re
import tempfile
import textwrap
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from labkit.chaos import syscalls
from labkit.chaos.forkserver import ForkServer
from labkit.chaos.kill import Injury, sweep
from labkit.chaos.matrix import Matrix, replay_line
from labkit.chaos.mutants import PACKAGE, RIGHT, Mutant, plant, read_mutants
from labkit.chaos.mutants.cases import CASES, Whole
from labkit.chaos.points import FastTrial, FastWorkshop, statements
from labkit.chaos.scenario import NotDelivered, Scenario, Trial, Workshop, scratch
from labkit.chaos.suite import NOTES, Agent, Bench, Case, Faults, judge_folder, select, try_case
from labkit.chaos.verdict import BROKEN, HELD, UNKNOWN, Verdict
from labkit.errors import LabkitError, UsageError, storage_faults
from labkit.lab import trials, verbs
from labkit.lab.folder import RUN_IDS, Folder, new_directory
from labkit.lab.listing import Listing

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BLUNT",
    "LETTERS",
    "OFFERED",
    "FastBench",
    "Harm",
    "cases",
    "first_broken",
    "first_broken_publishing",
    "first_broken_statement",
    "give_agent",
    "named",
    "show",
    "show_letters",
    "trial",
    "try_cases",
]

COLUMNS = 82
LIMIT_S = 10.0  # for one run of an agent that a learner has changed
AT_ONCE = os.cpu_count() or 1
SOME = 4 * AT_ONCE
# All as before, and the SIGKILL reaches nobody: what a sweep is when its injector is broken.
BLUNT = Mutant(
    "blunt kill",
    "the crash points are reached and kill nobody",
    file="labkit/crashpoints.py",
    old="os.kill(os.getpid(), signal.SIGKILL)",
    new="os.kill(os.getpid(), 0)",
)
READS = re.compile(r"\s*(SELECT|PRAGMA)\b", re.IGNORECASE)
# An exercise: three mutants without their names, and the cases to choose from.
LETTERS = {"A": "late serialisation", "B": "key without step", "C": "no lock"}
OFFERED = (
    "unharmed", "before_effect:2", "after_effect:2", "second runner", "every attempt killed",
    "two reports", "lock deleted", "a set",
)  # fmt: skip
PLAN = """{"goal": "Summarize notes into a report",
 "steps": [{"tool": "fetch", "input": {"path": "input/notes.txt"}},
           {"tool": "summarize", "input": {"from": 0}},
           {"tool": "write_artifact", "input": {"from": 1}}]}
"""


def named(name: str) -> Mutant:
    """The mutant of that name. Raises UsageError."""
    known = {mutant.name: mutant for mutant in read_mutants()}
    if name not in known:
        raise UsageError(f"no mutant is called {name!r}; there are {', '.join(known)}")
    return known[name]


def show(*mutants: Mutant) -> Listing:
    """What each mutant changes: lines with - go, lines with + come."""
    return Listing("\n\n".join("\n".join(_difference(mutant)) for mutant in mutants), "diff")


def show_letters() -> Listing:
    """The mutants A, B and C, as `show` has them, without their names."""
    parts = ("\n".join([f"# {x}", *_difference(named(n))]) for x, n in LETTERS.items())
    return Listing("\n\n".join(parts), "diff")


def cases(names: Iterable[str]) -> pd.DataFrame:
    """What each of these cases says must hold."""
    import pandas as pd

    rows = [(case.name, case.says) for case in _select(names)]
    return pd.DataFrame(rows, columns=["case", "what must hold"]).set_index("case")


def try_cases(mutants: Sequence[Mutant], names: Iterable[str]) -> Matrix:
    """These cases of the suite over the right agent and over each mutant, in real processes.

    As `run_matrix`, but each process is forked from a helper that has imported the agent: a
    notebook waits seconds. Raises UsageError for a case that there is not.
    """
    rows, columns = (RIGHT, *mutants), tuple(_select(names))
    with (
        tempfile.TemporaryDirectory(prefix="labkit-row-", dir=scratch()) as root,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        each = pool.map(lambda mutant: _try_row(Path(root), mutant, columns), rows)
        return Matrix(rows, columns, {key: found for row in each for key, found in row.items()})


def _select(names: Iterable[str]) -> list[Case]:
    """The cases of these names; `statements` with fewer kills than in the matrix of a terminal."""
    return [WRITES if case.name == WRITES.name else case for case in select(CASES, names)]


def _killed_before_a_write(bench: Bench) -> Faults:
    with tempfile.TemporaryDirectory(prefix="writes-", dir=bench.root) as root:
        number, harm = first_broken_statement(bench.agent, Path(root))
        if harm:
            yield harm.reason
        elif not number:
            raise NotDelivered("no statement of this agent writes")


WRITES = Case(
    "statements",
    "killed before any SQL statement that writes, it resumes",
    _killed_before_a_write,
    "statements",
)


def _try_row(root: Path, mutant: Mutant, columns: Sequence[Case]) -> dict[tuple[str, str], Verdict]:
    here = root / mutant.name.replace(" ", "-")
    (here / "trials").mkdir(parents=True)
    agent = Agent(path=str(plant(mutant, here / "package")))
    with FastBench(agent, here / "trials", root / "bytecode") as bench:
        return {
            (mutant.name, case.name): try_case(bench, case, replay_line(mutant, case, "restart"))
            for case in columns
        }


def trial(mutant: Mutant, crash_at: str) -> trials.Trial:
    """As `lab.trial`: kills an agent at "point:idx", runs it again, judges it. The agent is the
    mutant."""
    folder = verbs.current_notebook().open_folder(f"mutant-{crash_at.replace(':', '-')}")
    give_agent(folder, mutant)
    return trials.crash_and_resume(folder, crash_at)


def give_agent(folder: Folder, mutant: Mutant) -> None:
    """What is started in this folder from now on is the mutant. Raises BadInput, StorageFault."""
    with storage_faults("cannot copy the agent"):
        package = new_directory(folder.path.parent, f"agent-{mutant.name.replace(' ', '-')}")
        plant(mutant, package)
    path = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
    folder.unprinted = {**folder.unprinted, "PYTHONPATH": path}


def _difference(mutant: Mutant) -> Iterator[str]:
    before = (PACKAGE.parent / mutant.file).read_text("utf-8")
    old, new = before.splitlines(), before.replace(mutant.old, mutant.new).splitlines()
    match = difflib.SequenceMatcher(None, old, new, False)
    changes = [change for change in match.get_opcodes() if change[0] != "equal"]
    margin = min(_margin([*old[c[1] : c[2]], *new[c[3] : c[4]]]) for c in changes)
    yield f"# {mutant.file}"
    for at, (_, old_from, old_to, new_from, new_to) in enumerate(changes):
        if at:
            yield " ..."
        gone, come = _around(
            [x[margin:] for x in old[old_from:old_to]], [x[margin:] for x in new[new_from:new_to]]
        )
        stays = [] if gone else [x[margin:] for x in old[old_to : old_to + 1]]  # where it was put
        for mark, lines in (("-", gone), ("+", come), (" ", stays)):
            yield from (f"{mark}{part}" for line in lines for part in _fit(line) if line)


def _around(gone: list[str], come: list[str]) -> tuple[list[str], list[str]]:
    """Of one long line that becomes another: the part that differs, `...` for the rest."""
    if len(gone) != 1 or len(come) != 1 or max(len(gone[0]), len(come[0])) <= COLUMNS:
        return gone, come
    old, new = (re.split(r"(?<=, )", line) for line in (gone[0], come[0]))
    first = next((n for n, (x, y) in enumerate(zip(old, new, strict=False)) if x != y), 0)
    pairs = zip(old[:first:-1], new[:first:-1], strict=False)
    last = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    cut = [["... " * bool(first), *part[first : len(part) - last], "..." * bool(last)]
           for part in (old, new)]  # fmt: skip
    return ["".join(cut[0])], ["".join(cut[1])]


def _margin(lines: Iterable[str]) -> int:
    return min(len(line) - len(line.lstrip()) for line in lines if line.strip())


def _fit(line: str) -> list[str]:
    """The line, in two where it is too long for a screen; without the comment at its end."""
    line = re.sub(r"  # .*", "", line)
    indent = line[: len(line) - len(line.lstrip())] + "    "
    return textwrap.wrap(line, COLUMNS, subsequent_indent=indent, drop_whitespace=True) or [""]


# For a check: the same cases, as fast as a learner can wait.


class Harm(NamedTuple):
    """A kill that broke a promise: what it struck, by kind and in full, and what was wrong then."""

    kind: str
    struck: str
    reason: str


class FastBench(Bench):
    """A bench whose trials are forked from helper processes. Close it, or use `with`."""

    def __init__(self, agent: Agent, root: Path, bytecode: Path | None = None) -> None:
        super().__init__(agent, root, bytecode)
        self._mine, self._servers = threading.local(), list[ForkServer]()

    def open(self, plan: str = "three") -> Trial:
        with self._preparing:
            if plan not in self._prepared:
                self._prepared[plan] = self._prepare(plan)
        trial = FastTrial(self._scenario(plan), self.root, self.bytecode, self._prepared[plan])
        if not hasattr(self._mine, "server"):
            self._mine.server = ForkServer(self.agent.environ)
            self._servers.append(self._mine.server)
        trial.server = self._mine.server
        return trial

    def _scenario(self, plan: str) -> Scenario:
        return super()._scenario(plan)._replace(timeout_s=LIMIT_S)

    def close(self) -> None:
        while self._servers:
            self._servers.pop().close()

    def __enter__(self) -> FastBench:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def first_broken(bench: Bench, names: Sequence[str]) -> Verdict | None:
    """The first of these cases that is not held, in their order; None if all are."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        verdicts = list(pool.map(lambda case: try_case(bench, case), select(CASES, names)))
    return next((verdict for verdict in verdicts if verdict.outcome != HELD), None)


def first_broken_statement(agent: Agent, root: Path) -> tuple[int, Harm | None]:
    """Kills before the SQL statements of a run that write, the last first, until one breaks a
    promise; with the number of all of them. Before one that reads, all is as before the next."""
    with FastWorkshop(_scenario(agent), root) as workshop:
        every = [each for each in statements(workshop) if not READS.match(each.sql)]
        found = _first(workshop, every[::-1])
        sql = {statement.address: statement.sql for statement in every}
        struck = " ".join(sql[found.address].split()) if found else ""
        return len(every), found and Harm("an SQL statement", struck, found.reason)


def first_broken_publishing(agent: Agent, root: Path) -> tuple[int, Harm | None]:
    """Kills before the system calls that publish the report, likewise. Raises NotFound without
    strace."""
    with FastWorkshop(_scenario(agent), root) as workshop:
        every = [kill for kill in syscalls.plan(workshop) if kill.call.path.startswith("artifacts")]
        found = _first(workshop, [Whole(kill) for kill in every])
        names = {kill.address: f"{kill.call.name} of {kill.call.path}" for kill in every}
        return len(every), found and Harm("a system call", names[found.address], found.reason)


def _first(workshop: Workshop, injuries: Sequence[Injury]) -> Verdict | None:
    """The first that is broken; some at a time, so that none is tried for nothing.

    Raises LabkitError for one that is unknown: it would say nothing of those that follow.
    """
    for at in range(0, len(injuries), SOME):
        report = sweep(workshop, [[injury] for injury in injuries[at : at + SOME]])
        for verdict in report.verdicts:
            if not verdict.delivered or verdict.outcome == UNKNOWN:
                raise LabkitError(f"{verdict.address}: {verdict.reason}")
            if verdict.outcome == BROKEN:
                return verdict
    return None


def _scenario(agent: Agent) -> Scenario:
    """As the sweeps of the matrix have it; the ids of its runs are told in words, so they are the
    same each time."""
    return Scenario(
        run=agent.argv("run", "t"),
        setup=agent.argv("create", "t", "plan.json"),
        check=judge_folder,
        material={"plan.json": PLAN, "input/notes.txt": NOTES},
        environ={**agent.environ, "LABKIT_RUN_IDS": ",".join(RUN_IDS)},
        max_restarts=2,
        timeout_s=LIMIT_S,
    )

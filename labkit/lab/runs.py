"""Durable runs in a notebook: what left the agent, where it can be killed, every kill in a table.

The agent is `labkit.lab.scenarios.dispatch`, always in a process of its own, so a notebook starts
and kills it with the usual verbs: `lab.run("dispatch go pump", AGENT_CRASH_AT="boundary:7")`. Each
process starts a minute after the one before, when any lease of a killed one has expired.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import textwrap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from labkit.chaos.forkserver import ForkServer
from labkit.chaos.mutants import Mutant, plant, read_mutants
from labkit.chaos.scenario import scratch
from labkit.durable import Runner
from labkit.errors import LabkitError, UsageError, storage_faults
from labkit.journal.bounded import LARGEST_LIST, read_text
from labkit.lab import verbs
from labkit.lab.folder import (
    BETWEEN_STARTS_S,
    FIRST_START,
    Folder,
    fresh_folder,
    new_directory,
    session,
)
from labkit.lab.listing import Listing
from labkit.lab.scenarios import dispatch
from labkit.lab.scenarios import places as named_places
from labkit.lab.scenarios.places import WRITTEN

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Answer",
    "Kill",
    "Message",
    "Trials",
    "answer_all",
    "build_package",
    "commits",
    "difference",
    "messages",
    "outbox",
    "places",
    "runner",
    "sweep",
    "tabulate",
    "tabulate_answers",
    "use",
]

SCENARIO = "pump"
PROGRAM = "labkit.lab.scenarios.dispatch"
FIRST = "labkit.durable labkit.chaos.examples.programs.durable_run labkit.lab.scenarios.places"
LIMIT_S = 10.0
UNPROVED = ("notify is called", "the result of model-1.tool-1 is stored")  # around the message
ENDS = {0: "SUCCEEDED", 4: "WAITING"}
AT_ONCE = 2


class Message(NamedTuple):
    """One message as its receiver has it, with what the tool wrote on it."""

    key: str
    attempt: str
    text: str


class Kill(NamedTuple):
    """A process killed at one place, and what a second one made of it. `messages` went out, and
    `calls` were made by both."""

    boundary: int
    place: str
    ends: str
    messages: int
    calls: tuple[str, ...] = ()


class Answer(NamedTuple):
    """An answer to a run that waits: the messages `before` it, how the run ends, and after it."""

    answer: str
    before: int
    ends: str
    messages: int


def messages(folder: Folder | Path) -> list[Message]:
    """What is in the outbox of a folder, the oldest first. It is no part of the store.

    Raises BadInput for an outbox that nobody can read to its end.
    """
    path = (folder.path if isinstance(folder, Folder) else folder) / dispatch.OUTBOX
    text = read_text(path, LARGEST_LIST) or ""
    # Somebody may have written into it by hand; what is there is a message all the same.
    return [Message(*(*line.split("  ", 2), "", "")[:3]) for line in text.splitlines()]


def outbox() -> pd.DataFrame:
    """The messages that have gone out in this folder: key, attempt, text."""
    import pandas as pd

    return pd.DataFrame(messages(verbs.current_folder()), columns=Message._fields)


def runner(owner: str = "you") -> Runner:
    """A runner in this Python, over the store of this folder: for `await` in a cell.

    Its clock stands still, a minute after the start of the last process. It is closed when the
    notebook ends. What is to be killed runs in a process: `lab.run`.
    """
    current = verbs.current_notebook()
    folder = current.folder
    made = dispatch.runner(folder.path, owner, folder.next_start)
    current.beside[f"runner {len(current.beside)}"] = made.store  # type: ignore[assignment]
    return made


def places(definition: str = "notice") -> pd.DataFrame:
    """Where a run that nobody kills could be killed: before what. The index is N of boundary:N."""
    import pandas as pd

    with Trials() as trials:
        names = list(trials.record(definition))
    return pd.DataFrame({"before": names}).rename_axis("boundary")


def commits(doing: str, mutant: str = "") -> pd.DataFrame:
    """Which tables are written to in which transaction while that is done: one row for each.

    `doing` is a place, as "the result of model-1.tool-1 is stored". Raises UsageError.
    """
    import pandas as pd

    with Trials(mutant) as trials:
        recorded = trials.record("notice")
    found = {place: tables for place, tables in recorded.items() if place.startswith(doing)}
    if doing not in found:
        raise UsageError(f"a run never comes to {doing!r}; runs.places() lists the places")
    rows = [", ".join(dict.fromkeys(tables)) for tables in found.values()]
    return pd.DataFrame({"writes to": rows}, index=pd.RangeIndex(1, len(rows) + 1, name="commit"))


def use(mutant: str) -> None:
    """What is started in this folder from now on is the runtime with this difference.

    Raises UsageError for a name that `labkit/chaos/mutants/durable.toml` does not have.
    """
    current = verbs.current_notebook()
    package = build_package(_named(mutant), current.root)
    path = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
    current.folder.unprinted = {**current.folder.unprinted, "PYTHONPATH": path}


def difference(mutant: str) -> Listing:
    """What `use` would change, line by line; the lines that come before it in its file are left
    out, and so are edits without which the difference could not be made."""
    found = _named(mutant)
    gone = [f"-{line}" for line in textwrap.dedent(found.old).strip("\n").splitlines()]
    come = [f"+{line}" for line in textwrap.dedent(found.new).strip("\n").splitlines()]
    return Listing("\n".join(gone + come), "diff")


def sweep(definition: str = "notice", *, mutant: str = "") -> list[Kill]:
    """One trial for each place: a process is killed there, a second one goes on with the run.

    Real processes and real kills, forked from a helper so that a notebook waits seconds. Raises
    LabkitError if a kill was asked for and did not come.
    """
    with Trials(mutant) as trials:
        names = list(trials.record(definition))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            each = pool.map(lambda at: trials.kill(definition, *at), enumerate(names))
            return list(each)


def answer_all() -> list[Answer]:
    """Each answer to a run that waits: with its message not sent, and with its message sent."""
    every = [(place, answer) for place in UNPROVED for answer in dispatch.RESOLUTIONS]
    with Trials() as trials, ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda each: trials.answer(*each), every))


def tabulate_answers(answers: Sequence[Answer]) -> pd.DataFrame:
    """One row for each answer: what became of the run, and how many messages Kim has."""
    import pandas as pd

    rows: dict[str, dict[str, object]] = {}
    for each in answers:
        found = "sent" if each.before else "not sent"
        row = rows.setdefault(each.answer, {})
        row |= {f"{found}: the run": each.ends, f"{found}: messages": each.messages}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("answer")


def tabulate(kills: Sequence[Kill]) -> pd.DataFrame:
    """One row for each kill, in the order of the places."""
    import pandas as pd

    columns = ["boundary", "killed before", "then the run is", "messages"]
    return pd.DataFrame([kill[:4] for kill in kills], columns=columns).set_index("boundary")


def _calls(folder: Path) -> tuple[str, ...]:
    return tuple((read_text(folder / dispatch.CALLS, LARGEST_LIST) or "").splitlines())


class Trials:
    """Fresh folders in memory, and a helper process for each thread that forks the agents."""

    def __init__(self, mutant: str = "") -> None:
        chosen = _named(mutant) if mutant else None
        self._place = tempfile.TemporaryDirectory(prefix="labkit-runs-", dir=scratch())
        self.root = Path(self._place.name)
        package = [str(build_package(chosen, self.root))] if chosen else []
        where = os.pathsep.join([*package, *filter(None, [os.environ.get("PYTHONPATH")])])
        mark = {"LABKIT_SESSION": session()}  # by which a test finds what was left alive
        self._environ = {"LABKIT_FIRST": FIRST, "PYTHONPATH": where, **mark}
        self._servers = [ForkServer(self._environ) for _ in range(AT_ONCE)]
        self._idle: SimpleQueue[ForkServer] = SimpleQueue()
        for server in self._servers:
            self._idle.put(server)

    def record(self, definition: str) -> dict[str, list[str]]:
        """Each place of a run that nobody kills, with the tables that its transaction writes to."""
        folder = fresh_folder(self.root, "unharmed", SCENARIO).path
        code, said = self.call(folder, 0, "go", "pump", definition, LABKIT_PLACES="places")
        if code:
            raise LabkitError(f"not even the run that nobody kills ends well: {said}")
        found: dict[str, list[str]] = {}
        for line in (folder / "places").read_text(encoding="utf-8").splitlines():
            if line.startswith(WRITTEN):
                found[list(found)[-1]].append(line.removeprefix(WRITTEN))
            else:
                found[line] = []
        return found

    def kill(self, definition: str, boundary: int, place: str) -> Kill:
        folder = fresh_folder(self.root, f"boundary-{boundary}", SCENARIO).path
        self.die(folder, definition, AGENT_CRASH_AT=f"boundary:{boundary}")
        code, _ = self.call(folder, 1, "go", "pump", definition)
        ends = ENDS.get(code, f"exit {code}")
        return Kill(boundary, place, ends, len(messages(folder)), _calls(folder))

    def die(self, folder: Path, definition: str, **agent: str) -> None:
        """A process that is killed at that place. Raises LabkitError if it is not."""
        code, said = self.call(folder, 0, "go", "pump", definition, **agent)
        if code != -signal.SIGKILL:
            raise LabkitError(f"{agent} killed nothing, so this would prove nothing: {said}")

    def answer(self, place: str, answer: str) -> Answer:
        """A run that was killed at that place waits, and gets this answer."""
        folder = fresh_folder(self.root, f"{answer}-{place}".replace(" ", "-"), SCENARIO).path
        self.die(folder, "notice", AGENT_DIE_BEFORE=place)
        before = len(messages(folder))
        self.call(folder, 1, "go", "pump")
        _, said = self.call(folder, 2, "resolve", "pump", answer)
        return Answer(
            answer, before, said.strip().removeprefix("run pump is "), len(messages(folder))
        )

    def call(self, folder: Path, nth: int, *words: str, **agent: str) -> tuple[int, str]:
        """The n-th process in this folder: how it ended, and what it said."""
        usual = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_")}
        start = {"LABKIT_CLOCK": str(FIRST_START + BETWEEN_STARTS_S * nth)}
        server = self._idle.get()
        try:
            environ = {**usual, **self._environ, **start, **agent}
            return server.call([PROGRAM, *words], folder, environ, LIMIT_S)
        finally:
            self._idle.put(server)

    def stop(self) -> None:
        """Ends what runs: a call in another thread raises StorageFault then."""
        for server in self._servers:
            server.kill()

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *_: object) -> None:
        while self._servers:
            self._servers.pop().close()
        self._place.cleanup()


def _named(name: str) -> Mutant:
    known = {mutant.name: mutant for mutant in read_mutants("durable")}
    if name not in known:
        raise UsageError(f"no mutant is called {name!r}; there are {', '.join(known)}")
    return known[name]


def build_package(mutant: Mutant, root: Path) -> Path:
    """A folder with the mutant's package, and in it this lab's agent, which `plant` leaves out."""
    with storage_faults("cannot copy the runtime"):
        folder = plant(mutant, new_directory(root, f"runtime-{mutant.name.replace(' ', '-')}"))
        scenarios = folder / "labkit" / "lab" / "scenarios"
        scenarios.mkdir(parents=True)
        for module in (dispatch, named_places):
            shutil.copy(str(module.__file__), scenarios)
        for package in (scenarios, scenarios.parent):
            (package / "__init__.py").touch()
    return folder

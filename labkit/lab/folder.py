"""A run folder: fresh notes, a plan, one database, and the processes that work in it.

Everything a notebook shows must be the same on every machine, so a folder also fixes what its
processes take for the time and for their ids.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import as_file, files
from pathlib import Path

from labkit.errors import UsageError, storage_faults
from labkit.lab.process import NotReady, Process

__all__ = ["RUN_IDS", "Folder", "fresh_folder", "new_directory", "session"]

# Easy to tell apart in a table. A run past the last one gets its ordinal.
RUN_IDS = tuple(f"{letter * 7}{number}" for number, letter in enumerate("abcdef", start=1))
FIRST_START = 1_767_225_600  # 2026-01-01 00:00:00 UTC
BETWEEN_STARTS_S = 60

PROGRAMS = {  # first word of a command: (how a terminal types it, what Python is given for it)
    "agent": ("labkit agent", ("labkit", "agent")),
    "naive": ("python -m labkit.lab.scenarios.naive", ("labkit.lab.scenarios.naive",)),
    "journal": ("labkit journal", ("labkit", "journal")),
    "runs": ("labkit runs", ("labkit", "runs")),
    "dispatch": ("python -m labkit.lab.scenarios.dispatch", ("labkit.lab.scenarios.dispatch",)),
}
# An agent ignores a variable that it does not know, and a misspelt one would kill nothing.
SETTINGS = (
    "AGENT_ARTIFACTS", "AGENT_BUDGET", "AGENT_CRASH_AT", "AGENT_DECLARE", "AGENT_DIE_BEFORE",
    "AGENT_HOLD", "AGENT_LLM", "AGENT_MAX_ATTEMPTS", "AGENT_NOTES", "AGENT_OWNER",
    "AGENT_STEP_DELAY", "AGENT_STOP_BEFORE", "AGENT_TOOLS", "AGENT_UNSAFE_EFFECTS", "AGENT_VERSION",
)  # fmt: skip
CLOCK = "LABKIT_CLOCK"  # may be given too: a machine whose clock was put back


class Folder:
    """A folder on disk, and the record of which processes were started in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.processes: list[Process] = []
        self._closed = False
        # What every process here is given and no command shows: it differs by machine, as a port.
        self.unprinted: Mapping[str, str] = {}

    @property
    def database(self) -> Path:
        return self.path / "state.db"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    @property
    def next_start(self) -> int:
        """The time, in Unix seconds, at which the next process here starts."""
        return FIRST_START + BETWEEN_STARTS_S * len(self.processes)

    def start(self, command: str, agent: Mapping[str, object]) -> Process:
        """Starts `command`, such as "agent run notes", with these AGENT_* variables.

        LABKIT_CLOCK may be among them, and replaces the time that the folder gives. Raises
        UsageError for a program or a variable that the lab does not know, NotReady in a folder
        that is closed.
        """
        words = _split(command)
        if not words or words[0] not in PROGRAMS:
            known = " or ".join(repr(f"{name} ...") for name in PROGRAMS)
            raise UsageError(f"the lab cannot start {command!r}; use {known}")
        for name in agent:
            if name not in (*SETTINGS, CLOCK):
                raise UsageError(f"{name} is no setting of an agent; use {', '.join(SETTINGS)}")
        typed, module = PROGRAMS[words[0]]
        given = {name: str(value) for name, value in agent.items()}  # AGENT_STEP_DELAY=60 too
        settings = (f"{key}={shlex.quote(value)}" for key, value in given.items())
        with _interrupt_waits() as interrupts:
            started = Process(
                number=len(self.processes) + 1,
                typed=_printable(" ".join([*settings, typed, *map(shlex.quote, words[1:])])),
                argv=[sys.executable, "-m", *module, *words[1:]],
                folder=self.path,
                environ={**self._environ(), **given},
            )
            self.processes.append(started)
        if interrupts or self._closed:
            started.close()
        if interrupts:
            raise KeyboardInterrupt
        if self._closed:  # while a thread was at work here, which then goes no further
            raise NotReady("this folder was closed; run the cells from lab.begin on again")
        return started

    def close(self) -> list[Process]:
        """Kills what still runs here and returns it; nothing can be started here any more."""
        self._closed = True
        return [process for process in self.processes if process.close()]

    def _environ(self) -> dict[str, str]:
        """The learner's environment without anything that would change what an agent does."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_")}
        return {
            **kept,
            **self.unprinted,
            CLOCK: str(self.next_start),
            "LABKIT_RUN_IDS": ",".join(RUN_IDS),
            "LABKIT_SESSION": session(),
            # A killed process has said what it would have said in a terminal, line by line.
            "PYTHONUNBUFFERED": "1",
        }


def fresh_folder(parent: Path, name: str, scenario: str = "notes") -> Folder:
    """Makes a folder that did not exist, with the notes and the plan of a scenario in it."""
    path = new_directory(parent, name)
    doing = storage_faults(f"cannot fill {path}")
    with doing, as_file(files("labkit.lab") / "scenarios" / scenario) as notes:
        shutil.copytree(notes, path, dirs_exist_ok=True)
    return Folder(path)


def new_directory(parent: Path, name: str | None = None) -> Path:
    """Makes a directory that did not exist.

    Without a name, or with one that is taken, a number makes it new: nothing is ever deleted, since
    a database may be open in another notebook. Raises StorageFault.
    """
    with storage_faults(f"cannot make a folder in {parent}"):
        parent.mkdir(parents=True, exist_ok=True)
        for count in itertools.count(1):
            numbered = f"{count:03d}" if name is None else f"{name}-{count}"
            path = parent / (name if name and count == 1 else numbered)
            with suppress(FileExistsError):
                path.mkdir()
                break
    return path


@contextmanager
def _interrupt_waits() -> Iterator[list[int]]:
    """Gives the interrupts that came: a process that is in no list yet could never be ended.

    Rejected: to block the signal, since the process would inherit that.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came  # Python hands signals to the main thread only
        return
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UsageError(f"the lab cannot read {command!r}: {error}; close the quote") from None


def _printable(line: str) -> str:
    """A name of a file need not be text."""
    return line.encode("utf-8", "backslashreplace").decode()


def session() -> str:
    """A mark that every child inherits, so that a test can find one that was left alive."""
    return os.environ.setdefault("LABKIT_SESSION", secrets.token_hex(8))

"""One process that the lab started: run it to its end, wait for its journal, or kill it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from labkit import guard
from labkit.errors import LabkitError, StorageBusy, StorageFault, storage_faults
from labkit.journal.reading import snapshot

__all__ = ["NotReady", "Process", "Result", "exit_in_words"]

TIMEOUT_S = 30.0
LOOK_AGAIN_S = 0.01
BRIEF_S = 0.5  # for a file that is locked: a click on Run or Reset waits for it
STEPS = 20_000_000  # of SQLite's machine, a second or two: more than a million events take

EXIT_WORDS = {
    0: "done",
    1: "unknown task",
    2: "the task failed",
    3: "another process has the task",
    4: "the run waits for an answer",
    64: "wrong command line or environment",
    65: "bad input",
    66: "not found",
    74: "storage fault",
    75: "the database stayed busy",
    130: "interrupted",
}


class NotReady(LabkitError):
    """A verb was called before what it needs is there; the message says which cell to run."""

    exit_code = 64


class Result(NamedTuple):
    """How a process ended. Shown as words; `code` is negative after a signal."""

    typed: str
    code: int
    output: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    def __repr__(self) -> str:
        return exit_in_words(self.code)


class Process:
    """A running command under the guard. It dies when this Python dies, however that ends."""

    def __init__(
        self, *, number: int, typed: str, argv: list[str], folder: Path, environ: dict[str, str]
    ) -> None:
        self.number, self.typed = number, typed
        self._database = folder / "state.db"
        # What lies between is the work of this process; the lab never starts two at one task, save
        # where the second is refused, and that one writes nothing.
        self._seq_before = _last_seq(self._database)
        self._seq_after: int | None = None  # while it runs, and where nobody can say
        self._ended: Result | None = None
        self._ending = threading.RLock()  # one thread waits for it, and another one ends it
        # A file, not a pipe: nobody has to read while the process runs, and the output of a killed
        # process is complete. It has no name, so the run folder shows only what the agent made.
        with storage_faults(f"cannot start {typed}"):
            self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed by _end)
            try:
                self._guarded = guard.start(
                    argv, cwd=str(folder), env=environ, stdout=self._output, stderr=self._output
                )
            except BaseException:  # its folder is gone
                self._output.close()
                raise

    @property
    def alive(self) -> bool:
        return self._guarded.poll() is None

    @property
    def state(self) -> str:
        if (code := self._guarded.poll()) is not None:
            return exit_in_words(code)
        return "paused" if self.paused else "running"

    @property
    def killed(self) -> bool:
        return self._guarded.poll() == -signal.SIGKILL

    def runs(self, task: str, following: Process | None = None) -> list[str]:
        """Each run of the task that this process has begun, by `run_id`; of a durable run each
        advance, by its owner and epoch, as `ann#2`. `following` is what was started next, if it
        was.

        Empty where nobody can say: the database was locked when it began, or both when it ended
        and when the next one began.
        """
        since, until = self._seq_before, self._until(following)
        if since is None or until is None:
            return []
        found = _ask(
            self._database,
            "SELECT group_concat(coalesce(owner, run_id)) FROM journal "
            "WHERE kind = 'run_started' AND task_id = ? AND seq > ? AND seq <= ?",
            task,
            since,
            until,
        )
        return found.split(",") if found else []

    def _until(self, following: Process | None) -> int | None:
        """The last event that can be its own."""
        if self._seq_after is not None:
            return self._seq_after
        if following is not None and not self.alive:
            return following._seq_before
        return _last_seq(self._database)

    def __repr__(self) -> str:
        return f"process {self.number} ({self.typed}): {self.state}"

    def finish(self, timeout_s: float = TIMEOUT_S) -> Result:
        """Waits for the end. Raises NotReady after `timeout_s`, with the process killed."""
        try:
            self._guarded.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._end()
            raise NotReady(
                f"process {self.number} ({self.typed}) had not ended after {timeout_s:g} s and was "
                "killed; use lab.start for a process that is meant to wait"
            ) from None
        except BaseException:  # Interrupt in the notebook: leave no process behind
            self._end()
            raise
        return self._end()

    def kill(self) -> Result:
        """SIGKILL, and waits until it has ended. Raises NotReady if it had ended before."""
        if not self.alive:
            raise NotReady(
                f"process {self.number} has ended already ({self.state}); "
                "run the cell that starts it again, then this one"
            )
        return self._end()

    @property
    def paused(self) -> bool:
        """Stopped by SIGSTOP: it is there, and does nothing. The system says so, not we."""
        return self.alive and _state_of(self._guarded.pid).startswith("T")

    def pause(self) -> None:
        """SIGSTOP, which no program can catch; returns once it is paused, or has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self._guarded.pid, signal.SIGSTOP)
        while self.alive and not self.paused:
            time.sleep(LOOK_AGAIN_S)

    def wake(self) -> None:
        """SIGCONT: it goes on, and knows nothing of the time in between."""
        with suppress(ProcessLookupError):
            os.killpg(self._guarded.pid, signal.SIGCONT)

    def close(self) -> bool:
        """Ends the process if it still runs, and says whether it did."""
        was_alive = self.alive
        self._end()
        return was_alive

    def wait_for(self, kind: str, step_idx: int | None, timeout_s: float = TIMEOUT_S) -> None:
        """Returns once this process has added an event of that kind (of that step) to the journal.

        Raises NotReady when the process ends without it, or after `timeout_s`; and where nobody
        can say what it wrote.
        """
        if self._seq_before is None:
            raise NotReady(
                f"nobody can tell what process {self.number} wrote: state.db was locked or damaged "
                "when it started; run the cells from lab.begin on again"
            )
        wanted = kind if step_idx is None else f"{kind} of step {step_idx}"
        end = time.monotonic() + timeout_s
        while True:
            running = self.alive  # before the look: what it wrote last must still be found
            if self._has_written(kind, step_idx):
                return
            if not running:
                raise NotReady(
                    f"process {self.number} ended ({self.state}) before the journal had "
                    f"{wanted}; run the cells from lab.begin on again{self._last_words()}"
                )
            if time.monotonic() > end:
                raise NotReady(
                    f"no {wanted} in the journal after {timeout_s:g} s; process {self.number} "
                    "still runs: end it with lab.kill, then run the cells from lab.begin on again"
                )
            time.sleep(LOOK_AGAIN_S)

    def _has_written(self, kind: str, step_idx: int | None) -> bool:
        return bool(
            _ask(
                self._database,
                "SELECT count(*) FROM journal "
                "WHERE seq > ? AND kind = ? AND (? IS NULL OR step_idx = ?)",
                self._seq_before,
                kind,
                step_idx,
                step_idx,
            )
        )

    def _last_words(self) -> str:
        lines = self._end().output.splitlines()
        return f". Its last line was: {lines[-1]}" if lines else ""

    def _end(self) -> Result:
        with self._ending:
            if self._ended is None:
                code = self._guarded.kill()
                self._output.seek(0)
                text = self._output.read().decode("utf-8", "replace")
                self._ended = Result(self.typed, code, text)
                self._output.close()
                self._seq_after = _last_seq(self._database)
            return self._ended


def exit_in_words(code: int) -> str:
    """An exit status as Popen has it: "killed by SIGKILL", "exit 0: done"."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit {code}: {EXIT_WORDS.get(code, 'see the output above')}"


def _state_of(pid: int) -> str:
    """The letter of a process's state, T for one that is stopped. Without /proc, `ps` knows it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][:1]
    except FileNotFoundError:
        with suppress(OSError):
            command = ["ps", "-o", "state=", "-p", str(pid)]
            return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return ""


def _last_seq(database: Path) -> int | None:
    """0 while there is no event; None where nobody can say. A learner may have spoiled or locked
    the file, and the agent is to say so, not we."""
    try:
        last = _ask(database, "SELECT max(seq) FROM journal", busy_s=BRIEF_S) or 0
    except (LabkitError, StorageFault, StorageBusy):
        return None
    return last if isinstance(last, int) else None


def _ask(database: Path, question: str, *values: object, busy_s: float | None = None) -> Any:
    """One value from a journal that may not be there yet; None then. Raises as `snapshot`, and
    BadInput for a journal without an end."""
    if not database.exists():
        return None
    with snapshot(str(database), busy_s) as reader:
        reader.bound(STEPS)
        # An interrupted `create` leaves a database without a schema.
        return reader.value(question, *values) if reader.has_journal else None

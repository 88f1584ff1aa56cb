"""What is broken on purpose: a program, how it is set up and run, and who judges what is left.

A `Workshop` holds the unharmed reference of one scenario and opens trials of it. A `Trial` is one
fresh folder; nothing that it starts outlives it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from labkit import guard
from labkit.chaos.prepared import Prepared, keep
from labkit.errors import NotFound, UsageError
from labkit.guard import Guarded
from labkit.journal import bounded

__all__ = ["Broken", "Ended", "Left", "NotDelivered", "Scenario", "Trial", "Workshop", "scratch"]

TIMEOUT_S = 30.0
OUTPUT_MAX = 400
FREE_MIN = 1 << 18  # bytes
ESCAPED_S = 2.0
TAIL = 1 << 16  # what is read of a long output
Argv = Sequence[str]
Check = Callable[[Path], Iterable[str]] | Argv


class NotDelivered(Exception):
    """The injury did not strike where it was planned, so the trial says nothing."""


class Broken(Exception):
    """The harmed run itself did what it must not do, whatever a restart makes of it."""


class Scenario(NamedTuple):
    """A program for the kit.

    `setup` runs unharmed, `run` is harmed and then run again until it ends as the unharmed one did.
    `check` is an argv (exit 0 held, 1 broken, else unknown) or a function from the folder to the
    faults that it finds. `witness` is a file with a line for each effect, the effect's key first:
    by default the one that the variable WITNESS names, outside the folder. `files` are paths, or
    patterns of paths, in the folder that must be there at the end. `material`, a folder or texts by
    their paths, is copied into each fresh folder. `clean_exits` are the exit codes for a storage
    fault, each with one line and no traceback; without them any failure will do that is no signal.
    `points` are the names of the crash points that the program declares, by default those of the
    restart agent. `at_injury` sees the folder after each injury, before anything runs again: it may
    write down there what the check is to expect.
    """

    run: Argv
    setup: Argv = ()
    check: Check = ()
    witness: str = ""
    files: Sequence[str] = ()
    material: Path | Mapping[str, str] | None = None
    environ: Mapping[str, str] = {}
    max_restarts: int = 10
    timeout_s: float = TIMEOUT_S
    clean_exits: Sequence[int] = ()
    points: Sequence[str] = ()
    at_injury: Callable[[Path], None] | None = None


class Ended(NamedTuple):
    """How one process ended: its status as Popen has it, and the end of what it said."""

    code: int
    said: str


class Left(NamedTuple):
    """What a trial left: how often each effect happened, and which of the files are there."""

    effects: Counter[str]
    files: frozenset[str]


class Trial:
    """One fresh folder. It is the working directory of every command; HOME and TMPDIR are in it.

    The witness and what the kit itself writes lie beside the folder, out of the program's way.
    """

    def __init__(
        self,
        scenario: Scenario,
        root: Path,
        bytecode: Path,
        prepared: Prepared | None = None,
        running: Running | None = None,
    ) -> None:
        self.scenario = scenario
        self.root = Path(tempfile.mkdtemp(prefix="trial-", dir=root))
        self.running, self._started = running, False
        self.folder, self.witness = self.root / "folder", self.root / "witness"
        if prepared:
            prepared.copy_to(self.root)
        elif isinstance(scenario.material, Path):
            _copy(scenario.material, self.folder)
        else:
            _write(scenario.material or {}, self.folder)
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        usual = {k: v for k, v in os.environ.items() if not k.startswith("AGENT_")}
        # Bytecode outside the folder: made by the unharmed run, then the same for every trial.
        usual.pop("PYTHONDONTWRITEBYTECODE", None)
        self.environ = {
            **usual,
            "PYTHONPYCACHEPREFIX": str(bytecode),
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "WITNESS": str(self.witness),
            **scenario.environ,
        }

    def call(
        self, argv: Argv, meanwhile: Callable[[Guarded], None] | None = None, /, **environ: str
    ) -> Ended:
        """Runs a command to its end in the folder, and `meanwhile` what may end it early.

        Raises NotDelivered if it takes too long, or if nothing can run since the folder is gone.
        """
        if not self.folder.is_dir():
            raise NotDelivered("the folder of the trial is gone: the program removed it")
        self._started = True
        with tempfile.TemporaryFile() as output:
            try:
                process = guard.start(
                    list(argv), cwd=str(self.folder), env={**self.environ, **environ},
                    stdout=output, stderr=output,
                )  # fmt: skip
            except OSError as error:
                raise NotFound(f"cannot start {argv[0]}: {error.strerror}") from None
            with process, self.running.holding(process) if self.running else nullcontext():
                if meanwhile:
                    meanwhile(process)
                try:
                    code = process.wait(self.scenario.timeout_s)
                except subprocess.TimeoutExpired:
                    raise NotDelivered(_too_long(argv, self.scenario.timeout_s)) from None
            output.seek(max(0, output.seek(0, os.SEEK_END) - TAIL))
            return Ended(code, output.read().decode("utf-8", "replace").strip()[-OUTPUT_MAX:])

    def set_up(self) -> None:
        """Raises UsageError if the unharmed setup fails: then there is nothing to break."""
        if self.scenario.setup and (ended := self.call(self.scenario.setup)).code:
            raise UsageError(f"the setup exits {ended.code}: {ended.said}")

    def restart(self, wanted: int) -> Ended:
        """Runs unharmed until it ends as wanted. Raises NotDelivered after `max_restarts`."""
        for _ in range(self.scenario.max_restarts):
            if (ended := self.call(self.scenario.run)).code == wanted:
                return ended
        restarts = f"{self.scenario.max_restarts} restarts"
        raise NotDelivered(f"the run has not ended after {restarts}: {ended.said}")

    def look(self) -> Left:
        """What is left, seen from outside. Raises NotDelivered if no witness can be read."""
        witness = self.folder / self.scenario.witness if self.scenario.witness else self.witness
        lines: list[str] = []
        if os.path.lexists(witness):
            lines = _lines_of(witness)
        found = (
            path.relative_to(self.folder).as_posix()
            for pattern in self.scenario.files
            for path in self.folder.glob(pattern)
        )
        return Left(Counter(line.split()[0] for line in lines if line.strip()), frozenset(found))

    def check(self) -> tuple[str, str]:
        """The verdict of the scenario's own check: an outcome and a reason."""
        check = self.scenario.check
        if callable(check):
            faults = list(check(self.folder))
            return ("broken", "; ".join(faults)) if faults else ("held", "")
        if not check:
            return "held", ""
        ended = self.call(check)
        outcome = {0: "held", 1: "broken"}.get(ended.code, "unknown")
        return outcome, f"the check exits {ended.code}: {ended.said}" if ended.code else ""

    def close(self) -> None:
        if self._started:
            end_escaped(self.root)
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> Trial:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Running:
    """The commands that run now, so that all of them can be ended when nobody waits any more."""

    def __init__(self) -> None:
        self._processes: set[Guarded] = set()
        self._stopped = False
        self.ends: list[Callable[[], None]] = []

    @contextmanager
    def holding(self, process: Guarded) -> Iterator[None]:
        """Raises NotDelivered if no command is to run any more."""
        self._processes.add(process)
        try:
            if self._stopped:
                raise NotDelivered("interrupted")
            yield
        finally:
            self._processes.discard(process)

    def stop(self) -> None:
        self._stopped = True
        for process in list(self._processes):
            process.kill()
        for end in self.ends:
            end()


class Workshop:
    """A scenario with its unharmed reference. Raises UsageError if not even that one holds."""

    def __init__(self, scenario: Scenario, root: Path) -> None:
        self.scenario, self.root = scenario, root
        self.outside: set[str] = set()  # what a recorded run wrote elsewhere
        self.bytecode, self.running = root / "bytecode", Running()
        self.prepared: Prepared | None = None
        try:
            with self.open() as trial:
                self.prepared = keep(trial.root, trial.folder, trial.root.with_suffix(".prepared"))
                ended = trial.call(scenario.run)
                self.code = ended.code
                outcome, reason = trial.check()  # first: it may run the program further
                self.left = trial.look()
        except NotDelivered as why:
            raise UsageError(f"not even the unharmed run holds: {why}") from None
        if self.code < 0:  # nobody could tell that from a kill
            said = f"signal {-self.code} ends it: {ended.said}"
            raise UsageError(f"not even the unharmed run holds: {said}")
        if outcome != "held":
            raise UsageError(f"not even the unharmed run holds: {reason}")

    def open(self) -> Trial:
        """A fresh trial, set up; by a copy where a copy is the same."""
        trial = self.make_trial()
        if not self.prepared:
            trial.set_up()
        return trial

    def make_trial(self) -> Trial:
        """A fresh trial; as the setup left it, where that is kept."""
        return Trial(self.scenario, self.root, self.bytecode, self.prepared, self.running)

    def judge(self, trial: Trial) -> tuple[str, str]:
        """What is left against the reference: an outcome, and the faults in words."""
        outcome, reason = trial.check()
        left = trial.look()
        faults = [reason] if reason else []
        faults += _compare(left.effects, self.left.effects)
        faults += [f"{name} is gone" for name in sorted(self.left.files - left.files)]
        if outcome != "unknown" and faults:
            outcome = "broken"
        if outcome == "broken" and _is_full(trial.root):
            return "unknown", f"the kit's own storage is full, {trial.root}: {'; '.join(faults)}"
        return outcome, "; ".join(faults)


def _write(texts: Mapping[str, str], folder: Path) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _copy(material: Path, folder: Path) -> None:
    """What links lead to is copied too: a trial must not write to the original through a link."""
    try:
        shutil.copytree(material, folder, ignore_dangling_symlinks=True)
    except (shutil.Error, OSError) as error:
        first = error.args[0][0] if isinstance(error, shutil.Error) else (error.filename, "", error)
        raise UsageError(f"the material cannot be copied: {first[0]}: {first[2]}") from None


def _lines_of(witness: Path) -> list[str]:
    try:
        return bounded.read(witness).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise NotDelivered(f"the witness cannot be read: {error.strerror}") from None


def _too_long(argv: Argv, timeout_s: float) -> str:
    told = argv[argv.index("--") + 1 :] if argv[0] == "strace" and "--" in argv else argv
    return f"`{' '.join(told)}` had not ended after {timeout_s:g} s"


def end_escaped(root: Path) -> None:
    """Ends what left its process group to outlive its trial: it still has the trial's WITNESS in
    its environment. Where there is no /proc nothing is found."""
    mine = b"\0WITNESS=" + os.fsencode(root) + b"/"
    until = time.monotonic() + ESCAPED_S  # they may start others meanwhile
    while any([_kill_if(mine, process) for process in Path("/proc").glob("[0-9]*")]):
        if time.monotonic() > until:
            return
        time.sleep(0.005)


def _kill_if(mine: bytes, process: Path) -> bool:
    with suppress(OSError):
        if mine in b"\0" + (process / "environ").read_bytes():
            os.kill(int(process.name), signal.SIGKILL)
            return True
    return False


def _is_full(folder: Path) -> bool:
    """Then a program may have failed for want of space, which nobody injected."""
    storage = os.statvfs(folder)
    return storage.f_bavail * storage.f_frsize < FREE_MIN


def _compare(seen: Counter[str], wanted: Counter[str]) -> list[str]:
    keys = sorted(seen.keys() | wanted.keys())
    return [
        f"effect {key} happened {seen[key]} times, unharmed {wanted[key]}"
        for key in keys
        if seen[key] != wanted[key]
    ]


def scratch() -> str | None:
    """In memory where possible: a kill keeps the page cache, so it proves the same, faster."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

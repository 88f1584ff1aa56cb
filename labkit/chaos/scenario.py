"""What is broken on purpose: a program, how it is set up and run, and who judges what is left.

A `Workshop` holds the unharmed reference of one scenario and opens trials of it. A `Trial` is one
fresh folder; nothing that it starts outlives it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from labkit import guard
from labkit.errors import NotFound, UsageError
from labkit.guard import Guarded

__all__ = ["Broken", "Ended", "Left", "NotDelivered", "Scenario", "Trial", "Workshop", "scratch"]

TIMEOUT_S = 30.0
OUTPUT_MAX = 400
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
        self, scenario: Scenario, root: Path, bytecode: Path, prepared: Path | None = None
    ) -> None:
        self.scenario = scenario
        self.root = Path(tempfile.mkdtemp(prefix="trial-", dir=root))
        self.folder, self.witness = self.root / "folder", self.root / "witness"
        if prepared:
            shutil.copytree(prepared, self.root, symlinks=True, dirs_exist_ok=True)
        elif isinstance(scenario.material, Path):
            shutil.copytree(scenario.material, self.folder)
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

        Raises NotDelivered if it takes too long.
        """
        with tempfile.TemporaryFile() as output:
            try:
                process = guard.start(
                    list(argv), cwd=str(self.folder), env={**self.environ, **environ},
                    stdout=output, stderr=output,
                )  # fmt: skip
            except OSError as error:
                raise NotFound(f"cannot start {argv[0]}: {error.strerror}") from None
            with process:
                if meanwhile:
                    meanwhile(process)
                try:
                    code = process.wait(self.scenario.timeout_s)
                except subprocess.TimeoutExpired:
                    took = f"`{' '.join(argv)}` had not ended after {self.scenario.timeout_s:g} s"
                    raise NotDelivered(took) from None
            output.seek(0)
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
        """What is left, seen from outside."""
        witness = self.folder / self.scenario.witness if self.scenario.witness else self.witness
        lines: list[str] = []
        with suppress(FileNotFoundError):
            lines = witness.read_text(encoding="utf-8", errors="replace").splitlines()
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


class Workshop:
    """A scenario with its unharmed reference. Raises UsageError if not even that one holds."""

    def __init__(self, scenario: Scenario, root: Path) -> None:
        self.scenario, self.root = scenario, root
        self.bytecode, self.prepared = root / "bytecode", None
        with self.open() as trial:
            self.prepared = _keep(trial)
            self.code = trial.call(scenario.run).code
            outcome, reason = trial.check()  # first: it may run the program further
            self.left = trial.look()
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
        return Trial(self.scenario, self.root, self.bytecode, self.prepared)

    def judge(self, trial: Trial) -> tuple[str, str]:
        """What is left against the reference: an outcome, and the faults in words."""
        outcome, reason = trial.check()
        left = trial.look()
        faults = [reason] if reason else []
        faults += _compare(left.effects, self.left.effects)
        faults += [f"{name} is gone" for name in sorted(self.left.files - left.files)]
        if outcome != "unknown" and faults:
            outcome = "broken"
        return outcome, "; ".join(faults)


def _write(texts: Mapping[str, str], folder: Path) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _compare(seen: Counter[str], wanted: Counter[str]) -> list[str]:
    keys = sorted(seen.keys() | wanted.keys())
    return [
        f"effect {key} happened {seen[key]} times, unharmed {wanted[key]}"
        for key in keys
        if seen[key] != wanted[key]
    ]


def _keep(trial: Trial) -> Path | None:
    """A copy of what the setup left; None if something in it names its own place, to which a copy
    would lead back, or if it cannot be copied."""
    names = {os.fsencode(trial.folder), os.fsencode(os.path.realpath(trial.folder))}
    kept = trial.root.with_suffix(".prepared")
    try:
        shutil.copytree(trial.root, kept, symlinks=True)
        for path in kept.rglob("*"):
            what = os.fsencode(path.readlink()) if path.is_symlink() else b""
            what = path.read_bytes() if path.is_file() and not what else what
            if what.startswith(b"/") or any(name in what for name in names):
                return None
    except (OSError, shutil.Error):
        return None
    return kept


def scratch() -> str | None:
    """In memory where possible: a kill keeps the page cache, so it proves the same, faster."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

"""Who takes part, and how each is prepared, started and timed. All do the same no-op steps."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[1]
TIMEOUT_S = 600.0
AGENT = [sys.executable, "-m", "labkit.restart"]


class Contender:
    """A program of `steps` no-op steps that can be killed in one of them and started again."""

    def __init__(self, name: str, *argv: str, package: str = "") -> None:
        self.name, self.argv, self.package = name, [sys.executable, *argv], package
        self.is_installed = not package or importlib.util.find_spec(package) is not None

    def prepare(self, folder: Path, steps: int) -> None:
        """What has to be there before the first start."""


class Agent(Contender):
    def prepare(self, folder: Path, steps: int) -> None:
        plan = {"goal": "bench", "steps": [{"tool": "noop", "input": {}}] * steps}
        (folder / "plan.json").write_text(json.dumps(plan), "utf-8")
        tools = ["--tools", str(PROGRAMS / "agent_tools.py")]
        run([*AGENT, *tools, "create", "t", "plan.json"], folder, {"LAST": "0"})


def program(name: str) -> str:
    return str(PROGRAMS / f"{name}.py")


AGENT_RUN = ("-m", "labkit.restart", "--tools", program("agent_tools"), "run", "t")
RESTART_AGENT = Agent("the restart agent", *AGENT_RUN)
RAW = Contender("raw sqlite3", program("raw_loop"))
PEERS = (
    Contender("LangGraph", program("langgraph_loop"), package="langgraph"),
    Contender("DBOS", program("dbos_loop"), package="dbos"),
)


class Task:
    """One contender's task of `steps` steps in a folder of its own."""

    def __init__(self, who: Contender, steps: int, disk: Path) -> None:
        self.who, self.steps = who, steps
        self.folder = Path(tempfile.mkdtemp(dir=disk))
        self.marks = self.folder / "marks"
        who.prepare(self.folder, steps)

    def start(self, last: int | None = None, crash: int | None = None) -> dict[int, float]:
        """Runs it once, to the end or to the kill; the monotonic seconds of the steps that marked.

        Step -1 is the start of the process. Raises RuntimeError if it ends otherwise.
        """
        self.marks.unlink(missing_ok=True)
        last = self.steps - 1 if last is None else last
        env = {"LAST": str(last), "MARKS": str(self.marks)}
        env |= {} if crash is None else {"CRASH": str(crash)}
        began = time.monotonic()
        run(self.who.argv, self.folder, env, 0 if crash is None else -signal.SIGKILL)
        lines = self.marks.read_text("utf-8").splitlines()
        return {-1: began} | {int(idx): float(at) for idx, at in map(str.split, lines)}

    def copy(self, disk: Path) -> Task:
        """The same task, as it stands, on another disk. No process may have it open."""
        twin = copy.copy(self)
        twin.folder = Path(tempfile.mkdtemp(dir=disk))
        twin.marks = twin.folder / "marks"
        shutil.copytree(self.folder, twin.folder, dirs_exist_ok=True)
        for path in twin.folder.iterdir():  # else the first commits would pay for the copy
            with path.open("rb") as file:
                os.fsync(file.fileno())
        return twin


def run(argv: list[str], folder: Path, env: Mapping[str, str], wanted: int = 0) -> str:
    """Its output. Raises RuntimeError for another status than the wanted one."""
    done = subprocess.run(
        argv, cwd=folder, env={**environment(), **env}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode != wanted:
        raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def environment() -> dict[str, str]:
    """Ours without what bends the measurement; with it a start would compile every module again."""
    bends = ("AGENT_", "LABKIT_", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(bends)}
    return kept | {"PYTHONPATH": str(ROOT), "PROGRAMS": str(PROGRAMS)}

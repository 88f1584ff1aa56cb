"""SIGKILL before every state-touching system call of `create` and of `run`; then: the promises.

    python tests/sweep.py [--every N] [--twice]     every kill, or every N-th; the second one too
    python tests/sweep.py replay 'run pwrite64:17'  one trial again, its folder kept

Exits 0 if every trial held, 1 if one is broken, 2 if something is unknown (or strace is missing).

An unharmed run under strace tells the calls. A kill is addressed as (command, call, ordinal of that
call in its process), and counts only if it is proved delivered: the wait status is SIGKILL, and the
trace ends at that call, unexecuted, on the recorded path. All else is `unknown`, never `held`. What
restarts it is harmed by nothing, so it has to succeed at once.

strace never gets --seccomp-bpf: with it strace is faster and injects nothing. That makes it the
control, an injector whose sweep must be red.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from labkit import guard
from labkit.database import Database, open_readonly
from labkit.errors import NotFound, StorageFault
from labkit.journal.laws import HELD, judge_file

ROOT = Path(__file__).parents[1]
NEEDS_STRACE = "the sweep needs Linux with strace; on Debian and Ubuntu: apt-get install strace"
WITNESSED = str(ROOT / "tests" / "witnessed.py")
TASK, TIMEOUT_S = "t", 30.0
COMMANDS = {"create": [TASK, "plan.json"], "run": [TASK], "status": [TASK]}
SCENARIO = ROOT / "labkit" / "lab" / "scenarios" / "notes"  # fetch, summarize, write_artifact
# With a question mark strace passes over a name that this machine's architecture does not have.
CALLS = (
    "?write,?pwrite64,?writev,?pwritev,?copy_file_range,?sendfile,?ftruncate,?truncate,?fallocate,"
    "?fsync,?fdatasync,?sync_file_range,?open,?openat,?creat,?link,?linkat,?symlink,?symlinkat,"
    "?rename,?renameat,?renameat2,?unlink,?unlinkat,?mkdir,?mkdirat,?rmdir"
)
NAMING = ("open", "creat", "link", "rename", "symlink", "unlink", "mkdir", "rmdir", "truncate")
WRITES = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC)")
TRACED = re.compile(r"(?P<pid>\d+) +(?P<call>\w+)\((?P<rest>.*)")
QUOTED, DESCRIPTOR = re.compile(r'"([^"]*)"'), re.compile(r"^-?\w+<([^>]*)>")
RANDOM = re.compile(r"\.[0-9a-f]{8}\.tmp$")
ADDRESS = re.compile(r"(?:create|run) \w+:\d+")
REPLAY = "python tests/sweep.py replay"


class Kill(NamedTuple):
    """SIGKILL before the `ordinal`-th `call` of a command; `path` is where the recording saw it."""

    command: str
    call: str
    ordinal: int
    path: str

    def __str__(self) -> str:
        return f"{self.command} {self.call}:{self.ordinal}"


class Verdict(NamedTuple):
    """What one trial showed: held, broken or unknown, and why."""

    kills: tuple[Kill, ...]
    outcome: str
    reason: str

    def __str__(self) -> str:
        address = " ".join(map(str, self.kills))
        where = ", ".join(kill.path for kill in self.kills)
        return f"{self.outcome}: {self.reason} [{where}]\n    {REPLAY} '{address}'"


class Report(NamedTuple):
    verdicts: tuple[Verdict, ...]

    def count(self, outcome: str) -> int:
        return sum(verdict.outcome == outcome for verdict in self.verdicts)

    @property
    def delivered(self) -> int:
        return len(self.verdicts) - self.count("unknown")

    @property
    def exit_code(self) -> int:
        """0 held, 1 broken, 2 unknown. A sweep that delivered nothing shows nothing."""
        if self.count("broken"):
            return 1
        return 0 if 0 < len(self.verdicts) == self.count("held") else 2

    def __str__(self) -> str:
        outcomes = ", ".join(f"{self.count(name)} {name}" for name in ("held", "broken", "unknown"))
        lines = [f"{len(self.verdicts)} planned, {self.delivered} delivered: {outcomes}"]
        if not self.delivered:
            lines.append("error: no kill was delivered, so this sweep proves nothing")
        return "\n".join(lines + [str(v) for v in self.verdicts if v.outcome != "held"])


class NotDelivered(Exception):
    """The kill did not strike where it was planned, so the trial says nothing."""


class Final(NamedTuple):
    """What is left at the end, and must equal what the unharmed run left."""

    steps: list[tuple[object, ...]]
    artifacts: dict[str, bytes]


class Trial:
    """A fresh folder for the agent, and beside it, out of its reach, the witness and the trace."""

    def __init__(self, root: Path, package: Path, strace: Sequence[str]) -> None:
        self.root = Path(tempfile.mkdtemp(dir=root))
        self.folder, self.witness = self.root / "agent", self.root / "witness"
        self.database, self.trace = self.folder / "state.db", self.root / "trace"
        self.strace = [*strace, "-f", "-y", "-o", str(self.trace), "-e", f"trace={CALLS}"]
        usual = {k: v for k, v in os.environ.items() if not k.startswith("AGENT_")}
        # Bytecode outside the checkout: made by the unharmed run, then the same for every trial.
        made = {"PYTHONPATH": str(package), "PYTHONPYCACHEPREFIX": str(root / "bytecode")}
        self.env = usual | made | {"WITNESS": str(self.witness), "TMPDIR": str(self.root)}
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)

    def argv(self, command: str) -> list[str]:
        return [sys.executable, "-P", WITNESSED, command, *COMMANDS[command]]

    def run(self, command: str, folder: Path | None = None, right: tuple[int, ...] = (0,)) -> str:
        """Unharmed, to its end: what is wrong with how it ended, or nothing."""
        done = subprocess.run(
            self.argv(command), cwd=folder or self.folder, env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        wrong = done.returncode not in right
        return f"`{command}` exits {done.returncode}: {done.stderr}" if wrong else ""

    def look(self) -> str:
        """What is wrong with `status`, asked of a copy: a reader would mend what the restart finds.
        A killed `create` may have left the task, or a file without it, or no file."""
        copy = shutil.copytree(self.folder, self.root / "copy")
        return self.run("status", folder=copy, right=(0, 1, 66))

    def run_traced(self, command: str, *inject: str) -> int:
        """Under strace and a guard, which ends both; the status."""
        argv = ["strace", *self.strace, *inject, *self.argv(command)]
        with open(os.devnull, "wb") as null:
            process = guard.start(
                argv, cwd=str(self.folder), env=self.env, stdout=null, stderr=null
            )
            with process:
                return process.wait(TIMEOUT_S)

    def kill(self, kill: Kill) -> None:
        """Raises NotDelivered unless the trace proves that the kill struck where it was planned."""
        status = self.run_traced(
            kill.command, "-e", f"inject={kill.call}:signal=KILL:when={kill.ordinal}"
        )
        lines = self.trace.read_text("utf-8", "replace").splitlines()
        calls = list(read_trace(self.trace, self.folder, kill.command))
        if status != -9 or not lines or not lines[-1].endswith("+++ killed by SIGKILL +++"):
            raise NotDelivered(f"{kill} was not killed, its status is {status}")
        if not calls or calls[-1] != kill or not lines[-2].endswith("= ?"):
            raise NotDelivered(f"{kill} struck at {calls[-1:]}, not at {kill.path}")


def read_trace(trace: Path, folder: Path, command: str) -> Iterator[Kill]:
    """Every call that touches state in the folder, as the kill that would strike before it."""
    ordinals: Counter[str] = Counter()
    pids = set()
    for line in trace.read_text("utf-8", "replace").splitlines():
        if found := TRACED.match(line):
            pids.add(found["pid"])
            ordinals[found["call"]] += 1
            path = path_of(found["call"], found["rest"], folder)
            if path is not None:
                yield Kill(command, found["call"], ordinals[found["call"]], path)
    if len(pids) > 1:  # strace counts in each process apart, and we would not
        raise NotDelivered(f"`{command}` has {len(pids)} processes; an ordinal needs one")


def path_of(call: str, rest: str, folder: Path) -> str | None:
    """The path in the folder that the call touches, random names made equal, or None."""
    if call in ("open", "openat") and not WRITES.search(rest):
        return None
    found = QUOTED.search(rest) if call.startswith(NAMING) else DESCRIPTOR.match(rest)
    path = Path(folder, found[1]) if found else None
    if path is None or not path.is_relative_to(folder):
        return None
    return RANDOM.sub(".*.tmp", str(path.relative_to(folder)))


class Sweep:
    """Trials of one agent: the package in `package`, under strace with further options."""

    def __init__(self, root: Path, package: Path = ROOT, strace: Sequence[str] = ()) -> None:
        self.root, self.package, self.strace = root, package, strace
        self.created, self.reference = self._run_unharmed()

    def _run_unharmed(self) -> tuple[Path, Final]:
        """An agent that fails without being harmed is no subject for a sweep."""
        trial = self._prepare("create")
        ends = [trial.run("create")]
        created = trial.root / "created"
        shutil.copytree(trial.folder, created)
        ends += [trial.run("run"), trial.run("create")]
        reference = read_final(trial)
        if faults := [*filter(None, ends), *judge(trial, reference)]:
            raise AssertionError(f"not even the unharmed run holds: {faults[0]}")
        return created, reference

    def _prepare(self, command: str) -> Trial:
        trial = Trial(self.root, self.package, self.strace)
        shutil.copytree(SCENARIO if command == "create" else self.created, trial.folder)
        return trial

    def record(self, command: str, after: tuple[Kill, ...] = ()) -> list[Kill]:
        """The kills that are possible in this command, run after those that struck before it."""
        trial = self._prepare(after[0].command if after else command)
        for kill in after:
            trial.kill(kill)
        if status := trial.run_traced(command):
            raise AssertionError(f"`{command}` exits {status} while it is recorded")
        return list(read_trace(trial.trace, trial.folder, command))

    def try_kills(self, kills: tuple[Kill, ...], keep: bool = False) -> Verdict:
        """One trial: each kill, then an unharmed restart, then the promises."""
        trial = self._prepare(kills[0].command)
        try:
            for kill in kills:
                trial.kill(kill)
        except (NotDelivered, subprocess.TimeoutExpired) as why:
            return Verdict(kills, "unknown", str(why))
        ends = [trial.look(), *map(trial.run, restart_after(kills[-1].command))]
        faults = [*filter(None, ends)]
        faults = faults or self._judge(trial)
        if not keep:
            shutil.rmtree(trial.root)
        reason = "; ".join(fault.strip() for fault in faults) or "all promises"
        return Verdict(kills, "broken" if faults else "held", reason)

    def _judge(self, trial: Trial) -> list[str]:
        """What ended well and cannot be read, or published nothing, is broken too."""
        try:
            return list(judge(trial, self.reference))
        except (NotFound, StorageFault, OSError) as error:
            return [f"what is left cannot be judged: {error}"]

    def run(self, plan: Iterable[tuple[Kill, ...]]) -> Report:
        """One trial on each core at a time. The threads only wait for processes."""
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return Report(tuple(pool.map(self.try_kills, plan)))

    def once(self, every: int = 1) -> list[tuple[Kill, ...]]:
        """Every `every`-th kill of `create` and of `run`."""
        kills = [kill for command in ("create", "run") for kill in self.record(command)]
        return [(kill,) for kill in kills[::every]]

    def twice(self, every: int) -> list[tuple[Kill, ...]]:
        """A second kill in the run that recovers from the first; every `every`-th of either."""
        firsts = self.record("run")[every // 2 :: every]
        return [(a, b) for a in firsts for b in self.record("run", after=(a,))[::every]]


def restart_after(command: str) -> list[str]:
    """What a user does next; and at the end a `create` repeated, which has to be harmless."""
    return ["create", "run", "create"] if command == "create" else ["run", "create"]


def read_final(trial: Trial) -> Final:
    # `deduplicated` says truly that the file was there, if the kill came after it was published.
    output = "json_remove(output, '$.deduplicated')"
    steps = f"SELECT idx, tool, input, status, {output} FROM steps ORDER BY idx"
    database = open_readonly(str(trial.database))
    rows = [tuple(row) for row in database.rows(steps)]
    database.close()
    return Final(rows, {p.name: p.read_bytes() for p in (trial.folder / "artifacts").iterdir()})


def judge(trial: Trial, reference: Final) -> Iterator[str]:
    """What is not as promised. The laws read the journal; all else is seen from outside it."""
    final = read_final(trial)
    if final.steps != reference.steps:
        yield "promise 1: plan or outputs differ from the unharmed run's"
    if final.artifacts != reference.artifacts:
        names = {name: len(content) for name, content in final.artifacts.items()}
        yield f"promise 4: the artifacts, with their sizes, are {names}"
    for verdict in judge_file(str(trial.database), list(final.artifacts)):
        if verdict.verdict != HELD:
            yield f"law {verdict.law} {verdict.verdict}: {verdict.reason}"
    database = open_readonly(str(trial.database))
    if (answer := database.value("PRAGMA integrity_check")) != "ok":
        yield f"integrity_check: {answer}"
    yield from judge_calls(database, trial.witness.read_text("utf-8").split())
    database.close()


def judge_calls(database: Database, calls: list[str]) -> Iterator[str]:
    """Promise 2 from outside: no tool was called more often than the journal began its step; and by
    law 2 no step began again once it was committed. One call fewer is a kill before the call."""
    began = Counter(
        f"{row[0]}-{row[1]}"
        for row in database.rows("SELECT task_id, step_idx FROM journal WHERE kind='step_started'")
    )
    called = Counter(calls)
    for key in began.keys() | called.keys():
        if not 1 <= called[key] <= began[key]:
            yield f"promise 2: {key} was called {called[key]} times, begun {began[key]} times"


def find_kills(sweep: Sweep, address: str) -> tuple[Kill, ...]:
    """`run pwrite64:17 run fsync:3` as the kills that a recording knows under these names."""
    found: tuple[Kill, ...] = ()
    for name in ADDRESS.findall(address):
        known = {str(kill): kill for kill in sweep.record(name.split()[0], after=found)}
        if name not in known:
            raise LookupError(f"no call {name}; there are {', '.join(known)}")
        found += (known[name],)
    if not found:
        raise LookupError(f"{address}: a kill is named like this: run pwrite64:17")
    return found


def scratch() -> str | None:
    """In memory where possible: a kill keeps the page cache, so it proves the same, faster."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/sweep.py")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th kill")
    parser.add_argument("--twice", action="store_true", help="kill the recovering run too")
    parser.add_argument("replay", nargs="*", metavar="replay 'run pwrite64:17'")
    args = parser.parse_args()
    if not shutil.which("strace"):
        return refuse(NEEDS_STRACE)
    if args.replay:
        return replay(args.replay[-1])
    with tempfile.TemporaryDirectory(prefix="labkit-sweep-", dir=scratch()) as root:
        sweep = Sweep(Path(root))
        report = sweep.run(sweep.twice(args.every) if args.twice else sweep.once(args.every))
    print(report)
    return report.exit_code


def replay(address: str) -> int:
    sweep = Sweep(Path(tempfile.mkdtemp(prefix="labkit-sweep-", dir=scratch())))
    try:
        report = Report((sweep.try_kills(find_kills(sweep, address), keep=True),))
    except LookupError as why:
        shutil.rmtree(sweep.root)
        return refuse(str(why))
    print(*report.verdicts, f"    all of it is kept in {sweep.root}", sep="\n")
    return report.exit_code


def refuse(why: str) -> int:
    print(f"sweep: {why}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())

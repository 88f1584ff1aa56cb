"""The restart suite: thirteen cases that an agent of the restart kind must pass, each judged.

    python -m labkit.chaos.suite [--agent MODULE] [--path FOLDER] [--case CASE]...

Point it at a package that answers to the same command line (`python -m MODULE create`, `run`) and
has the three built-in tools in `MODULE.tools`. The real command runs in real processes, each kill
is a SIGKILL. The witness lies outside the folder: it counts the calls of the tools; the published
files are counted apart; the laws judge the journal. None of them is trusted about the others.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import labkit
from labkit.chaos.prepared import Prepared
from labkit.chaos.scenario import Broken, Ended, NotDelivered, Scenario, Trial, scratch
from labkit.chaos.verdict import BROKEN, HELD, UNKNOWN, Report, Verdict
from labkit.errors import Fatal, LabkitError, UsageError, describe
from labkit.guard import Guarded
from labkit.journal.laws import judge_file
from labkit.journal.reading import read_events, read_steps, read_tasks, snapshot

__all__ = [
    "PLANS",
    "POINTS",
    "REPORT",
    "SUITE",
    "Agent",
    "Bench",
    "Case",
    "Faults",
    "calls",
    "give_up",
    "hold",
    "judge_folder",
    "open_gate",
    "published",
    "read",
    "require_end",
    "require_killed",
    "run_suite",
    "select",
    "sizes",
    "suite_command",
    "try_case",
]

ROOT = Path(labkit.__file__).parents[1]
TASK, DATABASE = "t", "state.db"
POINTS = ("before_effect", "after_effect", "after_commit")
POLL_S = 0.002
UNSAFE = {"AGENT_UNSAFE_EFFECTS": "1"}
TRACEBACK = "Traceback (most recent call last)"
OWN_ENDS = (0, 1, 2, 3)  # exit codes by which an agent says what became of its task

NOTES = "First line.\nSecond line.\n\nThird line.\nFourth line.\n"
REPORT = "First line.\nSecond line.\nThird line."
RECORD = f"{REPORT}\n---\n"
TOOLS = """\
import os
from {module} import tools

def _seen(key, tool):
    file = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(file, f"{{key}} {{tool}}\\n".encode())
    os.close(file)

def read_notes(input, ctx, idem_key):
    _seen(idem_key, "read_notes")
    return tools.fetch(input, ctx, idem_key)

def shorten(input, ctx, idem_key):
    _seen(idem_key, "shorten")
    return tools.summarize(input, ctx, idem_key)

def publish(input, ctx, idem_key):
    _seen(idem_key, "publish")
    return tools.write_artifact(input, ctx, idem_key)

def hold(input, ctx, idem_key):
    if "HOLD" in os.environ:
        with open(os.environ["HOLD"]) as gate:
            gate.read()

def give_set(input, ctx, idem_key):
    _seen(idem_key, "give_set")
    return {{1}}
"""
THREE: list[dict[str, Any]] = [
    {"tool": "read_notes", "input": {"path": "input/notes.txt"}},
    {"tool": "shorten", "input": {"from": 0}},
    {"tool": "publish", "input": {"from": 1}},
]
PLANS: dict[str, list[dict[str, Any]]] = {
    "three": THREE,
    "two reports": [*THREE, {"tool": "publish", "input": {"from": 1}}],
    "held": [*THREE, {"tool": "hold", "input": {}}],
    "a set": [{"tool": "give_set", "input": {}}],
}
# What the journal says last when the process is dead, and how often the killed step is called.
AT_THE_KILL = {
    "before_effect": ("step_started", 1),
    "after_effect": ("step_started", 2),
    "after_commit": ("step_finished", 1),
}

Faults = Iterator[str]


class Agent(NamedTuple):
    """A package that is run as a command. What is in the folder `path` comes before all others."""

    module: str = "labkit.restart"
    path: str = ""

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", self.module, *words]

    @property
    def environ(self) -> dict[str, str]:
        path = os.path.abspath(self.path) if self.path else ""
        return {"PYTHONPATH": os.pathsep.join(filter(None, (path, str(ROOT))))}


class Bench:
    """One agent, and trials of it in fresh folders below `root`. Trials may be opened by threads.

    `bytecode` may be shared with other benches: then Python's own library is compiled once.
    """

    def __init__(self, agent: Agent, root: Path, bytecode: Path | None = None) -> None:
        self.agent, self.root, self.bytecode = agent, root, bytecode or root / "bytecode"
        tools = TOOLS.format(module=agent.module)
        self.material = {"input/notes.txt": NOTES, "tools.py": tools}
        for name, steps in PLANS.items():
            self.material[_file_of(name)] = json.dumps({"goal": name, "steps": steps})
        self._prepared: dict[str, Prepared] = {}
        self._preparing = threading.Lock()

    def open(self, plan: str = "three") -> Trial:
        """A fresh folder in which `create` has ended. Raises NotDelivered if it does not end so."""
        with self._preparing:
            if plan not in self._prepared:
                self._prepared[plan] = self._prepare(plan)
        return Trial(self._scenario(plan), self.root, self.bytecode, self._prepared[plan])

    def _prepare(self, plan: str) -> Prepared:
        kept = self.root / f"prepared-{_file_of(plan)}"
        with Trial(self._scenario(plan), self.root, self.bytecode) as trial:
            created = trial.call(trial.scenario.setup)
            if created.code:
                raise NotDelivered(f"`create` exits {created.code}: {created.said}")
            return Prepared(trial.root, kept)  # nobody has the database open now

    def _scenario(self, plan: str) -> Scenario:
        with_tools = self.agent.argv("--tools", "tools.py")
        return Scenario(
            run=[*with_tools, "run", TASK],
            setup=[*with_tools, "create", TASK, _file_of(plan)],
            material=self.material,
            environ=self.agent.environ,
        )


class Case(NamedTuple):
    """`says` is what must hold; `faults` yields what does not. It raises NotDelivered where nothing
    can be said, and Broken where the rest need not be looked at."""

    name: str
    says: str
    faults: Callable[[Bench], Faults]
    tier: str = "suite"


def try_case(bench: Bench, case: Case, replay: str = "") -> Verdict:
    """The verdict of one case. What goes wrong beside the point is unknown, never broken."""
    try:
        reason = "; ".join(case.faults(bench))
    except Broken as why:
        return Verdict(case.tier, case.name, BROKEN, str(why), True, replay)
    except NotDelivered as why:
        return Verdict(case.tier, case.name, UNKNOWN, str(why), False, replay)
    except (Exception, Fatal) as why:  # an agent may leave anything, and the other cases go on
        return Verdict(case.tier, case.name, UNKNOWN, describe(why), False, replay)
    return Verdict(case.tier, case.name, BROKEN if reason else HELD, reason, True, replay)


# What is seen from outside.


class Seen(NamedTuple):
    """The rows of the task: what the agent itself says."""

    task: str
    steps: list[str]
    outputs: list[str | None]
    kinds: list[str]
    recovered: list[list[int]]


def read(folder: Path) -> Seen:
    with snapshot(str(folder / DATABASE)) as reader:
        events = list(read_events(reader, TASK))
        outputs = "SELECT output FROM steps WHERE task_id = ? ORDER BY idx"
        return Seen(
            next((task.status for task in read_tasks(reader, TASK)), "gone"),
            [step.status for step in read_steps(reader, TASK)],
            [row[0] for row in reader.tuples(outputs, (TASK,))],
            [event.kind for event in events],
            [e.detail("recovered", list) or [] for e in events if e.kind == "run_started"],
        )


def calls(trial: Trial) -> Counter[str]:
    """How often each tool was called, as the witness saw it. Raises Broken for a changed key."""
    lines = trial.witness.read_text("utf-8").splitlines() if trial.witness.exists() else []
    keys = sorted({(tool, key) for key, tool in map(str.split, lines)})
    counted = Counter(line.split()[1] for line in lines)
    seen = Counter(tool for tool, _ in keys)
    steps = Counter(step["tool"] for step in json.loads(_plan_of(trial))["steps"])
    for tool, number in seen.items():
        if number > steps[tool]:
            named = ", ".join(key for name, key in keys if name == tool)
            raise Broken(f"promise 4: the key of {tool} changes: {named}")
    return counted


def published(folder: Path) -> dict[str, str]:
    """Name and content of each published file, and of any temporary file left behind."""
    found = (folder / "artifacts").glob("*")
    return {path.name: path.read_text("utf-8", "replace") for path in sorted(found)}


def judge_folder(folder: Path, runs: int = 0, reports: int = 1) -> Faults:
    """What a task that is done must leave, however often it was killed; `runs` if that is known."""
    files = published(folder)
    if sorted(files.values()) != [REPORT] * reports:
        yield f"promise 4: of {reports} report{'s' * (reports > 1)} there is {sizes(files)}"
    try:
        for verdict in judge_file(str(folder / DATABASE), [Path(name).stem for name in files]):
            if verdict.verdict != HELD:
                yield f"law {verdict.law} {verdict.verdict}: {verdict.reason}"
        seen = read(folder)
    except (LabkitError, Fatal) as error:
        yield f"promise 1: what is left cannot be read: {describe(error)}"
        return
    if {seen.task, *seen.steps} != {"done"}:
        yield f"promise 2: the task is {seen.task}, its steps {', '.join(seen.steps)}"
    if seen.kinds[-1:] != ["task_done"]:
        yield f"promise 5: the journal ends with {seen.kinds[-1:]}"
    if runs and (began := seen.kinds.count("run_started")) != runs:
        yield f"promise 5: {runs} runs, the journal has {began}"


def require_end(trial: Trial, **environ: str) -> None:
    """Runs the task to its end. Raises Broken if the agent gives it up, else NotDelivered."""
    ended = trial.call(trial.scenario.run, **environ)
    if ended.code:
        give_up(ended, "the run that must end the task")


def give_up(ended: Ended, what: str) -> NoReturn:
    """Raises Broken if the agent itself says what became of its task, else NotDelivered: an agent
    that falls over shows nothing."""
    if ended.code in OWN_ENDS and TRACEBACK not in ended.said:
        raise Broken(f"promise 2: {what} exits {ended.code}: {ended.said}")
    raise NotDelivered(f"{what} exits {ended.code}: {ended.said}")


def require_killed(ended: Ended, where: str) -> None:
    if ended.code != -signal.SIGKILL:
        raise NotDelivered(f"{where} killed nothing: status {ended.code}, {ended.said}")


def _require_calls(trial: Trial, **again: int) -> Faults:
    wanted = Counter(step["tool"] for step in THREE) + Counter(again)
    if (seen := calls(trial)) != wanted:
        words = ", ".join(f"{tool} {seen[tool]} of {wanted[tool]}" for tool in sorted(wanted))
        yield f"promise 2: calls that the witness saw: {words}"


# The thirteen cases.


def _without_a_crash(bench: Bench) -> Faults:
    with bench.open() as trial:
        require_end(trial)
        yield from judge_folder(trial.folder, runs=1)
        yield from _require_calls(trial)


def _killed_at(point: str, idx: int, bench: Bench) -> Faults:
    where, tool = f"{point}:{idx}", THREE[idx]["tool"]
    last, times = AT_THE_KILL[point]
    committed = point == "after_commit"
    with bench.open() as trial:
        require_killed(trial.call(trial.scenario.run, AGENT_CRASH_AT=where), where)
        dead = read(trial.folder)
        if dead.kinds[-1] != last:
            yield f"promise 5: killed {where}, the journal ends with {dead.kinds[-1]}, not {last}"
        kept = [output for output in dead.outputs if output is not None]
        if len(kept) != idx + committed:
            yield f"promise 1: killed {where}, {len(kept)} outputs are kept, not {idx + committed}"
        require_end(trial)
        after = read(trial.folder)
        if after.outputs[: len(kept)] != kept:
            yield "promise 1: an output that was committed has changed"
        if after.recovered != [[], [] if committed else [idx]]:
            yield f"promise 3: the runs say they recovered {after.recovered}"
        yield from judge_folder(trial.folder, runs=2)
        yield from _require_calls(trial, **{tool: times - 1})


def _killed_while_it_sleeps(bench: Bench) -> Faults:
    with bench.open() as trial:

        def kill_asleep(process: Guarded) -> None:
            while process.poll() is None and read(trial.folder).kinds[-1] != "step_started":
                time.sleep(POLL_S)
            process.kill()

        dead = trial.call(trial.scenario.run, kill_asleep, AGENT_STEP_DELAY="600")
        require_killed(dead, "the kill from outside")
        if seen := calls(trial):
            raise NotDelivered(f"the step did not sleep: {', '.join(seen)} was called")
        require_end(trial)
        yield from judge_folder(trial.folder, runs=2)
        yield from _require_calls(trial)


def _second_runner_refused(bench: Bench) -> Faults:
    with bench.open("held") as trial:
        before: list[str] = []

        def run_a_second() -> Ended:
            before.extend(read(trial.folder).kinds)
            return trial.call(trial.scenario.run)

        first, second = hold(trial, run_a_second)
        if second.code == 0:
            yield "a second runner was let in while the first was at work"
        elif second.code != 3:
            raise NotDelivered(f"the second runner exits {second.code}: {second.said}")
        elif first.code:
            give_up(first, "the first runner")
        else:
            if read(trial.folder).kinds[: len(before)] != before:
                yield "the refused runner has changed the journal"
            yield from judge_folder(trial.folder, runs=1)
            yield from _require_calls(trial)


def hold(trial: Trial, meanwhile: Callable[[], Ended]) -> tuple[Ended, Ended]:
    """A run that is held in its last tool until `meanwhile`, the second run, has ended."""
    gate, seconds = trial.folder / "gate", list[Ended]()
    os.mkfifo(gate)

    def run_second(process: Guarded) -> None:
        held = open_gate(gate, process)
        try:
            seconds.append(meanwhile())
        finally:
            os.close(held)

    first = trial.call(trial.scenario.run, run_second, HOLD="gate")
    return first, seconds[0]


def open_gate(gate: Path, process: Guarded) -> int:
    """Opens once the tool has opened it for reading, so the run is known to be in its tool."""
    while process.poll() is None:
        try:
            return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:  # nobody reads it yet
                raise
        time.sleep(POLL_S)
    raise NotDelivered("the first run ended before it could be held in its tool")


def _control_shows_the_duplicate(bench: Bench) -> Faults:
    with bench.open() as trial:
        where = "after_effect:2"
        dead = trial.call(trial.scenario.run, AGENT_CRASH_AT=where, **UNSAFE)
        require_killed(dead, where)
        if published(trial.folder) != {"report.log": RECORD}:
            raise NotDelivered(f"the control published {sizes(published(trial.folder))}")
        require_end(trial, **UNSAFE)
        if published(trial.folder) != {"report.log": RECORD * 2}:
            files = sizes(published(trial.folder))
            yield f"the effect without a key shows no duplicate, but {files}: all green is void"
        yield from _require_calls(trial, publish=1)


def _killed_cases() -> Iterator[Case]:
    for point in POINTS:
        for idx in range(len(THREE)):
            says = f"killed {point} of step {idx}, the task ends with each effect once"
            yield Case(f"{point}:{idx}", says, partial(_killed_at, point, idx))


SUITE = (
    Case("unharmed", "a run that nobody harms keeps all promises", _without_a_crash),
    *_killed_cases(),
    Case("outside", "killed from outside while a step sleeps, it resumes", _killed_while_it_sleeps),
    Case("second runner", "a second runner is refused at once", _second_runner_refused),
    Case("control", "an effect without a key is doubled by a kill", _control_shows_the_duplicate),
)


def run_suite(
    agent: Agent, cases: Sequence[Case] = SUITE, on_end: Callable[[Verdict], None] | None = None
) -> Report:
    """Each case in a fresh folder, as many at a time as there are cores."""
    name = "" if agent.module == Agent().module else f" --agent {agent.module}"
    options = name + (f" --path {agent.path}" if agent.path else "")

    def one(case: Case) -> Verdict:
        replay = f"python -m labkit.chaos.suite{options} --case '{case.name}'"
        verdict = try_case(bench, case, replay)
        if on_end:
            on_end(verdict)
        return verdict

    with (
        tempfile.TemporaryDirectory(prefix="labkit-suite-", dir=scratch()) as root,
        ThreadPoolExecutor(os.cpu_count() or 1) as pool,
    ):
        bench = Bench(agent, Path(root))
        return Report(len(cases), tuple(pool.map(one, cases)))


def select(cases: Sequence[Case], names: Iterable[str]) -> list[Case]:
    """The cases of these names, all without a name. Raises UsageError for a name it has not."""
    known = {case.name: case for case in cases}
    chosen = list(names)
    if unknown := [name for name in chosen if name not in known]:
        raise UsageError(f"no case {unknown[0]!r}; there are {', '.join(known)}")
    return [known[name] for name in chosen] or list(cases)


def suite_command(argv: Sequence[str]) -> int:
    """`--agent MODULE --path FOLDER --case CASE...`: exits 0 held, 1 broken, 2 unknown."""
    parser = argparse.ArgumentParser(
        "python -m labkit.chaos.suite", description="The thirteen cases of the restart suite."
    )
    parser.add_argument("--agent", default=Agent().module, help="the package; it is run by -m")
    parser.add_argument("--path", default="", help="the folder that holds the package")
    parser.add_argument("--case", action="append", default=[], help="only this case")
    given = parser.parse_args(list(argv))
    report = run_suite(
        Agent(given.agent, given.path),
        select(SUITE, given.case),
        lambda verdict: print(f"{verdict.outcome:<7}  {verdict.address}", flush=True),
    )
    print(report)
    return report.exit_code


def _file_of(plan: str) -> str:
    return f"plan-{plan.replace(' ', '-')}.json"


def _plan_of(trial: Trial) -> str:
    return (trial.folder / trial.scenario.setup[-1]).read_text("utf-8")


def sizes(files: dict[str, str]) -> str:
    sizes = (f"{name} with {len(text.encode())} bytes" for name, text in files.items())
    return ", ".join(sizes) or "none"


if __name__ == "__main__":
    sys.exit(suite_command(sys.argv[1:]))

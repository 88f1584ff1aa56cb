"""The fifteen figures. What is compared ran side by side, round by round, since what a disk or a
processor gives changes from minute to minute; a figure is the ratio of the medians. The best of the
rounds stands beside it: where the two differ much, the machine was busy.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import durable, journals, kit
from bench.contenders import AGENT, PEERS, RAW, RESTART_AGENT, Contender, Task, run

STEPS, PEER_STEPS = 1_000, 200
SHORT, LONG, WINDOW = 100, 10_000, 500
EVENTS, BARS = 1_000_000, 100_000
RUNS, FINISHED = 40, 100_000  # of the durable run: in a round; those that a file holds
PAIRS = 10  # of processes in a round: one start varies too much
MS = 1e3


class Row(NamedTuple):
    """One line of the table; `value` None where it could not be measured, and `detail` says why."""

    figure: str
    limit: float
    unit: str
    value: float | None
    detail: str
    beside: str

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "not measured"
        return "reached" if self.value <= self.limit else "MISSED"


class Bench(NamedTuple):
    disk: Path
    rounds: int


def measure_loop(bench: Bench) -> Row:
    """From step 0 to the last: start-up is another row. Peers get fewer steps, as they are slow."""
    per_step: dict[str, list[float]] = {}
    peers = [peer for peer in PEERS if peer.is_installed]
    for _ in range(bench.rounds):
        for who in (RAW, RESTART_AGENT, *peers):
            os.sync()  # nobody pays for what the one before left to be written
            steps = PEER_STEPS if who in peers else STEPS
            task = Task(who, steps, bench.disk)
            at = task.start()
            per_step.setdefault(who.name, []).append((at[steps - 1] - at[0]) / (steps - 1))
            if who in (RAW, RESTART_AGENT):
                require_rows(task)
    floor = per_step[RAW.name]
    ratio, detail = compare(per_step[RESTART_AGENT.name], floor)
    beside = [f"{who.name} {compare(per_step[who.name], floor)[0]:.1f} x" for who in peers]
    what = f"a step of {STEPS:,}, against a raw sqlite3 loop"
    return Row(what, 1.3, "x", ratio, detail, ", ".join([*beside, "the article's agent 4.6 x*"]))


def compare(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, str]:
    """The ratio of the medians of seconds, and both in milliseconds."""
    mine, floor, best, least = (f(column) * MS for f in (median, min) for column in (ours, theirs))
    return mine / floor, f"{mine:.3g} / {floor:.3g} ms (best {best:.3g} / {least:.3g})"


def require_rows(task: Task) -> None:
    """The floor writes what the agent writes, or the ratio means nothing."""
    db = sqlite3.connect(task.folder / "state.db")
    steps = "SELECT count(*), min(status), max(status), sum(attempts) FROM steps"
    assert db.execute(steps).fetchone() == (task.steps, "done", "done", task.steps)
    kinds = dict(db.execute("SELECT kind, count(*) FROM events GROUP BY kind"))
    once = dict.fromkeys(("task_created", "run_started", "task_done"), 1)
    assert kinds == once | dict.fromkeys(("step_started", "step_finished"), task.steps)
    tables = db.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'").fetchone()
    assert tables == (3,)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()


def measure_growth(bench: Bench) -> Row:
    """The last 500 steps of 10,000 against the 500 after the first 100. What comes before them is
    done in memory, since there it costs no disk; the database is then copied to the disk.
    """
    with tempfile.TemporaryDirectory(dir=memory()) as scratch:
        long = brought_to(LONG - WINDOW, LONG, Path(scratch))
        short = brought_to(SHORT, SHORT + WINDOW, Path(scratch))
        costs = [(window(long, bench.disk), window(short, bench.disk)) for _ in range(bench.rounds)]
    late, early = zip(*costs, strict=True)
    ratio, detail = compare(late, early)
    what = f"a step after {LONG - WINDOW:,} others, against after {SHORT}"
    return Row(what, 1.1, "x", ratio, detail, "the article's agent grows with the square*")


def brought_to(idx: int, steps: int, disk: Path) -> Task:
    """A task killed in step `idx`."""
    task = Task(RESTART_AGENT, steps, disk)
    task.start(crash=idx)
    return task


def window(task: Task, disk: Path) -> float:
    """Seconds per step of what is left of the task; its first step pays for the recovery."""
    copy = task.copy(disk)
    at = copy.start()
    del at[-1]
    (first, began), (last, ended) = sorted(at.items())
    shutil.rmtree(copy.folder)
    return (ended - began) / (last - first)


def memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def measure_syncs(bench: Bench) -> Row:
    """Counted, so one run is enough; what the start and the end of the process sync is in it."""
    what, beside = f"syncs for each of {STEPS:,} steps", ""
    if not shutil.which("strace"):
        return Row(what, 2.05, "", None, "strace is not installed", beside)
    task = Task(RESTART_AGENT, STEPS, bench.disk)
    trace = task.folder / "trace"
    options = ["-f", "--seccomp-bpf", "-e", "trace=fsync,fdatasync", "-o", str(trace)]
    environment = {"LAST": str(STEPS - 1), "MARKS": str(task.marks)}
    run(["strace", *options, *task.who.argv], task.folder, environment)
    syncs = len(re.findall(r"\bf(?:data)?sync\(", trace.read_text("utf-8")))
    return Row(what, 2.05, "", syncs / STEPS, f"{syncs:,} in all, by strace", beside)


def measure_status(bench: Bench) -> Row:
    task = Task(RESTART_AGENT, 3, bench.disk)
    task.start()
    ours, bare = [*AGENT, "status", "t"], [sys.executable, "-c", "import sqlite3"]
    pairs = [(seconds(ours, task), seconds(bare, task)) for _ in range(PAIRS * bench.rounds)]
    ratio, detail = compare(*zip(*pairs, strict=True))
    what = "`status`, the whole process, against `import sqlite3`"
    return Row(what, 1.8, "x", ratio, detail, "the article's 3.4 x*")


def seconds(argv: list[str], task: Task) -> float:
    began = time.monotonic()
    run(argv, task.folder, {})
    return time.monotonic() - began


def measure_restart(bench: Bench) -> Row:
    """Killed in step 5 of 10, started again: until step 5 begins once more."""
    present = [who for who in (RESTART_AGENT, RAW, *PEERS) if who.is_installed]
    rounds = [[restart_ms(who, bench) for who in present] for _ in range(bench.rounds)]
    ours, *others = zip(*rounds, strict=True)
    beside = [
        f"{who.name} {median(took):.0f} ms" for who, took in zip(present[1:], others, strict=True)
    ]
    what, detail = "restart after SIGKILL, to the first step", f"best {min(ours):.0f} ms"
    beside.append("the article's agent 80*")
    return Row(what, 50, "ms", median(ours), detail, ", ".join(beside))


def restart_ms(who: Contender, bench: Bench) -> float:
    task = Task(who, 10, bench.disk)
    task.start(crash=5)
    at = task.start()
    return (at[5] - at[-1]) * MS


def measure_events(bench: Bench, count: int = EVENTS) -> Row:
    path = journals.make_journal(bench.disk / f"{count}-events.db", count // 2)
    ours, bare = journals.time_events(path, bench.rounds)
    detail, beside = journals.compared(ours, bare, "bare sqlite3 `fetchall`")
    return Row(f"{count:,} events as a frame", 4, "s", median(ours), detail, beside)


def measure_bars(bench: Bench, count: int = BARS) -> Row:
    path = journals.make_journal(bench.disk / f"{count}-bars.db", count)
    ours, bare, whole = journals.time_bars(path, bench.rounds)
    detail, beside = journals.compared(ours, bare, "bare PolyCollection")
    detail += f"; {whole:.2g} s with reading"
    return Row(f"{count:,} bars drawn as PNG", 1, "s", median(ours), detail, beside)


def measure_points(bench: Bench) -> Row:
    value, detail = kit.time_points(bench.rounds)
    return Row("the kit: one kill at a named point", 10, "ms", value, detail, "")


def measure_kills(bench: Bench) -> Row:
    what = "the kit: every system call of `create` and `run`"
    return _traced(what, 40, kit.time_syscalls)


def measure_pairs(bench: Bench, pairs: int = 300) -> Row:
    return _traced(f"the kit: {pairs} double kills", 90, lambda: kit.time_pairs(pairs))


def measure_images(bench: Bench, images: int = 1500) -> Row:
    what = f"the kit: {images:,} images of a power cut"
    return _traced(what, 15, lambda: kit.time_images(images))


def measure_commits(bench: Bench) -> Row:
    """Counted, so one pair of processes is enough."""
    what, beside = "commits of a durable run: model, tool, model", "M-Agent 0.5 23*"
    if not shutil.which("strace"):
        return Row(what, 9, "", None, "strace is not installed", beside)
    value, detail = durable.count_commits(_folder(bench))
    return Row(what, 9, "", value, detail, beside)


def measure_durable(bench: Bench) -> Row:
    ours, floor, wrote = durable.time_runs(_folder(bench), RUNS * bench.rounds)
    ratio, detail = compare(ours, floor)
    what = "a durable run, against a raw sqlite3 loop"
    return Row(what, 1.5, "x", ratio, detail, wrote)


def measure_crowd(bench: Bench, finished: int = FINISHED) -> Row:
    """Start, resume and each list: the one that suffers most is the figure."""
    ratios = durable.time_crowd(_folder(bench), finished, RUNS, bench.rounds)
    start, resume = ratios.pop("start"), ratios.pop("resume")
    lists = f"lists {min(ratios.values()):.2f} to {max(ratios.values()):.2f}"
    what = f"start, resume, lists: among {finished:,} runs, against among {durable.FEW}"
    worst = max(start, resume, *ratios.values())
    return Row(what, 1.1, "x", worst, f"start {start:.2f}, resume {resume:.2f}, {lists}", "")


def measure_find(bench: Bench, finished: int = FINISHED) -> Row:
    found, whole = durable.time_find(_folder(bench), finished, 4 * bench.rounds)
    what = f"one abandoned run found among {finished:,}"
    beside = f"`recover_all` with the run's end {median(whole) * MS:.1f} ms"
    return Row(what, 10, "ms", median(found) * MS, f"best {min(found) * MS:.2g} ms", beside)


def _folder(bench: Bench) -> Path:
    return Path(tempfile.mkdtemp(dir=bench.disk))


def _traced(what: str, limit_s: float, measure: Callable[[], tuple[float, str]]) -> Row:
    if not shutil.which("strace"):
        return Row(what, limit_s, "s", None, "strace is not installed", "")
    value, detail = measure()
    return Row(what, limit_s, "s", value, detail, "")


FIGURES = {
    "loop": measure_loop,
    "growth": measure_growth,
    "syncs": measure_syncs,
    "status": measure_status,
    "restart": measure_restart,
    "events": measure_events,
    "bars": measure_bars,
    "points": measure_points,
    "kills": measure_kills,
    "pairs": measure_pairs,
    "images": measure_images,
    "commits": measure_commits,
    "durable": measure_durable,
    "crowd": measure_crowd,
    "find": measure_find,
}


def measure_all(bench: Bench, names: list[str]) -> Iterator[Row]:
    for name in names or FIGURES:
        yield FIGURES[name](bench)

"""`labkit chaos examples`: the same task in several engines, the same kills, one table.

Programs that never heard of the kit name no crash points. They are killed by what every program
does: as soon as the n-th call has returned that changes a file of its own, in whatever thread or
process, or, where there is no strace, a seeded time after the first step began.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from labkit.chaos.examples.catalogue import EXAMPLES, KEY, SENT, Example
from labkit.chaos.kill import Injury, sweep, try_injuries
from labkit.chaos.scenario import NotDelivered, Trial, Workshop, scratch
from labkit.chaos.tracing import STRACE, Reader, require_strace, run_traced
from labkit.chaos.verdict import BROKEN, UNKNOWN, Report, Verdict
from labkit.errors import NotFound, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from labkit.guard import Guarded

__all__ = ["AtCall", "Row", "Seen", "compare", "examples_command", "measure", "see", "table"]

WIDTH, KILLS, HOLD_MS, POLL_S, PACE_S = 84, 30, 40, 0.002, 0.02
SOME = 12  # addresses that a table names
# Each of these is held up before and after it is done, which is the time to kill in: for HOLD_MS,
# or less where a program makes so many of them that a run would take seconds longer.
HELD = (
    "?write,?pwrite64,?writev,?pwritev,?ftruncate,?fsync,?fdatasync,?link,?linkat,?rename,"
    "?renameat,?renameat2,?unlink,?unlinkat,?mkdir,?mkdirat"
)
ENDED = re.compile(r"^(\d+) \+\+\+ exited", re.MULTILINE)


class Seen(NamedTuple):
    """What one trial shows from outside. `again`: a finished step was run again."""

    repeated: bool
    lost: bool
    again: bool
    wrong: bool


class Row(NamedTuple):
    """One program. `unknown` are the kills that show nothing; the four before count trials.

    `where` are the addresses of the kills after which anything was not as it should be.
    """

    program: str
    effect: str
    how: str
    planned: int = 0
    delivered: int = 0
    repeated: int = 0
    lost: int = 0
    again: int = 0
    wrong: int = 0
    unknown: int = 0
    promise: str = ""
    where: str = ""
    note: str = ""


def see(effects: str, steps: str, faults: Sequence[str] = ()) -> Seen:
    """Reads the two witnesses of `programs/task.py`. A step is finished once its successor has
    begun, the last one once the engine has returned the result."""
    sent = [line.split() for line in effects.splitlines()]
    count = sum(words[0] == KEY for words in sent)
    lines = [[int(word) for word in line.split()] for line in steps.splitlines()]
    begun = [line[0] for line in lines]
    again = any(step < max(begun[:at]) for at, step in enumerate(begun) if at)
    results = [line[1] for line in lines if line[0] == 3][-1:]
    amounts = results + [int(words[1]) for words in sent]
    wrong = bool(faults) or any(amount != SENT for amount in amounts)
    return Seen(count > 1, count == 0, again, wrong)


class Watching(Workshop):
    """Keeps what each judged trial shows."""

    def __init__(self, example: Example, root: Path, environ: dict[str, str]) -> None:
        self.seen: list[Seen] = []
        scenario = example.scenario
        super().__init__(scenario._replace(environ={**scenario.environ, **environ}), root)
        if self.left.effects != Counter({KEY: 1}):
            raise UsageError(f"{example.name}: not even unharmed is there one effect")

    def judge(self, trial: Trial) -> tuple[str, str]:
        _, fault = trial.check()
        seen = see(_text(trial.witness), _text(_steps(trial)), [fault] if fault else [])
        self.seen.append(seen)
        found = [name for name, is_so in seen._asdict().items() if is_so]
        return (BROKEN, ", ".join([*found, *filter(None, [fault])])) if found else ("held", "")


def _steps(trial: Trial) -> Path:
    return trial.witness.with_name(trial.witness.name + ".steps")


def _text(path: Path) -> str:
    with suppress(FileNotFoundError):
        return path.read_text(encoding="utf-8")
    return ""


class AtCall(NamedTuple):
    """SIGKILL to a whole program as soon as its n-th call on its files has returned.

    Its files are those of the trial, the witness too. Threads take turns in another order in each
    run, so the calls of all of them are counted together, and which call it is may differ. With
    `path` only the calls on that one file are counted: then it is the same call in each run.
    """

    ordinal: int
    hold_ms: int = HOLD_MS
    tracer: Sequence[str] = STRACE
    path: str = ""
    how: str = "syscalls"

    @property
    def address(self) -> str:
        return f"{self.path or 'call'}:{self.ordinal}"

    def strike(self, trial: Trial) -> None:
        """Raises NotDelivered unless the trace shows the call, and the program killed after it."""
        hold = f"delay_enter={self.hold_ms}ms:delay_exit={self.hold_ms}ms"
        options = ["-e", f"inject={HELD}:{hold}"]
        ended, _ = run_traced(trial, options, self.tracer, self._watch(trial))
        trace = _text(trial.root / "trace")
        if ended.code != -signal.SIGKILL or _has_ended(trace):
            raise NotDelivered(f"{self.address} came too late: the run had ended, {ended.code}")
        if _returned(Reader(trial.root).feed(trace), self.path) < self.ordinal:
            raise NotDelivered(f"{self.address} is not in the trace")

    def _watch(self, trial: Trial) -> Callable[[Guarded, Path], None]:
        def watch(process: Guarded, trace: Path) -> None:
            reader, end = Reader(trial.root), time.monotonic() + trial.scenario.timeout_s
            with trace.open(encoding="utf-8", errors="replace") as text:
                while process.poll() is None and time.monotonic() < end:
                    if _returned(reader.feed(text.read()), self.path) >= self.ordinal:
                        process.kill()
                        return
                    time.sleep(POLL_S)

        return watch


def _returned(reader: Reader, path: str = "") -> int:
    """How many calls that change the trial's files, or this one of them, have returned so far."""
    touching = {call for call in reader.touching if path in ("", call.path)}
    results = zip(reader.calls, reader.results, strict=True)
    return sum(call in touching and result != "" for call, result in results)


def _has_ended(trace: str) -> bool:
    first = re.match(r"\d+", trace)
    return bool(first) and first[0] in ENDED.findall(trace) if first else False


class AtTime(NamedTuple):
    """SIGKILL from outside, a seeded time after the first step began."""

    seed: int
    longest_s: float
    how: str = "random"

    @property
    def address(self) -> str:
        return f"seed:{self.seed}"

    def strike(self, trial: Trial) -> None:
        wait_s = random.Random(self.seed).uniform(0, self.longest_s)

        def meanwhile(process: Guarded) -> None:
            _await_first_step(process, trial)
            with suppress(subprocess.TimeoutExpired):
                process.wait(wait_s)
                return
            process.kill()

        ended = trial.call(trial.scenario.run, meanwhile)
        if ended.code != -signal.SIGKILL:
            raise NotDelivered(f"{self.address} came too late: the run had ended, {ended.code}")


def _await_first_step(process: Guarded, trial: Trial) -> None:
    end = time.monotonic() + trial.scenario.timeout_s
    while process.poll() is None and not _text(_steps(trial)) and time.monotonic() < end:
        time.sleep(POLL_S)


def _plan(workshop: Workshop, how: str, kills: int, seed: int) -> Sequence[Injury]:
    """Spread over the whole run: one call by chance from each of `kills` equal parts."""
    with workshop.open() as trial:
        if how == "random":
            return _times(trial, kills, seed)
        ended, _ = run_traced(trial)
        number = _returned(Reader(trial.root).feed(_text(trial.root / "trace")))
    if ended.code != workshop.code:
        raise NotDelivered(f"the run exits {ended.code} while it is recorded: {ended.said}")
    chance, parts = random.Random(seed), min(kills, number)
    edges = [part * number // parts for part in range(parts + 1)]
    hold_ms = max(5, min(HOLD_MS, 700 // number))
    return [AtCall(chance.randint(a + 1, b), hold_ms) for a, b in pairwise(edges)]


def _times(trial: Trial, kills: int, seed: int) -> Sequence[Injury]:
    began: list[float] = []

    def meanwhile(process: Guarded) -> None:
        _await_first_step(process, trial)
        began.append(time.monotonic())

    trial.call(trial.scenario.run, meanwhile)
    longest_s = 0.8 * (time.monotonic() - began[0])  # a kill after the end shows nothing
    return [AtTime(seed + n, longest_s) for n in range(kills)]


def usual_way() -> str:
    """`syscalls` where strace may trace, otherwise `random`."""
    try:
        require_strace()
    except NotFound:
        return "random"
    return "syscalls"


def measure(
    example: Example,
    how: str | None = None,
    kills: int = KILLS,
    seed: int = 0,
    on_end: Callable[[Verdict], object] | None = None,
) -> Row:
    """Kills one program `kills` times, fewer if it has fewer calls. If it is not installed the row
    says how to get it. Raises UsageError for a way that is not `syscalls` or `random`."""
    how = how or usual_way()
    if how not in WAYS:
        raise UsageError(f"{how!r}: other people's programs are killed by syscalls or random")
    if example.missing:
        return Row(
            example.name, _effect(example), how, promise=example.promise, note=example.missing
        )
    with _workshop(example, how) as workshop:
        plan = _plan(workshop, how, kills, seed)
        report = sweep(workshop, [[injury] for injury in plan], on_end)
    return _row(example, how, report, workshop.seen)


def _row(example: Example, how: str, report: Report, seen: Sequence[Seen]) -> Row:
    unknown = report.count(UNKNOWN)
    reasons = Counter(v.reason for v in report.verdicts if v.outcome == UNKNOWN)
    note = f"unknown: {reasons.most_common(1)[0][0]}" if unknown else ""
    where = " ".join(v.address for v in report.verdicts if v.outcome == BROKEN)
    return Row(
        example.name, _effect(example), how, report.planned, report.delivered,
        repeated=sum(each.repeated for each in seen), lost=sum(each.lost for each in seen),
        again=sum(each.again for each in seen), wrong=sum(each.wrong for each in seen),
        unknown=unknown, promise=example.promise, where=where, note=note,
    )  # fmt: skip


def _effect(example: Example) -> str:
    return "with a key" if example.has_key else "without a key"


class _workshop:
    """A watching workshop in a folder of its own, for the time of a `with`."""

    def __init__(self, example: Example, how: str) -> None:
        self.example = example
        self.environ = {"PACE": str(PACE_S)} if how == "random" else {}
        self.folder = tempfile.TemporaryDirectory(prefix="labkit-chaos-", dir=scratch())

    def __enter__(self) -> Watching:
        return Watching(self.example, Path(self.folder.name), self.environ)

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()


def compare(
    examples: Iterable[Example] = EXAMPLES,
    *,
    how: str | None = None,
    kills: int = KILLS,
    seed: int = 0,
) -> pd.DataFrame:
    """A row for each program: what was killed, how often, and what was seen from outside."""
    import pandas as pd

    rows = [measure(example, how, kills, seed) for example in examples]
    return pd.DataFrame(rows, columns=list(Row._fields))


def examples_command(argv: list[str]) -> int:
    """`labkit chaos examples`: prints the table. Exits 0 if something was killed in every program
    that is installed, otherwise 2; what a program does wrong is a result, not an error."""
    asked = _parse(argv)
    chosen = [e for e in EXAMPLES if not asked.only or asked.only in e.name]
    if not chosen:
        names = ", ".join(sorted({example.name for example in EXAMPLES}))
        raise UsageError(f"no program is called {asked.only!r}; there are {names}")
    if asked.at is not None:
        return _once(chosen, asked.at)
    rows = _watched(chosen, asked)
    print(table(rows))
    return 0 if all(row.delivered or "not installed" in row.note for row in rows) else 2


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="labkit chaos examples")
    parser.add_argument("--how", choices=["syscalls", "random"], help="usual: with strace, if any")
    parser.add_argument("--kills", type=int, default=KILLS, metavar="N", help="of each program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="NAME", help="such as DBOS")
    parser.add_argument("--at", type=int, metavar="N", help="one kill, at the N-th call")
    asked = parser.parse_args(argv)
    if asked.kills < 1 or (asked.at is not None and asked.at < 1):
        raise UsageError("--kills and --at are numbers from 1 on")
    return asked


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"{self.prog}: {message}; see {self.prog} --help")


def _watched(chosen: Sequence[Example], asked: argparse.Namespace) -> list[Row]:
    """Measures, and shows a bar on a terminal."""
    try:
        from tqdm import tqdm
    except ImportError:
        return [measure(example, asked.how, asked.kills, asked.seed) for example in chosen]
    total = asked.kills * sum(not example.missing for example in chosen)
    with tqdm(total=total, disable=not sys.stderr.isatty(), unit="kill") as bar:
        return [
            measure(example, asked.how, asked.kills, asked.seed, lambda verdict: bar.update(1))
            for example in chosen
        ]


def _once(chosen: Sequence[Example], ordinal: int) -> int:
    for example in (e for e in chosen if not e.missing):
        with _workshop(example, "syscalls") as workshop:
            verdict = try_injuries(workshop, [AtCall(ordinal)])
        print(f"{example.name}, {_effect(example)}: {verdict}")
    return 0


COLUMNS = ("kills", "effect", "effect", "finished", "state", "un-")
BELOW = ("", "repeated", "lost", "again", "wrong", "known")


def table(rows: Sequence[Row]) -> str:
    """The rows in 84 columns; below them what each engine promises, and what the words mean."""
    lines = [_line("program", "its effect", COLUMNS), _line("", "", BELOW), "-" * WIDTH]
    for row in rows:
        numbers = (row.delivered, row.repeated, row.lost, row.again, row.wrong, row.unknown)
        cells = tuple(map(str, numbers)) if row.planned else ("-",) * 6
        lines.append(_line(row.program, row.effect, cells))
    blocks = [*_promises(rows), *_details(rows), *textwrap.wrap(MEANING, WIDTH)]
    return "\n".join([*lines, "", *blocks])


WAYS = {
    "syscalls": "after system calls that change a file, spread over the whole run",
    "random": "from outside, at times by chance after the first step began",
}
MEANING = (
    "Counted are kills that were proved delivered, and of each what was seen from outside after "
    "restarts until the program ended. That an effect without a key is repeated, because the "
    "kill came between the effect and its record, is what every engine here but the durable run "
    "says may happen; that one waits then, and its program answers by looking at what has "
    "arrived. A step is finished once its successor has begun, or once the engine has returned "
    "the result. The state is wrong if the result is not that of an unharmed run, or the "
    "engine's records are not in order. The schema of each database is made before, unharmed. "
    "All engines store in SQLite here; for production DBOS and LangGraph advise Postgres."
)


def _promises(rows: Sequence[Row]) -> Iterator[str]:
    for program, promise in {row.program: row.promise for row in rows}.items():
        yield from _indented(f"{program} promises: {promise}")
    yield ""


def _details(rows: Sequence[Row]) -> Iterator[str]:
    """How it was killed, where it was not as it should be, and what a row cannot show."""
    for how in dict.fromkeys(row.how for row in rows if row.planned):
        yield f"Killed {WAYS[how]}."
    for row in rows:
        if row.where:
            yield from _indented(f"{row.program}, {row.effect}, not held at: {_some(row.where)}")
    if any("call:" in row.where for row in rows):
        yield "One of these again: labkit chaos examples --only NAME --at N"
    for program, note in {row.program: row.note for row in rows if row.note}.items():
        yield from _indented(f"{program}: {note}")
    yield ""


def _some(addresses: str) -> str:
    each = addresses.split()
    rest = f" and {len(each) - SOME} more" if len(each) > SOME else ""
    return " ".join(each[:SOME]) + rest


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")


def _line(program: str, effect: str, cells: Sequence[str]) -> str:
    return f"{program:15}{effect:15}" + "".join(f"{cell:>9}" for cell in cells)

"""Every disk that a power cut could have left of one run, each of them tried.

One recorded run gives the events; at each cut, what was not synced is kept, dropped or torn, names
and data apart. There are far too many combinations, so at each cut the extremes are taken, and then
chosen ones by chance, from a seed, until there are as many images as asked for. Images are counted
distinct by content.

Each image is written into a fresh folder, compared with what was planned, and then

- what the outside had been told before the cut must be in it (`acknowledged`, asked of a copy);
- if the run had ended before the cut, the scenario's check and files must hold as they are;
- else the program is run to its end by real processes, and judged as after a kill.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from labkit import guard
from labkit.chaos.disk import (
    DROPPED,
    SECTOR,
    ZEROED,
    Bind,
    Cut,
    Disk,
    Fate,
    Start,
    Write,
    read_cut,
    read_folder,
)
from labkit.chaos.forkserver import ForkServer, module_of
from labkit.chaos.recording import Recording, record_files
from labkit.chaos.scenario import NotDelivered, Trial, Workshop
from labkit.chaos.tracing import STRACE
from labkit.chaos.verdict import BROKEN, UNKNOWN, Report, Verdict, one_line
from labkit.errors import UsageError, describe

__all__ = [
    "HOW",
    "Acknowledged",
    "Case",
    "Losses",
    "build",
    "lose_power",
    "plan_cuts",
    "restart_kept",
    "try_cuts",
    "try_one",
]

HOW = "powerloss"
IMAGES = 1_500
ALONE_MAX = 24  # how many pending events of one cut are dropped, or kept, each alone
FINAL, PLAIN, ALONE, TORN, CHANCE = range(5)  # where there are too many, the first come first
GONE, NO_FILE = "acknowledged but gone", "done but no file"
REASON_MAX = 600

Acknowledged = Callable[[Path, Sequence[str]], Iterable[str]]
Builder = Callable[[Disk, Cut, Path], None]


class Case(NamedTuple):
    """One image to try. `told` and `witness` are what the outside knew when the power went."""

    cut: Cut
    digest: bytes
    told: tuple[str, ...]
    witness: bytes
    ended: bool


class Losses(NamedTuple):
    """What a sweep showed, and what was done for how many.

    `images` are distinct contents; of the trials `asked` were asked for what was acknowledged,
    `went_on` were run to their end, by `runs` processes, and `at_the_end` were judged as they were,
    since the run had ended before the cut.
    """

    report: Report
    images: int = 0
    cuts: int = 0
    asked: int = 0
    went_on: int = 0
    runs: int = 0
    at_the_end: int = 0
    doubts: tuple[str, ...] = ()

    def reasons(self, words: str) -> int:
        return sum(words in verdict.reason for verdict in self.report.verdicts)

    def __str__(self) -> str:
        if self.doubts:
            return one_line(
                f"no image was built, the recording has doubts: {'; '.join(self.doubts)}"
            )
        return (
            f"{self.images} distinct images of {self.cuts} cuts in {self.report.planned} trials: "
            f"{self.asked} asked for what was acknowledged, "
            f"{self.went_on} run to their end by {self.runs} processes, "
            f"{self.at_the_end} judged as they were after the exit; "
            f"{self.reasons(GONE)} {GONE}, {self.reasons(NO_FILE)} {NO_FILE}"
        )


def lose_power(
    workshop: Workshop,
    images: int = IMAGES,
    seed: int = 0,
    acknowledged: Acknowledged | None = None,
    on_end: Callable[[Verdict], None] | None = None,
    tracer: Sequence[str] = STRACE,
) -> Losses:
    """Records one run and tries `images` of its power cuts, on all cores.

    `acknowledged(folder, lines)` says what of the lines that the program printed before the cut is
    not true of the folder. It and a check that is a function must belong to a module, since other
    processes call them: UsageError otherwise. NotFound without strace.
    """
    try:
        recording = record_files(workshop, tracer)
    except (NotDelivered, OSError) as why:  # OSError: it removed what was to be read
        return _doubtful((str(why),))
    if recording.doubts:
        return _doubtful(recording.doubts)
    return try_cuts(workshop, recording, plan_cuts(recording, images, seed), acknowledged, on_end)


def _doubtful(doubts: tuple[str, ...]) -> Losses:
    why = f"the recording has doubts: {'; '.join(doubts)}"[:REASON_MAX]
    return Losses(Report(1, (Verdict(HOW, "recording", UNKNOWN, why, False),)), doubts=doubts)


def try_one(
    workshop: Workshop,
    address: str,
    acknowledged: Acknowledged | None = None,
    recording: Recording | None = None,
) -> Verdict:
    """One cut again, by its address, of this recording or of a fresh one; its image stays in the
    folder `image` of the workshop. Raises UsageError for a cut that the run does not have."""
    cut = read_cut(address)
    if recording is None:
        try:
            recording = record_files(workshop)
        except (NotDelivered, OSError) as why:
            recording = Recording(Disk(Start({}, {}, {}), ()), (str(why),), ())
    if recording.doubts:
        return _doubtful(recording.doubts).report.verdicts[0]
    losses = try_cuts(workshop, recording, [_case(recording.disk, cut)], acknowledged)
    kept = workshop.root / "image"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    build(recording.disk, cut, kept)
    return losses.report.verdicts[0]


# The plan.


def plan_cuts(recording: Recording, images: int = IMAGES, seed: int = 0) -> list[Case]:
    """As many distinct images as asked for, or all that the extremes and much chance give.

    One content may be possible at several cuts. It is tried once for each state of the witness, at
    the last such cut, where the outside had been told the most.
    """
    disk, chance = recording.disk, random.Random(seed)
    cuts = [
        (rank, Cut(at, lost))
        for at in range(len(disk.events) + 1)
        for rank, lost in _extremes(disk, at, disk.pending(at), chance)
    ]
    plan = _Plan(disk)
    chance.shuffle(cuts)
    for rank, cut in sorted(cuts, key=lambda each: each[0])[: 8 * images]:
        plan.add(cut, rank)
    for cut in _chosen_by_chance(disk, chance, 20 * images):
        if len(plan.ranks) >= images:
            break
        plan.add(cut, CHANCE)
    return plan.choose(images, chance)


class _Plan:
    """Cases, and the contents that they share, each with the rank of its plainest case."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._cases: dict[tuple[bytes, bytes, bool], Case] = {}
        self._seen: set[object] = set()
        self.ranks: dict[bytes, int] = {}

    def add(self, cut: Cut, rank: int) -> None:
        if (same := (cut.at, frozenset(cut.lost.items()))) in self._seen:
            return
        self._seen.add(same)
        case = _case(self._disk, cut)
        key = case.digest, case.witness, case.ended
        self.ranks[case.digest] = min(rank, self.ranks.get(case.digest, rank))
        if key not in self._cases or self._cases[key].cut.at < cut.at:
            self._cases[key] = case

    def choose(self, images: int, chance: random.Random) -> list[Case]:
        """All cases in the order of their cuts; where there are too many, the plainest contents."""
        contents = sorted(self.ranks)
        chance.shuffle(contents)
        chosen = set(sorted(contents, key=lambda content: self.ranks[content])[:images])
        cases = (case for case in self._cases.values() if case.digest in chosen)
        return sorted(cases, key=lambda case: case.cut.at)


def _extremes(
    disk: Disk, at: int, pending: list[int], chance: random.Random
) -> Iterator[tuple[int, dict[int, Fate]]]:
    """What is lost: nothing, all, the names, the data, each alone, all but one, a torn write."""
    names = {event for event in pending if isinstance(disk.events[event], Bind)}
    writes = {event for event in pending if isinstance(disk.events[event], Write)}
    rank = FINAL if at == len(disk.events) else PLAIN
    yield rank, {}
    yield rank, dict.fromkeys(pending, DROPPED)
    yield rank, dict.fromkeys(names, DROPPED)
    yield rank, {event: DROPPED for event in pending if event not in names}
    yield rank, {event: ZEROED if event in writes else DROPPED for event in set(pending) - names}
    some = pending if len(pending) <= ALONE_MAX else chance.sample(pending, ALONE_MAX)
    for event in some:
        yield ALONE, {event: DROPPED}
        yield ALONE, {other: DROPPED for other in pending if other != event}
    if writes and (last := max(writes)) == at - 1:
        others: dict[int, Fate] = {event: DROPPED for event in pending if event != last}
        sectors = _sectors(disk.events[last])
        for here in range(1, len(sectors)):
            for torn in (tuple(sectors[:here]), tuple(sectors[here:])):
                yield TORN, {last: _join(torn)}
                yield TORN, {**others, last: _join(torn)}


def _chosen_by_chance(disk: Disk, chance: random.Random, count: int) -> Iterator[Cut]:
    """Cuts where more can be lost are chosen more often: elsewhere the extremes are nearly all."""
    pending = [disk.pending(at) for at in range(len(disk.events) + 1)]
    weights = [sum(_parts(disk.events[event]) for event in events) for events in pending]
    ats = chance.choices(range(len(pending)), weights, k=count) if any(weights) else []
    for at in ats:
        kept = chance.random()
        lost = {e: _fate(disk.events[e], chance) for e in pending[at] if chance.random() > kept}
        yield Cut(at, lost)


def _parts(event: object) -> int:
    return len(_sectors(event)) if isinstance(event, Write) else 1


def _fate(event: object, chance: random.Random) -> Fate:
    if not isinstance(event, Write) or chance.random() < 0.5:
        return DROPPED
    sectors = _sectors(event)
    torn = tuple(piece for piece in sectors if chance.random() < 0.5)
    return _join(torn) if 0 < len(torn) < len(sectors) else ZEROED


def _sectors(event: object) -> list[tuple[int, int]]:
    """The pieces of a write that lie in one sector of the file, counted within the write."""
    assert isinstance(event, Write)
    end = event.offset + len(event.data)
    edges = [event.offset, *range((event.offset // SECTOR + 1) * SECTOR, end, SECTOR), end]
    pairs = pairwise(edges)
    return [(begin - event.offset, stop - event.offset) for begin, stop in pairs]


def _join(pieces: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    joined: list[tuple[int, int]] = []
    for begin, end in pieces:
        if joined and joined[-1][1] == begin:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return tuple(joined)


def _case(disk: Disk, cut: Cut) -> Case:
    disk.check(cut)
    return Case(cut, disk.image(cut).digest(), *disk.known(cut.at))


# The trials, in processes forked from a helper that was started for that purpose.


def build(disk: Disk, cut: Cut, folder: Path) -> None:
    """Makes the image of a cut in an empty folder."""
    disk.image(cut).write(folder)


class _Job(NamedTuple):
    workshop: Workshop
    disk: Disk
    cases: list[Case]
    acknowledged: Acknowledged | None
    builder: Builder
    environ: dict[str, str]


HELPER = "import sys; from labkit.chaos.powerloss import _help; _help(sys.argv[1])"


def try_cuts(
    workshop: Workshop,
    recording: Recording,
    cases: Sequence[Case],
    acknowledged: Acknowledged | None = None,
    on_end: Callable[[Verdict], None] | None = None,
    builder: Builder = build,
) -> Losses:
    """Builds and judges the images. Raises UsageError for functions that no module has."""
    job = _Job(
        _bare(workshop), recording.disk, list(cases), acknowledged, builder, dict(os.environ)
    )
    verdicts: dict[int, Verdict] = {}
    runs: list[int] = []
    for at, outcome, reason, delivered, ran in _call_helper(job):
        verdicts[at] = _verdict(cases[at], outcome, reason, delivered)
        runs.append(ran)
        if on_end:
            on_end(verdicts[at])
    for at, case in enumerate(cases):
        verdicts.setdefault(at, _verdict(case, UNKNOWN, "its process has ended early", False))
    report = Report(len(cases), tuple(verdicts[at] for at in range(len(cases))))
    return Losses(
        report,
        len({case.digest for case in cases}),
        len({case.cut.at for case in cases}),
        report.delivered if acknowledged else 0,
        sum(map(bool, runs)),
        sum(runs),
        sum(case.ended and verdicts[at].delivered for at, case in enumerate(cases)),
    )


def _verdict(case: Case, outcome: str, reason: str, delivered: bool) -> Verdict:
    address = case.cut.address()
    return Verdict(
        HOW, address, outcome, reason, delivered, f"labkit chaos replay '{address}' --how {HOW}"
    )


def _call_helper(job: _Job) -> Iterator[tuple[int, str, str, bool, int]]:
    for function in (job.acknowledged, job.workshop.scenario.check):
        if getattr(function, "__module__", "") == "__main__":
            raise UsageError("a check that is a function must be imported from a module")
    path = job.workshop.root / f"job-{os.getpid()}"
    try:
        path.write_bytes(pickle.dumps(job))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        why = f"a check that is a function must be one of a module: {error}"
        raise UsageError(why) from None
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [sys.executable, "-P", "-c", HELPER, str(path)]
    helper = guard.start(argv, stdout=subprocess.PIPE, env=environ)
    output: Any = helper.stdout
    try:
        for line in output:
            yield tuple(json.loads(line))
    finally:
        helper.kill()
        output.close()
        path.unlink()


def _help(path: str) -> None:
    """In the helper process: one worker for each core, and each has its share of the cases."""
    with open(path, "rb") as file:
        job: _Job = pickle.load(file)
    os.environ.clear()
    os.environ.update(job.environ)
    tempfile.tempdir = str(job.workshop.root)  # what a worker that dies leaves goes with the rest
    cores = os.cpu_count() or 1
    workers = []
    for core in range(cores):
        if not (pid := os.fork()):
            _work(job, range(core, len(job.cases), cores))
        workers.append(pid)
    for pid in workers:
        os.waitpid(pid, 0)


def _work(job: _Job, share: Iterable[int]) -> None:
    """In a worker: tries its cases and tells each result in one line. Never returns."""
    try:
        with ForkServer(job.workshop.scenario.environ) as forks:
            bench = _Bench(job, forks)
            for at in share:
                result = (at, *bench.try_case(job.cases[at]))
                os.write(1, json.dumps(result).encode() + b"\n")
    finally:
        os._exit(0)


def _bare(workshop: Workshop) -> Workshop:
    """The reference alone: what a workshop holds open cannot go to another process."""
    bare = object.__new__(Workshop)
    for name in ("scenario", "root", "bytecode", "code", "left"):
        setattr(bare, name, getattr(workshop, name))
    bare.prepared = None
    return bare


class _Bench:
    """Where one worker builds an image, and looks at what comes of it."""

    def __init__(self, job: _Job, forks: ForkServer) -> None:
        self.workshop, self.disk, self.acknowledged = job.workshop, job.disk, job.acknowledged
        self.build = job.builder
        self.forks, self.module = forks, module_of(job.workshop.scenario.run)
        self.scenario = job.workshop.scenario._replace(material=None)
        self.runs = 0

    def try_case(self, case: Case) -> tuple[str, str, bool, int]:
        """The outcome, the reason, whether the image was built, and how many processes ran."""
        self.runs, delivered = 0, False
        try:
            faults = self._ask(case) if self.acknowledged else []
            with self._build(case) as trial:
                delivered = True
                if not case.ended:
                    self._run_to_end(trial)
                outcome, reason = self.workshop.judge(trial)
            if case.ended and reason:
                reason = f"{GONE}: the run had exited {self.workshop.code}, but {reason}"
        except NotDelivered as why:
            outcome, reason = UNKNOWN, str(why)
        except Exception as error:  # of a check: it says nothing, and the others go on
            outcome, reason = UNKNOWN, describe(error)
        if delivered and faults:
            outcome, reason = BROKEN, "; ".join(filter(None, [*faults, reason]))
        return outcome, reason[:REASON_MAX], delivered, self.runs

    def _ask(self, case: Case) -> list[str]:
        """What the outside was told and is not so. A reader mends a database: so, of a copy."""
        assert self.acknowledged
        with tempfile.TemporaryDirectory(prefix="copy-", dir=self.workshop.root) as name:
            self.build(self.disk, case.cut, Path(name))
            return list(self.acknowledged(Path(name), case.told))

    def _build(self, case: Case) -> Trial:
        """The image in a fresh folder, proved to be the planned one."""
        trial = Trial(self.scenario, self.workshop.root, self.workshop.bytecode)
        try:
            (trial.folder / "tmp").rmdir()
            self.build(self.disk, case.cut, trial.folder)
            seen = Disk(read_folder(trial.folder), ()).image(Cut(0, {}))
            if seen.digest() != case.digest:
                raise NotDelivered("the folder does not hold the image that was planned")
            (trial.folder / "tmp").mkdir(exist_ok=True)
            if case.witness:
                name = self.scenario.witness
                witness = trial.folder / name if name else trial.witness
                witness.parent.mkdir(parents=True, exist_ok=True)
                witness.write_bytes(case.witness)
        except BaseException:
            trial.close()
            raise
        return trial

    def _run_to_end(self, trial: Trial) -> None:
        scenario, said = trial.scenario, ""
        for _ in range(scenario.max_restarts):
            self.runs += 1
            try:
                code, said = self._run_once(trial)
            except TimeoutError as error:
                raise NotDelivered(f"the run: {error}") from None
            if code == self.workshop.code:
                return
        restarts = f"{scenario.max_restarts} restarts"
        last = (said.strip().splitlines() or ["it said nothing"])[-1]
        raise NotDelivered(f"the run has not ended after {restarts}: {last[-300:]}")

    def _run_once(self, trial: Trial) -> tuple[int, str]:
        scenario = trial.scenario
        if not self.module:
            return trial.call(scenario.run)
        return self.forks.call(self.module, trial.folder, trial.environ, scenario.timeout_s)


# What the restart agent has acknowledged.


def restart_kept(folder: Path, told: Sequence[str]) -> Iterator[str]:
    """What `labkit.chaos.telling` said and the database in the folder does not have; and every step
    that is done there whose file is not. It opens the database, and so mends it."""
    committed = {int(line[13:]) for line in told if line.startswith("after_commit:")}
    tasks = {line.split()[1] for line in told if line.startswith("task ")}
    done = {line.split()[1] for line in told if line.startswith("task ") and "is done" in line}
    try:
        rows, statuses = _read_database(folder / "state.db")
    except sqlite3.Error as error:
        if told:
            yield f"{GONE}: the database cannot be read: {error}"
        return
    steps = {int(row["idx"]): row for row in rows}
    for idx in sorted(committed):
        status = steps[idx]["status"] if idx in steps else "not there"
        if status != "done":
            yield f"{GONE}: step {idx} was committed, it is {status}"
    for task in sorted(tasks - statuses.keys()):
        yield f"{GONE}: task {task} is not there"
    for task in sorted(done & statuses.keys()):
        if statuses[task] != "done":
            yield f"{GONE}: task {task} was done, it is {statuses[task]}"
    yield from _files_of_done(folder, steps)


def _read_database(path: Path) -> tuple[list[sqlite3.Row], Mapping[str, str]]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as database:
        database.row_factory = sqlite3.Row
        if (answer := database.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(answer)
        if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'steps'").fetchone():
            return [], {}
        return (
            list(database.execute("SELECT idx, tool, input, status, output FROM steps")),
            dict(database.execute("SELECT id, status FROM tasks").fetchall()),
        )


def _files_of_done(folder: Path, steps: Mapping[int, sqlite3.Row]) -> Iterator[str]:
    for idx, step in steps.items():
        if step["tool"] == "write_artifact" and step["status"] == "done":
            source = steps[json.loads(step["input"])["from"]]
            path = json.loads(step["output"])["path"]
            wanted = json.loads(source["output"])["summary"].encode()
            found = (folder / path).read_bytes() if (folder / path).is_file() else None
            if found != wanted:
                seen = "is not there" if found is None else f"has {len(found)} other bytes"
                yield f"{NO_FILE}: step {idx} is done, {path} {seen}"

"""`labkit chaos`: breaks a program on purpose, in any language, and says what broke.

Exits 0 when every trial held, 1 when one is broken, 2 when something is unknown.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from labkit.chaos import faults, points, syscalls
from labkit.chaos.examples.durable import NAMES, durable
from labkit.chaos.examples.restart import creating, restart
from labkit.chaos.kill import Injury, sweep, try_injuries
from labkit.chaos.points import FastWorkshop
from labkit.chaos.scenario import TIMEOUT_S, NotDelivered, Scenario, Workshop, scratch
from labkit.chaos.verdict import HELD, UNKNOWN, Report, Verdict, one_line
from labkit.errors import UsageError

__all__ = ["main"]

# The durable run from nothing to its end, and what else may happen to it: durable-resume, ...
DURABLE = {f"durable-{name.replace(' ', '-')}": partial(durable, name) for name in NAMES[1:]}
SUBJECTS: dict[str, Callable[[], Scenario]] = {
    "restart": restart, "create": creating, "durable": durable, **DURABLE,
}  # fmt: skip
USAGE = """usage: labkit chaos COMMAND [OPTION]...

  sweep      one injury in each trial           --how points|statements|syscalls|random
  twice      two: a second kill in the recovery --how points|syscalls
  faults     storage that fails, at any call
  powerloss  every image that a power cut can leave of one run
  replay     one trial again, its folder kept: labkit chaos replay ADDRESS --how HOW ...
  mutants    agents that are broken on purpose, against the suite that must catch them
  examples   the same task in six programs, one table

The program: --run CMD [--setup CMD] [--check CMD] [--witness FILE] [--file PATTERN]...
[--material FOLDER], or one of the lab's own, --subject restart|create|durable|durable-resume|...
(the first is meant without any). `labkit chaos sweep --help` lists all options.
Exit: 0 held, 1 broken, 2 unknown.
"""


NO_POINTS = """note: the run reaches no crash point (AGENT_CRASH_AT names one). For a program that
has none: --how syscalls (needs strace), or --how random"""
NOT_THE_PROGRAM = ("--how", "--every", "--number", "--seed", "--csv", "--images")
NO_CALLS = "note: the run changes nothing in its folder, so there is nowhere to break it"


class Way(NamedTuple):
    """How injuries of one kind are planned, and how one is found by its address."""

    plan: Callable[[Workshop, argparse.Namespace], Sequence[Sequence[Injury]]]
    find: Callable[[Workshop, str], Sequence[Injury]]


def main(argv: list[str]) -> int:
    """Runs one command. Raises UsageError, and what a scenario raises."""
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    command, rest = argv[0], argv[1:]
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, _leave)  # as Ctrl-C: what runs is ended, what lies is removed
    if command == "mutants":
        from labkit.chaos.matrix import mutants_command

        return mutants_command(rest)
    if command == "examples":
        from labkit.chaos.compare import examples_command

        return examples_command(rest)
    if command not in ("sweep", "twice", "faults", "powerloss", "replay"):
        raise UsageError(f"there is no `labkit chaos {command}`; see labkit chaos --help")
    asked = _parse(command, rest)
    try:
        return _replay(asked, rest) if command == "replay" else _break(command, asked, rest)
    except NotDelivered as why:  # while the run was recorded
        print(one_line(f"{UNKNOWN}: {why}"))
        return 2


def _leave(signum: int, _: object) -> None:
    raise SystemExit(128 + signum)


def _break(command: str, asked: argparse.Namespace, rest: list[str]) -> int:
    with _workshop(asked) as workshop:
        if command == "powerloss":
            _note(workshop, asked)
            return _lose_power(workshop, asked, rest)
        _note(workshop, asked)
        plan = _plan(command, workshop, asked)
        if workshop.outside:
            what = "which all trials share: their verdicts prove little"
            told = f"note: the run writes {min(workshop.outside)}, {what}"
            print(one_line(told), file=sys.stderr)
        report = _watched(workshop, plan[:: asked.every])
    if not plan:
        print(NO_POINTS if asked.how == "points" else NO_CALLS, file=sys.stderr)
    return _tell(report, command, asked, rest)


WAYS = {
    "points": Way(
        lambda workshop, asked: [[point] for point in points.points(workshop)],
        lambda workshop, address: [points.Point(each) for each in address.split()],
    ),
    "statements": Way(
        lambda workshop, asked: [[each] for each in points.statements(workshop)],
        lambda workshop, address: points.find_statements(workshop, address),
    ),
    "syscalls": Way(
        lambda workshop, asked: [[kill] for kill in syscalls.plan(workshop)],
        syscalls.find_all,
    ),
    "random": Way(
        lambda workshop, asked: [[e] for e in points.waits(workshop, asked.number, asked.seed)],
        lambda workshop, address: points.find_waits(workshop, address),
    ),
    "faults": Way(
        lambda workshop, asked: [[fault] for fault in faults.plan(workshop)],
        lambda workshop, address: [faults.find(workshop, address)],
    ),
}


def _plan(
    command: str, workshop: Workshop, asked: argparse.Namespace
) -> Sequence[Sequence[Injury]]:
    if command == "faults":
        return WAYS["faults"].plan(workshop, asked)
    if command == "sweep":
        return WAYS[asked.how].plan(workshop, asked)
    if asked.how == "syscalls":
        return syscalls.twice(workshop, asked.number, asked.seed)
    return points.twice(workshop)


def _parse(command: str, argv: list[str]) -> argparse.Namespace:
    parser = _Parser(prog=f"labkit chaos {command}", allow_abbrev=False)
    if command == "replay":
        parser.add_argument("address", help="as a verdict names it")
    parser.set_defaults(how=command)
    ways = ["points", "syscalls"] if command == "twice" else [w for w in WAYS if w != "faults"]
    if command == "replay":
        ways = [*WAYS, "powerloss"]
    usual = {"twice": "syscalls", "replay": None}.get(command, "points")
    if command in ("sweep", "twice", "replay"):
        what = f"where it is broken; {usual}" if usual else "as the verdict names it"
        needed = usual is None
        parser.add_argument("--how", choices=ways, default=usual, required=needed, help=what)
    parser.add_argument("--run", metavar="CMD", help="what is broken, then run until it ends")
    parser.add_argument("--setup", metavar="CMD", default="", help="runs unharmed before")
    parser.add_argument("--check", metavar="CMD", default="", help="0 held, 1 broken, else unknown")
    parser.add_argument(
        "--witness", metavar="FILE", default="",
        help="a line for each effect, in the folder; without it the file that $WITNESS names",
    )  # fmt: skip
    parser.add_argument(
        "--file", metavar="PATTERN", action="append", default=[], dest="files",
        help="must be there at the end, as after the unharmed run",
    )  # fmt: skip
    parser.add_argument(
        "--clean-exit", metavar="N", type=int, action="append", default=[], dest="clean_exits",
        help="an exit code for a storage fault; without it any failure will do",
    )  # fmt: skip
    parser.add_argument("--material", metavar="FOLDER", help="is copied into each trial")
    parser.add_argument("--subject", choices=list(SUBJECTS), default="restart")
    parser.add_argument("--every", type=_positive, default=1, metavar="N", help="each N-th trial")
    parser.add_argument("--number", type=_positive, default=300, help="of trials by chance; 300")
    parser.add_argument("--seed", type=int, default=0, help="of all that is by chance; 0")
    parser.add_argument(
        "--timeout", type=_positive, default=int(TIMEOUT_S), metavar="S",
        help="seconds that any command may take; 30",
    )  # fmt: skip
    parser.add_argument("--images", type=_positive, default=1500, help="of a power cut; 1500")
    parser.add_argument("--csv", metavar="FILE", help="writes a row for each trial")
    return parser.parse_args(argv)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"{self.prog}: {message}; see {self.prog} --help")


def _positive(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _scenario(asked: argparse.Namespace) -> Scenario:
    if asked.run is None:
        if asked.setup or asked.check or asked.witness or asked.files or asked.material:
            raise UsageError("--run says which program is to be broken; it is missing")
        scenario = SUBJECTS[asked.subject]()._replace(timeout_s=asked.timeout)
        if asked.how == "powerloss" and asked.subject.startswith("durable"):
            raise UsageError("powerloss: the witness of the durable run would lose its lines too")
        # A power cut must not take back what was told, so then the agent tells where it is.
        told = "labkit.chaos.telling" if asked.how == "powerloss" else "labkit.restart"
        return scenario._replace(run=[w if w != "labkit.restart" else told for w in scenario.run])
    material = Path(asked.material).resolve() if asked.material else None
    if material and not material.is_dir():
        raise UsageError(f"--material {asked.material}: there is no such folder")
    setup, run, check = (_split(text) for text in (asked.setup, asked.run, asked.check))
    if not run or not run[0]:
        raise UsageError("--run is empty; it says which program is to be broken")
    for name in [asked.witness or "witness", *asked.files]:
        if not name or name.startswith("/") or ".." in name.split("/"):
            raise UsageError(f"{name!r}: a path within the trial's folder is needed")
    return Scenario(
        run=run, setup=setup, check=check, witness=asked.witness, files=asked.files,
        material=material, clean_exits=asked.clean_exits, timeout_s=asked.timeout,
    )  # fmt: skip


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"cannot read {text!r}: {error}; close the quote") from None


def _holds_before(workshop: Workshop) -> bool:
    with workshop.open() as trial, suppress(NotDelivered):
        return trial.check()[0] == HELD
    return False


def _note(workshop: Workshop, asked: argparse.Namespace) -> None:
    """What makes a `held` worth less than it looks. Raises UsageError where it is worth nothing."""
    effects = workshop.left.effects
    if asked.witness and not effects:
        raise UsageError(f"--witness {asked.witness}: the unharmed run writes no line to it")
    for pattern in asked.files:
        if "**" not in pattern and not any(
            PurePath(name).match(pattern) for name in workshop.left.files
        ):
            raise UsageError(f"--file {pattern}: the unharmed run leaves no such file")
    if asked.check and _holds_before(workshop):
        print("note: --check holds before the run too, so it proves little", file=sys.stderr)
    if often := [key for key, count in effects.items() if count > 1]:
        told = "the key of an effect is the first word of its line"
        print(one_line(f"note: {told}; {often[0]} is there twice, unharmed"), file=sys.stderr)
    if workshop.code:
        print(f"note: the unharmed run exits {workshop.code}", file=sys.stderr)
    if asked.run is not None and not (asked.check or asked.files or workshop.left.effects):
        what = "there is no --check and no --file, and the run writes no line to $WITNESS"
        print(f"note: {what}: held only means that it ends again", file=sys.stderr)


@contextmanager
def _workshop(asked: argparse.Namespace) -> Iterator[Workshop]:
    with (
        tempfile.TemporaryDirectory(prefix="labkit-chaos-", dir=scratch()) as root,
        FastWorkshop(_scenario(asked), Path(root)) as workshop,
    ):
        yield workshop


def _watched(workshop: Workshop, plan: Sequence[Sequence[Injury]]) -> Report:
    """Runs the plan. A terminal sees a bar; whatever is no terminal sees nothing of it."""
    try:
        from tqdm import tqdm
    except ImportError:
        return sweep(workshop, plan)
    with tqdm(total=len(plan), disable=not sys.stderr.isatty(), unit="trial") as bar:
        return sweep(workshop, plan, lambda verdict: bar.update(1))


def _tell(report: Report, command: str, asked: argparse.Namespace, argv: list[str]) -> int:
    how = {"faults": "faults", "powerloss": "powerloss"}.get(command) or asked.how
    rest = shlex.join(_without_how(argv))
    verdicts = tuple(
        verdict._replace(replay=_replay_line(verdict, how, rest)) for verdict in report.verdicts
    )
    report = Report(report.planned, verdicts)
    print(report)
    if asked.csv:
        report.frame().to_csv(asked.csv, index=False)
    return report.exit_code


def _replay_line(verdict: Verdict, how: str, rest: str) -> str:
    return f"labkit chaos replay {shlex.quote(verdict.address)} --how {how} {rest}".strip()


def _without_how(argv: Sequence[str]) -> list[str]:
    """The options that name the program; how it is broken stands in the address."""
    kept, skip = [], False
    for word in argv:
        name, _, value = word.partition("=")
        if name in NOT_THE_PROGRAM:
            skip = not value
        elif skip:
            skip = False
        else:
            kept.append(word)
    return kept


def _lose_power(workshop: Workshop, asked: argparse.Namespace, argv: list[str]) -> int:
    from labkit.chaos import powerloss

    losses = powerloss.lose_power(
        workshop, asked.images, asked.seed, _acknowledged(asked), _nobody_looks
    )
    print(losses)
    return _tell(losses.report, "powerloss", asked, argv)


def _nobody_looks(verdict: Verdict) -> None:
    """Images are tried too fast for a bar to be of use."""


def _acknowledged(asked: argparse.Namespace) -> Any:
    from labkit.chaos import powerloss

    return powerloss.restart_kept if asked.run is None else None


def _try_again(workshop: Workshop, asked: argparse.Namespace) -> Verdict:
    if asked.how == "powerloss":
        from labkit.chaos import powerloss

        return powerloss.try_one(workshop, asked.address, _acknowledged(asked))
    injuries = WAYS[asked.how].find(workshop, asked.address)
    if not injuries:
        raise UsageError("the address is empty; it is the word after `replay` in a verdict")
    return try_injuries(workshop, injuries, keep=True)


def _replay(asked: argparse.Namespace, argv: list[str]) -> int:
    root = Path(tempfile.mkdtemp(prefix="labkit-chaos-", dir=scratch()))
    try:
        with FastWorkshop(_scenario(asked), root) as workshop:
            verdict = _try_again(workshop, asked)
    except BaseException:  # then there is nothing to look at
        shutil.rmtree(root, ignore_errors=True)
        raise
    print(verdict)
    left = [folder for folder in root.glob("trial-*/folder") if not folder.parent.suffix]
    print(f"    what the trial left is in {shlex.quote(str((left or [root])[0]))}")
    print(f"    it is yours; to remove all of it: rm -r {shlex.quote(str(root))}")
    return Report(1, (verdict,)).exit_code

"""Kills before system calls: where they may strike, that they do, and what would not count."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit.chaos import syscalls
from labkit.chaos.kill import sweep, try_injuries
from labkit.chaos.scenario import NotDelivered, Scenario, Workshop
from labkit.chaos.syscalls import Kill
from labkit.chaos.tracing import NEEDS_STRACE, STRACE, Call, Reader, require_strace
from labkit.chaos.verdict import Report
from labkit.errors import NotFound, UsageError
from tests.conftest import new_root
from tests.promises import create_scenario
from tests.restart.kit import needs_strace

# Programs in another language, of several processes. The first survives every kill; the second
# repeats its effect, if it is killed between the effect and the mark that it is done.
SOUND = """
test -e done && exit 0
echo text > tmp/new && sync tmp/new && mv tmp/new result && touch done
"""
NAIVE = """
test -e done && exit 0
echo effect >> "$WITNESS"
touch done
"""
# A thread and two children that make calls of the same names and ordinals.
RIVALS = """
import os, subprocess, sys, threading

def write(name):
    with open(name, "w") as file:
        file.write("x")
        file.flush()
        os.fsync(file.fileno())

if len(sys.argv) > 1:
    write(sys.argv[1])
    sys.exit()
thread = threading.Thread(target=write, args=["1"])
thread.start()
thread.join()
for name in "23":
    subprocess.run([sys.executable, sys.argv[0], name], check=True)
"""
IDLE = (*STRACE, "--seccomp-bpf")  # an injector that does nothing


@pytest.fixture(scope="module")
def root(compiled: Path) -> Iterator[Path]:
    with new_root(compiled) as path:
        yield path


def shell(root: Path, program: str, *files: str) -> Workshop:
    return Workshop(Scenario(["sh", "-c", program], files=files, max_restarts=1), root)


@pytest.fixture(scope="module")
def sound(root: Path) -> Workshop:
    return shell(root, SOUND, "result", "done")


@needs_strace
def test_a_program_in_another_language(sound: Workshop) -> None:
    plan = syscalls.plan(sound)
    assert [k.call.path for k in plan if k.call.process == 1] == ["tmp/new", "tmp/new"]
    assert {k.call.process for k in plan} == {1, 2, 3, 4}
    assert {"openat", "write", "fsync"} < {k.call.name for k in plan}
    report = sweep(sound, [[kill] for kill in plan])
    assert report.exit_code == 0, str(report)
    assert report.delivered == len(plan) >= 5


@needs_strace
def test_a_program_that_repeats_its_effect_is_broken(root: Path) -> None:
    naive = shell(root, NAIVE, "done")
    report = sweep(naive, [[kill] for kill in syscalls.plan(naive)])
    assert report.exit_code == 1
    assert report.delivered == report.planned
    broken = [v for v in report.verdicts if v.outcome == "broken"]
    assert broken[0].reason == "effect effect happened 2 times, unharmed 1"
    assert broken[0].address.startswith("2/")


@pytest.mark.proof
@needs_strace
def test_processes_that_make_calls_of_the_same_name_and_ordinal(root: Path, tmp_path: Path) -> None:
    (tmp_path / "rivals.py").write_text(RIVALS)
    argv = [sys.executable, "-P", "rivals.py"]
    workshop = Workshop(Scenario(argv, files=["1", "2", "3"], material=tmp_path), root)
    kills = [kill for kill in syscalls.plan(workshop) if kill.call.name == "fsync"]
    assert [k.address for k in kills] == ["2/fsync:1", "3/fsync:1", "4/fsync:1"]
    assert [k.call.path for k in kills] == ["1", "2", "3"]
    assert all(k.rivals and not k.alone for k in kills)
    for kill in kills:
        with workshop.open() as trial:
            kill.strike(trial)
            left = {path.name for path in trial.folder.glob("?")}
        assert left == {"1", "2", "3"} & set("123"[: kill.call.process - 1])
    # A rival that is killed in its place does not count.
    harmless = [kill._replace(rivals=False) for kill in kills[1:]]
    report = sweep(workshop, [[kill] for kill in harmless])
    assert (report.delivered, report.exit_code) == (0, 2), str(report)


@needs_strace
def test_the_call_itself_is_not_executed(root: Path) -> None:
    workshop = shell(root, "echo a > a; echo b > b")
    (*_, kill) = syscalls.plan(workshop)
    assert (kill.address, kill.call.path, kill.alone) == ("write:2", "b", True)
    with workshop.open() as trial:
        kill.strike(trial)
        texts = {path.name: path.read_text() for path in trial.folder.glob("?")}
    assert texts == {"a": "a\n", "b": ""}


@pytest.mark.proof
@needs_strace
def test_the_rest_of_the_program_is_killed_too(root: Path) -> None:
    workshop = shell(root, "mkdir first; sleep 1; mkdir second")
    (kill, _) = syscalls.plan(workshop)
    assert kill.call.process == 2
    with workshop.open() as trial:
        kill.strike(trial)
        assert sorted(path.name for path in trial.folder.iterdir()) == ["tmp"]


@needs_strace
def test_an_injector_that_does_nothing_is_red(sound: Workshop, root: Path) -> None:
    """It delays, though: the kills that need a delay to be told apart are real, and left out."""
    for workshop in (sound, Workshop(create_scenario(), root)):
        kills = [kill for kill in syscalls.plan(workshop, tracer=IDLE) if not kill.rivals]
        report = sweep(workshop, [[kill] for kill in kills[:: max(1, len(kills) // 2)]])
        assert report.exit_code == 2
        assert report.delivered == report.count("held") == 0
        assert report.count("unknown") == report.planned >= 1
        assert "error: no injury was delivered" in str(report)


@needs_strace
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"path": "elsewhere"}, "on elsewhere is recorded, the kill struck at "),
        ({"ordinal": 10_000}, "was not killed, its status is 0"),
        ({"name": "truncate"}, "was not killed, its status is 0"),
    ],
)
def test_a_kill_that_is_not_as_recorded_is_unknown(
    root: Path, change: dict[str, str | int], why: str
) -> None:
    workshop = shell(root, "echo a > a; echo b > b; echo c > c")
    kill = syscalls.plan(workshop)[2]
    verdict = try_injuries(workshop, [kill._replace(call=kill.call._replace(**change))])  # type: ignore[arg-type]
    assert (verdict.outcome, verdict.delivered) == ("unknown", False)
    assert why in verdict.reason


def test_an_empty_sweep_is_red() -> None:
    assert Report(0, ()).exit_code == 2
    assert "proves nothing" in str(Report(0, ()))


@needs_strace
def test_a_kill_is_found_by_its_address(sound: Workshop) -> None:
    plan = syscalls.plan(sound)
    assert syscalls.find(sound, plan[-1].address) == plan[-1]
    with pytest.raises(UsageError, match=r"no call link:9 .* there are openat:"):
        syscalls.find(sound, "link:9")
    with pytest.raises(UsageError, match="named like this"):
        syscalls.find_all(sound, " ")


@pytest.mark.proof
@needs_strace
def test_pairs_are_chosen_by_a_seed_and_found_again(sound: Workshop) -> None:
    pairs = syscalls.twice(sound, pairs=6, seed=1)
    assert len(set(pairs)) == 6
    assert len({first for first, _ in pairs}) == 5  # all that there are
    assert syscalls.twice(sound, pairs=6, seed=1) == pairs
    assert syscalls.twice(sound, pairs=6, seed=2) != pairs
    addresses = " ".join(kill.address for kill in pairs[-1])
    assert tuple(syscalls.find_all(sound, addresses)) == pairs[-1]
    report = sweep(sound, pairs)
    assert report.exit_code == 0, str(report)
    assert report.delivered == 6
    assert addresses in {verdict.address for verdict in report.verdicts}


@needs_strace
def test_a_second_kill_is_one_of_the_recovery(root: Path) -> None:
    """Whose calls are others: here the recovery finishes what the first run began."""
    workshop = shell(root, "test -e a && exec mkdir b; mkdir a; mkdir b", "a", "b")
    pairs = [tuple(kill.address for kill in pair) for pair in syscalls.twice(workshop, pairs=99)]
    assert sorted(pairs) == [("2/mkdir:1", "2/mkdir:1"), ("2/mkdir:1", "3/mkdir:1"),
                             ("3/mkdir:1", "mkdir:1")]  # fmt: skip


@pytest.mark.proof
@needs_strace
def test_a_first_kill_without_a_recovery_stands_alone(root: Path) -> None:
    stuck = shell(root, "mkdir a && mkdir b", "a", "b")
    pairs = syscalls.twice(stuck, pairs=9)
    alone = [pair for pair in pairs if len(pair) == 1]
    assert [kill.address for (kill,) in alone] == ["3/mkdir:1"]
    assert try_injuries(stuck, alone[0]).outcome == "unknown"
    with pytest.raises(NotDelivered, match="the run exits 1 while it is recorded: mkdir: "):
        syscalls.plan(stuck, alone[0])


def test_a_machine_without_strace_is_told_so(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop = shell(root, "mkdir a")
    monkeypatch.setenv("PATH", str(tmp_path))
    for ask in (require_strace, lambda: syscalls.plan(workshop)):
        with pytest.raises(NotFound) as told:
            ask()
        assert str(told.value) == NEEDS_STRACE
    (tmp_path / "strace").write_text("#!/bin/sh\nexit 1\n")  # one that may not trace
    (tmp_path / "strace").chmod(0o755)
    with pytest.raises(NotFound):
        require_strace()


TRACE = r"""
7 openat(AT_FDCWD</w/agent>, "/lib/x.py", O_RDONLY|O_CLOEXEC) = 3</lib/x.py>
7 openat(AT_FDCWD</w/agent>, "state.db", O_RDONLY) = 3</w/agent/state.db>
7 openat(AT_FDCWD</w/agent>, "state.db", O_RDWR|O_CREAT, 0666) = 3</w/agent/state.db>
7 write(1</dev/null>, ""..., 1) = 1
7 write(1<pipe:[99]>, ""..., 1) = 1
7 write(3</w/agent/.t-2.md.0123abcd.tmp>, ""..., 1) = 1
7 link(".t-2.md.0123abcd.tmp", "/w/agent/t-2.md") = 0
7 linkat(AT_FDCWD</w/agent>, "/out/x", 4</w/agent/sub>, "x", 0) = 0
7 symlink("target", "/out/name") = 0
7 openat(AT_FDCWD</w/agent>, "\320\266", O_WRONLY|O_CREAT, 0666) = 3</w/agent/\320\266>
7 copy_file_range(3</w/agent/a>, NULL, 4</w/agent/b>, NULL, 9, 0) = 9
7 vfork( <unfinished ...>
8 unlink("gone" <unfinished ...>
7 <... vfork resumed>) = 8
8 <... unlink resumed>) = 0
7 clone3({flags=CLONE_VM} => {parent_tid=[9]}, 88) = 9
8 fsync(3</w/agent/a>) = ?
8 +++ killed by SIGKILL +++
9 mkdir("late", 0777"""


def test_a_trace_is_read_by_path() -> None:
    """Calls outside the folder and opens for reading count as ordinals, and are no kills."""
    reader = Reader(Path("/w/agent"))
    for letter in TRACE.lstrip():
        reader.feed(letter)  # a trace that grows
    assert reader.touching == [
        Call(1, "openat", 3, "state.db"),
        Call(1, "write", 3, ".t-2.md.*.tmp"),
        Call(1, "link", 1, ".t-2.md.*.tmp"),
        Call(1, "linkat", 1, "sub/x"),
        Call(1, "openat", 4, "ж"),
        Call(1, "copy_file_range", 1, "b"),
        Call(2, "unlink", 1, "gone"),
        Call(2, "fsync", 1, "a"),
    ]
    assert reader.last(2) == (Call(2, "fsync", 1, "a"), "?")
    assert (reader.killed, reader.pids) == ({2}, ["7", "8", "9"])
    assert reader.in_flight(3) == ("mkdir", 1)
    assert reader.in_flight(1) is None


def test_an_address_leaves_out_the_first_process() -> None:
    assert Kill(Call(1, "pwrite64", 17, "x")).address == "pwrite64:17"
    assert Kill(Call(2, "pwrite64", 3, "x")).address == "2/pwrite64:3"

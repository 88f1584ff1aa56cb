"""Programs that do what no program should, and users who give up: the kit says what it saw."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from labkit.chaos.kill import sweep, try_injuries
from labkit.chaos.points import FastWorkshop, Point, waits
from labkit.chaos.scenario import NotDelivered, Scenario, Trial, Workshop
from labkit.chaos.verdict import Report, Verdict
from labkit.errors import UsageError
from tests.conftest import Ran, run_python

# Each starts a kit, and many of them wait for what must not be left behind.
pytestmark = pytest.mark.proof
needs_strace = pytest.mark.skipif(
    not shutil.which("strace"), reason="needs strace; on Debian and Ubuntu: apt-get install strace"
)
needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


class Nothing:
    """The control: an injury that proves that it struck, and does not change a thing."""

    how, address = "nothing", "nothing"

    def strike(self, trial: Trial) -> None:
        return


def sh(text: str, **given: object) -> Scenario:
    return Scenario(["sh", "-c", text], **given)  # type: ignore[arg-type]


def chaos(*words: str, cwd: Path) -> Ran:
    return run_python("-m", "labkit", "chaos", *words, cwd=cwd)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kill -9 $$", "signal 9 ends it"),
        ('rm -rf "$PWD"', "the program removed it"),
        ('mkfifo "$WITNESS"', "the witness cannot be read: it is no regular file"),
        ("sleep 60", "had not ended after 0.5 s"),
    ],
)
def test_a_run_that_nobody_could_judge_is_refused(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says):
        Workshop(sh(text, timeout_s=0.5, check=["true"]), tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('rm -rf "$PWD"', "the program removed it"),
        ('rm "$WITNESS"; mkfifo "$WITNESS"', "the witness cannot be read: it is no regular file"),
        ("sleep 60", "had not ended after 1 s"),
    ],
)
def test_a_trial_that_nobody_can_judge_is_unknown(text: str, says: str, tmp_path: Path) -> None:
    """And the trials after it go on."""
    harm = f'echo a >> "$WITNESS"; test -e ok || exit 0; test -e harm && {text}; exit 0'
    workshop = Workshop(sh(harm, timeout_s=1.0, check=["true"]), tmp_path)

    class Harm(Nothing):
        def strike(self, trial: Trial) -> None:
            (trial.folder / "ok").touch()
            (trial.folder / "harm").touch()

    report = sweep(workshop, [[Harm()], [Nothing()]])
    assert [verdict.outcome for verdict in report.verdicts] == ["unknown", "held"]
    assert says in report.verdicts[0].reason


def test_what_cannot_be_started_any_more_is_unknown(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o700)
    workshop = Workshop(Scenario([str(program)]), tmp_path)
    program.unlink()
    verdict = try_injuries(workshop, [Nothing()])
    assert (verdict.outcome, verdict.delivered) == ("unknown", True)
    assert "cannot start" in verdict.reason


def test_words_of_a_program_are_harmless() -> None:
    reason = "the check exits 1: \x1b[2J\nheld: all\r\x9b31m\u202e"
    verdict = Verdict("points", "a:1", "broken", reason, True)
    text = str(Report(1, (verdict,)))
    assert text.count("\n") == 1
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "\\x1b[2J\\nheld" in verdict.__str__()
    assert Report(1, (verdict,)).frame()["reason"][0].isprintable()


def test_a_long_output_is_read_from_its_end(tmp_path: Path) -> None:
    text = "head -c 3000000 /dev/zero; echo; echo the end; exit 1"
    with pytest.raises(UsageError, match="the end"):
        Workshop(sh("true", setup=["sh", "-c", text]), tmp_path)


@needs_proc
def test_what_left_its_group_ends_with_the_trial(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    python = shlex.quote(sys.executable)
    text = (
        f'{python} -c "import os; os.setsid(); open({str(pid)!r}, {"w"!r}).write('
        f'str(os.getpid())); import time; time.sleep(60)" & while ! test -s {pid}; do :; done'
    )
    Workshop(sh(text), tmp_path)
    assert not is_alive(int(pid.read_text(encoding="utf-8")))


@needs_proc
def test_a_module_takes_along_what_it_started(tmp_path: Path) -> None:
    """A kill means all of a program, also where it is forked from a helper."""
    (tmp_path / "starts.py").write_text(
        "import os, subprocess\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "open(os.environ['PID'], 'w').write(str(child.pid))\n",
        encoding="utf-8",
    )
    environ = {"PYTHONPATH": str(tmp_path), "PID": str(tmp_path / "pid")}
    with (
        FastWorkshop(
            Scenario([sys.executable, "-m", "starts"], environ=environ), tmp_path
        ) as workshop,
        workshop.open() as trial,
    ):
        trial.call(workshop.scenario.run)
        assert not is_alive(int((tmp_path / "pid").read_text(encoding="utf-8")))


def test_a_module_that_kills_its_group_spoils_only_its_trial(tmp_path: Path) -> None:
    text = "import os\nif 'AGENT_CRASH_AT' in os.environ: os.killpg(0, 9)\n"
    (tmp_path / "kills.py").write_text(text, encoding="utf-8")
    scenario = Scenario([sys.executable, "-m", "kills"], environ={"PYTHONPATH": str(tmp_path)})
    with FastWorkshop(scenario, tmp_path) as workshop:
        assert try_injuries(workshop, [Point("after_effect:0")]).outcome == "unknown"
        assert try_injuries(workshop, [Nothing()]).outcome == "held"


def test_kills_by_chance_strike_a_short_run(tmp_path: Path) -> None:
    workshop = Workshop(sh("sleep 0.2"), tmp_path)
    kills = waits(workshop, 2, 0)
    assert kills[0].longest_s < 5
    assert sweep(workshop, [[kill] for kill in kills]).delivered > 0


def test_links_of_the_material_lead_to_copies(tmp_path: Path) -> None:
    material, original = tmp_path / "material", tmp_path / "original"
    material.mkdir()
    original.write_text("a", encoding="utf-8")
    (material / "link").symlink_to(original)
    (material / "dangling").symlink_to(tmp_path / "nowhere")
    Workshop(sh("echo b > link", material=material), tmp_path)
    assert original.read_text(encoding="utf-8") == "a"


def test_material_that_cannot_be_copied_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "material").mkdir()
    os.mkfifo(tmp_path / "material" / "fifo")
    ran = chaos("sweep", "--run", "true", "--material", "material", cwd=tmp_path)
    assert (ran.code, ran.err.count("\n")) == (64, 1), ran
    assert "material/fifo` is a named pipe" in ran.err


@pytest.mark.parametrize("words", ["", " ", "''"])
def test_an_empty_run_does_not_mean_the_agent(words: str, tmp_path: Path) -> None:
    ran = chaos("sweep", "--run", words, cwd=tmp_path)
    assert (ran.code, ran.out) == (64, ""), ran
    assert "--run is empty" in ran.err


def test_a_verdict_that_says_little_is_told_so(tmp_path: Path) -> None:
    words = ["sweep", "--how", "random", "--number", "1", "--run"]
    ran = chaos(*words, "sh -c 'sleep 0.3; exit 3'", cwd=tmp_path)
    assert "held only means that it ends again" in ran.err
    assert "the unharmed run exits 3" in ran.err
    ran = chaos(*words, "sh -c 'sleep 0.3'", "--check", "true", cwd=tmp_path)
    assert "--check holds before the run too" in ran.err
    ran = chaos(*words, "sh -c 'sleep 0.3; echo a >> $WITNESS'", cwd=tmp_path)
    assert ran.err == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--witness", "typo"], "--witness typo: the unharmed run writes no line to it"),
        (["--witness", "/w"], "'/w': a path within the trial's folder is needed"),
        (["--file", "../a"], "'../a': a path within the trial's folder is needed"),
        (["--file", ""], "'': a path within the trial's folder is needed"),
        (["--file", "b*"], "--file b*: the unharmed run leaves no such file"),
    ],
)
def test_what_is_compared_must_be_there_unharmed(
    words: list[str], says: str, tmp_path: Path
) -> None:
    """Else every trial would be held by a slip of the pen."""
    run = shlex.join(["sh", "-c", "echo a > a"])
    ran = chaos("sweep", "--how", "random", "--run", run, *words, cwd=tmp_path)
    assert (ran.code, ran.out) == (64, ""), ran
    assert says in ran.err


def test_keys_that_are_alike_are_told(tmp_path: Path) -> None:
    """A lost one and a doubled one would make up for each other."""
    run = shlex.join(["sh", "-c", "sleep 0.3; echo sent 1 >> $WITNESS; echo sent 2 >> $WITNESS"])
    ran = chaos("sweep", "--how", "random", "--number", "1", "--run", run, cwd=tmp_path)
    assert "the first word of its line; sent is there twice" in ran.err


def test_storage_that_is_really_full_is_not_the_program_s_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Double(Nothing):
        def strike(self, trial: Trial) -> None:
            trial.call(["sh", "-c", "echo a >> $WITNESS"])

    workshop = Workshop(sh("echo a >> $WITNESS"), tmp_path)
    assert try_injuries(workshop, [Double()]).outcome == "broken"
    monkeypatch.setattr("labkit.chaos.scenario.FREE_MIN", 1 << 60)
    verdict = try_injuries(workshop, [Double()])
    assert (verdict.outcome, "storage is full" in verdict.reason) == ("unknown", True)


def test_an_empty_address_is_told(tmp_path: Path) -> None:
    ran = chaos("replay", "", "--how", "points", "--run", "true", cwd=tmp_path)
    assert (ran.code, ran.err.count("\n")) == (64, 1), ran
    assert "the address is empty" in ran.err


@needs_strace
def test_what_all_trials_share_is_told(tmp_path: Path) -> None:
    words = ["sweep", "--how", "syscalls", "--check", "test -e a", "--run"]
    ran = chaos(*words, f"sh -c 'echo a > a; echo b > {tmp_path}/b'", cwd=tmp_path)
    assert f"note: the run writes {tmp_path}/b, which all trials share" in ran.err, ran
    ran = chaos(*words, "sh -c 'echo a > a; echo b >> $WITNESS; echo > /dev/null'", cwd=tmp_path)
    assert ran.err == "", ran


@needs_strace
def test_a_recording_that_is_impossible_is_unknown(tmp_path: Path) -> None:
    text = 'echo a > a; rm -rf "$PWD"'
    ran = chaos("powerloss", "--run", shlex.join(["sh", "-c", text]), cwd=tmp_path)
    assert ran.code == 2, ran
    assert "unknown: powerloss recording" in ran.out


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_whoever_ends_the_kit_ends_all_of_it(number: int, code: int, tmp_path: Path) -> None:
    """In the middle of a sweep, with programs that ignore signals; the folders go, unless by
    SIGKILL, which leaves no time for it."""
    text = (
        f"trap '' INT TERM; echo $$ >> {tmp_path}/pids; sleep 1; "
        "test -e again && sleep 60; touch again"
    )
    run = shlex.join(["sh", "-c", text])
    kit = subprocess.Popen(
        [sys.executable, "-c", KIT, "chaos", "sweep", "--how", "random", "--run", run],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "LABKIT_SCRATCH": str(tmp_path)},
    )  # fmt: skip
    pids = tmp_path / "pids"
    try:
        until = time.monotonic() + 40
        while time.monotonic() < until:  # the reference, the measured run, and then two trials
            if pids.exists() and len(pids.read_text(encoding="utf-8").splitlines()) > 3:
                break
            time.sleep(0.05)
        kit.send_signal(number)
        assert kit.wait(15) == code
    finally:
        kit.kill()
    until = time.monotonic() + 10
    alive = [int(pid) for pid in pids.read_text(encoding="utf-8").split()]
    while alive and time.monotonic() < until:
        alive = [pid for pid in alive if is_alive(pid)]
    assert len(pids.read_text(encoding="utf-8").splitlines()) > 3
    assert alive == []
    assert number == signal.SIGKILL or not list(tmp_path.glob("labkit-chaos-*"))


KIT = """
import signal, sys, labkit.chaos.command as command
command.scratch = lambda: __import__("os").environ["LABKIT_SCRATCH"]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores it
from labkit.cli import main
sys.exit(main(sys.argv[1:]))
"""


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][:1]
        return state not in "ZX"
    return False


def test_nothing_runs_any_more_once_a_sweep_is_interrupted(tmp_path: Path) -> None:
    workshop = Workshop(sh("true"), tmp_path)
    workshop.running.stop()
    with workshop.open() as trial, pytest.raises(NotDelivered, match="interrupted"):
        trial.call(["sleep", "60"])

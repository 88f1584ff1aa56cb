"""A guarded command dies with its parent, and so does all that it started."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit import guard

PATIENCE_S = 10.0
# Says `up`, and holds the pipe `alive` open for as long as it or its child lives.
FAMILY = "exec 9>alive; sh -c 'echo up; read word <go' & wait"


@pytest.fixture
def alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end of this pipe is the end of every process of the family."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("alive")
    os.mkfifo("go")
    end = os.open("alive", os.O_RDONLY | os.O_NONBLOCK)
    order = os.open("go", os.O_RDWR)
    yield end
    os.write(order, b"end\n" * 9)  # what a failed test has left alive, ends now
    os.close(end)
    os.close(order)


def has_ended(alive: int) -> bool:
    return bool(select.select([alive], [], [], PATIENCE_S)[0]) and os.read(alive, 1) == b""


def started() -> guard.Guarded:
    family = guard.start(["sh", "-c", FAMILY], stdout=subprocess.PIPE)
    assert family.stdout
    with family.stdout as output:
        assert output.readline() == b"up\n"
    return family


def test_status_and_output() -> None:
    argv = ["sh", "-c", "cat; echo out; echo err >&2; pwd; echo $WORD; exit 7"]
    env = {**os.environ, "WORD": "given"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with guard.start(argv, cwd="/", env=env, **pipes) as command:
        assert command.communicate() == (b"out\n/\ngiven\n", b"err\n")
        assert command.wait() == command.poll() == 7


@pytest.mark.parametrize("number", ["KILL", "TERM", "INT", "HUP", "SEGV"])
def test_the_signal_that_ended_it_is_seen(number: str, tmp_path: Path) -> None:
    argv = ["sh", "-c", f"ulimit -c 0; kill -{number} $$"]
    with guard.start(argv, cwd=str(tmp_path)) as command:
        assert command.wait(timeout=PATIENCE_S) == -signal.Signals[f"SIG{number}"]


def test_a_command_that_cannot_start() -> None:
    with pytest.raises(FileNotFoundError, match="absent-command"):
        guard.start(["absent-command"])
    with pytest.raises(PermissionError):
        guard.start([str(Path(__file__))])


def test_pid_is_the_commands_own_and_its_groups(alive: int) -> None:
    with started() as family:
        assert family.poll() is None
        assert os.getpgid(family.pid) == family.pid != os.getpgid(0)
    assert has_ended(alive)


def test_kill_is_a_sigkill_to_the_group(alive: int) -> None:
    with started() as family:
        assert family.kill() == -signal.SIGKILL
        assert family.kill() == -signal.SIGKILL
    assert has_ended(alive)


def test_close_ends_the_group(alive: int) -> None:
    family = started()
    family.close()
    assert family.poll() == -signal.SIGKILL
    assert has_ended(alive)
    family.close()


def test_what_a_command_leaves_running_ends_with_it(alive: int) -> None:
    argv = ["sh", "-c", "exec 9>alive; sh -c 'read word <go' & exit 3"]
    with guard.start(argv) as command:
        assert command.wait(timeout=PATIENCE_S) == 3
    assert has_ended(alive)


PARENT = """
import os, subprocess, sys
from labkit import guard
family = guard.start(["sh", "-c", sys.argv[1]], stdout=subprocess.PIPE)
family.stdout.readline()
if sys.argv[2] == "fork" and os.fork() == 0:
    os.close(1)
    open("go").read(1)
    os._exit(0)
print("up", flush=True)
open("go").read(1)
"""


@pytest.mark.parametrize("child", ["alone", "fork"])
def test_it_dies_with_its_parent_even_by_sigkill(alive: int, child: str) -> None:
    """Also when a child that the parent forked lives on, which holds what the parent had open."""
    argv = [sys.executable, "-c", PARENT, FAMILY, child]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == b"up\n"
        parent.kill()
        assert parent.wait() == -signal.SIGKILL
        assert has_ended(alive)


def test_a_ctrl_c_at_the_terminal_is_not_for_the_command(alive: int) -> None:
    """It is in another session; what ends it is its parent's end, or its parent's wish."""
    with started() as family:
        assert os.getsid(family.pid) != os.getsid(0)
    assert has_ended(alive)


STARTING = """
import os, sys, threading, time
from labkit import guard
sys.executable = os.path.abspath("slow")

def tell():
    while True:  # until the main thread has its guard and waits for what it answers
        frame = sys._current_frames()[threading.main_thread().ident]
        if frame.f_code.co_name == "start" and "guard" in frame.f_locals:
            return print("waiting", flush=True)
        time.sleep(0.001)

threading.Thread(target=tell).start()
before = set(os.listdir("/dev/fd"))
try:
    guard.start(["sh", "-c", sys.argv[1]])
except KeyboardInterrupt as interrupt:  # whose traceback holds on to what start() had open
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        print("all have ended", len(set(os.listdir("/dev/fd")) - before), flush=True)
"""


def test_an_interrupted_start_leaves_nothing_alive(alive: int, tmp_path: Path) -> None:
    """The guard's interpreter is held up; Ctrl-C comes while its parent waits for the pid."""
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\nread word <go\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    argv = [sys.executable, "-c", STARTING, "read word <go"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == "waiting\n"
        parent.send_signal(signal.SIGINT)
        with open("go", "w") as go:
            go.write("go\n")
        said = select.select([parent.stdout], [], [], PATIENCE_S)[0] and parent.stdout.readline()
        parent.kill()
    assert said == "all have ended 0\n"


def test_a_parent_that_dies_before_it_hears_the_pid(alive: int) -> None:
    """As the guard sees it: nobody reads what it tells, and then its input ends."""
    told, tell = os.pipe()
    os.close(told)
    argv = [sys.executable, "-I", "-S", guard.__file__, str(tell), "sh", "-c", FAMILY]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, pass_fds=[tell]) as process:
        os.close(tell)
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        process.stdin.close()
        assert has_ended(alive)
    assert process.returncode == -signal.SIGKILL

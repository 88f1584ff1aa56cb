"""A helper that something else kills costs the call at work, and no other."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from labkit.chaos.forkserver import ForkServer
from labkit.errors import StorageFault

PROGRAM = """\
import os, sys
word = sys.argv[1]
with open("done", "a") as done:
    done.write(word)
if word == "w":
    with open("began", "w") as began:
        began.write(str(os.getpid()))
    open("gate").read()
print(word)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    for name in ("began", "gate"):
        os.mkfifo(tmp_path / name)
    with ForkServer({"PYTHONPATH": str(tmp_path)}) as made:
        yield made


def call(server: ForkServer, folder: Path, word: str) -> tuple[int, str]:
    return server.call(["program", word], folder, {"PYTHONPATH": str(folder)}, 20)


def kill(server: ForkServer) -> int:
    """A real one, from outside; returns when it has come, and says to whom."""
    pid = server._guarded.pid
    os.kill(pid, signal.SIGKILL)
    assert server._guarded.wait() == -signal.SIGKILL
    return pid


def test_the_next_call_starts_it_again(server: ForkServer, tmp_path: Path) -> None:
    for word in "abc":
        assert call(server, tmp_path, word) == (0, f"{word}\n")
        pid = kill(server)
        assert not server.is_alive
    assert call(server, tmp_path, "d") == (0, "d\n")
    assert server._guarded.pid != pid
    assert (tmp_path / "done").read_text() == "abcd"


def test_the_call_at_work_fails_and_its_program_is_gone(server: ForkServer, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        at_work = pool.submit(call, server, tmp_path, "w")
        program = int((tmp_path / "began").read_text())  # it waits, until somebody opens the gate
        kill(server)
        with pytest.raises(StorageFault, match="has ended; try again"):
            at_work.result(20)
    while not has_ended(program):  # or the test runs out of time
        pass
    assert call(server, tmp_path, "a") == (0, "a\n")
    assert (tmp_path / "done").read_text() == "wa"


def test_what_a_killed_helper_had_not_read_is_never_done(
    server: ForkServer, tmp_path: Path
) -> None:
    os.kill(server._guarded.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(call, server, tmp_path, "a")
        while not has_been_asked(server):
            pass
        kill(server)
        with pytest.raises(StorageFault):
            asked.result(20)
    assert call(server, tmp_path, "b") == (0, "b\n")
    assert (tmp_path / "done").read_text() == "b"


def has_ended(pid: int) -> bool:
    """What nobody has asked for its status yet is over all the same."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def has_been_asked(server: ForkServer) -> bool:
    """Without a thread that reads it: the helper is paused."""
    import fcntl
    import termios

    waiting = fcntl.ioctl(server._requests, termios.FIONREAD, bytes(4))
    return int.from_bytes(waiting, "little") > 0


def test_what_was_stopped_is_not_started_again(server: ForkServer, tmp_path: Path) -> None:
    pid = server._guarded.pid
    server.kill()
    with pytest.raises(StorageFault, match="was stopped"):
        call(server, tmp_path, "a")
    assert (server._guarded.pid, server.is_alive) == (pid, False)
    assert not (tmp_path / "done").exists()

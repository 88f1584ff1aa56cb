"""Processes that die with their parent, whatever kills it.

The parent holds one end of a pipe; a small guard process holds the other and is the command's parent. The
kernel closes the pipe when the parent ends, even by SIGKILL, and the guard then kills the command's process group.
Rejected: a new session alone (it survives the parent as an orphan), `atexit` (SIGKILL runs none),
PR_SET_PDEATHSIG (Linux only, and it spares grandchildren). A process that leaves its group on purpose escapes.
"""

from __future__ import annotations

import os
import select
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the guard process starts with this file: it imports as little as it can
    import subprocess
    from collections.abc import Mapping, Sequence
    from typing import IO

__all__ = ["Guarded", "start"]


class Guarded:
    """A running command. `pid` is the command's own, and its process group's id."""

    def __init__(self, guard: subprocess.Popen[bytes], pid: int, leash: int) -> None:
        self.pid, self._guard, self._leash = pid, guard, leash
        self.stdout: IO[bytes] | None = guard.stdout
        self.stderr: IO[bytes] | None = guard.stderr
        # A forked child of this process must not hold the pipe open: the group would outlive us.
        os.register_at_fork(after_in_child=self._let_go)

    def poll(self) -> int | None:
        """The exit status (negative: killed by that signal), or None while it runs."""
        return self._guard.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits for the end; the guard mirrors the command's status. Raises subprocess.TimeoutExpired."""
        code = self._guard.wait(timeout_s)
        self._let_go()
        return code

    def communicate(self, timeout_s: float | None = None) -> tuple[bytes, bytes]:
        """Reads both pipes to their end and waits. Raises subprocess.TimeoutExpired."""
        out, err = self._guard.communicate(timeout=timeout_s)
        self._let_go()
        return out or b"", err or b""

    def kill(self) -> int:
        """SIGKILL to the command's group, unless it has ended; returns its status."""
        if self.poll() is None:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended between the two lines; its guard is about to say how
        return self.wait()

    def close(self) -> None:
        """Lets go of the pipe, as this process's death would: the guard kills the group."""
        self._let_go()
        self._guard.wait()

    def _let_go(self) -> None:
        leash, self._leash = self._leash, -1
        if leash >= 0:
            os.close(leash)


def start(
    argv: Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
) -> Guarded:
    """Starts a command under a guard, its standard input empty. Raises OSError where it cannot start."""
    import subprocess

    held, leash = os.pipe()  # the guard reads `held`; only this process may hold `leash`
    told, tell = os.pipe()
    try:
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", os.path.abspath(__file__), str(held), str(tell), *argv],
            cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            pass_fds=(held, tell), start_new_session=True,
        )  # fmt: skip
    except BaseException:
        os.close(leash), os.close(told)
        raise
    finally:
        os.close(held), os.close(tell)
    with os.fdopen(told, "rb") as answer:
        number = int(answer.readline() or b"-1")
    if number <= 0:
        guard.wait()
        os.close(leash)
        raise OSError(-number, os.strerror(-number), argv[0])
    return Guarded(guard, number, leash)


def _supervise(held: int, tell: int, argv: list[str]) -> None:
    """The guard process: starts argv in its own group and ends with it, or when the pipe closes."""
    for fd in (held, tell):
        os.set_inheritable(fd, False)
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    try:
        pid = os.posix_spawnp(
            argv[0], argv, os.environ, setpgroup=0, setsigdef=[signal.SIGINT, signal.SIGPIPE]
        )
    except OSError as error:
        os.write(tell, b"%d\n" % -(error.errno or 1))
        os._exit(127)
    os.write(tell, b"%d\n" % pid)
    os.close(tell)
    _wait_for_either(held, ended, pid)
    # What the command left running in its group ends here too. It is not reaped yet, so the id is still its own.
    os.killpg(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
        os.kill(os.getpid(), -status)  # the parent sees the very signal that ended the command
    os._exit(status)


def _wait_for_either(held: int, ended: int, pid: int) -> None:
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if held in select.select([held, ended], [], [])[0]:
            return


if __name__ == "__main__":
    _supervise(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])

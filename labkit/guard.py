"""Processes that die with their parent, whatever kills it.

A small guard process is the command's parent; its standard input is a pipe that our process holds.
When we end, even by SIGKILL, the kernel closes the pipe, and the guard kills the command's group.
Rejected: a new session alone (an orphan survives), atexit (no SIGKILL runs it), PR_SET_PDEATHSIG
(it spares grandchildren). What leaves its group on purpose escapes."""

from __future__ import annotations

import _thread
import os
import signal
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # the guard process starts with this file, so it imports as little as it can
    import subprocess
    from typing import Any

__all__ = ["Guarded", "start"]


class Guarded:
    """A running command; `pid` is its own and its group's, `stdout` and `stderr` its pipes."""

    def __init__(self, guard: subprocess.Popen[bytes], pid: int) -> None:
        leash: Any = guard.stdin
        self.pid, self._leash, guard.stdin = pid, leash, None  # communicate() would close it
        self.stdout, self.stderr = guard.stdout, guard.stderr
        # As Popen's: the status is -9 after a SIGKILL, None while it runs.
        self.poll, self.wait, self.communicate = guard.poll, guard.wait, guard.communicate
        # A child forked by this process must not hold the pipe open: the command would outlive us.
        os.register_at_fork(after_in_child=self._leash.close)

    def kill(self) -> int:
        """SIGKILL to the command's group, unless it has ended; returns its status."""
        with suppress(OSError):  # it ended just now, or runs as another user
            if self.poll() is None:
                os.killpg(self.pid, signal.SIGKILL)
        self.close()
        return self.wait()

    def close(self, *_: object) -> None:  # as our death would do: the guard kills the group
        self._leash.close()
        self.wait()

    def __enter__(self) -> Guarded:
        return self

    __exit__ = close


def start(argv: list[str], **options: Any) -> Guarded:
    """Starts a command under a guard, its input empty; the options (cwd, env, stdout, stderr) are
    Popen's. Raises OSError if it cannot start."""
    import subprocess

    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would hide how argv ended
    told, tell = os.pipe()
    script = [sys.executable, "-I", "-S", os.path.abspath(__file__), str(tell), *argv]
    options |= {"stdin": subprocess.PIPE, "pass_fds": [tell], "start_new_session": True}
    with os.fdopen(told, "rb") as answer:
        try:
            guard = subprocess.Popen(script, **options)
        finally:
            os.close(tell)
        try:
            pid = int(answer.readline() or -1)
        except BaseException:  # Ctrl-C: nobody will hold the guard, and a traceback holds its pipe
            guard.communicate()  # closes the pipe: the group ends
            raise
    if pid < 0:
        guard.communicate()
        raise OSError(-pid, os.strerror(-pid), argv[0])
    return Guarded(guard, pid)


def _supervise(tell: int, argv: list[str]) -> None:
    """The guard process: starts argv in its own group, ends the group, ends as argv did."""
    os.set_inheritable(tell, False)
    nul = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    dfl = [signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD]  # which Python handles and ignores
    try:
        pid = os.posix_spawnp(
            argv[0], argv, os.environ, file_actions=[nul], setpgroup=0, setsigdef=dfl
        )
    except OSError as error:
        os.write(tell, b"-%d\n" % (error.errno or 1))
        os._exit(127)
    _thread.start_new_thread(_kill_at_eof, (pid,))
    with suppress(OSError):  # our parent may be gone already
        os.write(tell, b"%d\n" % pid)
    os.close(tell)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # not reaped: the id stays the group's own
    with suppress(OSError):  # what the command left running as us
        os.killpg(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status < 0:
        with suppress(OSError):  # of SIGKILL nobody changes what it does
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)  # our parent sees the very signal that ended the command
    os._exit(abs(status))


def _kill_at_eof(group: int) -> None:
    os.read(0, 1)
    with suppress(OSError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _supervise(int(sys.argv[1]), sys.argv[2:])

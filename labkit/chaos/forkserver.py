"""Starts Python programs fast: each is forked from a helper process that has imported the most.

The helper is started for that purpose and has a single thread. A kernel, pytest or a process that
draws a progress bar is never forked: their threads and locks would come along.

    python forkserver.py FIFO    requests from a FIFO, answers on standard output
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from labkit import guard
from labkit.errors import StorageFault

__all__ = ["ForkServer", "module_of"]

PR_SET_CHILD_SUBREAPER = 36
TAIL = 1 << 16  # what is read of a long output
# What an agent imports that does not look at its folder or environment while it is imported.
FIRST = (
    "getopt", "hashlib", "json", "runpy", "sqlite3", "labkit.clock", "labkit.crashpoints",
    "labkit.files", "labkit.guard", "labkit.restart.plan", "labkit.restart.store",
)  # fmt: skip


def module_of(argv: Sequence[str]) -> list[str] | None:
    """["labkit", "agent"] for `python -m labkit agent` with this Python; None for all else."""
    if list(argv[:2]) == [sys.executable, "-m"] and len(argv) > 2:
        return list(argv[2:])
    return None


class ForkServer:
    """One helper process. `call` runs one program in it, to its end; close it, or use `with`.

    What it imports beforehand comes from `PYTHONPATH` in `environ` first.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="labkit-fork-")
        # A guard gives a command an empty input and no descriptor of ours, so requests have a name.
        fifo = os.path.join(self._folder.name, "requests")
        os.mkfifo(fifo, 0o600)
        given = {**os.environ, **(environ or {})}
        # Its own labkit comes last: a mutant's package brings another one, without a kit in it.
        where = [given.get("PYTHONPATH", ""), *sys.path, str(Path(__file__).parents[2])]
        given["PYTHONPATH"] = os.pathsep.join(filter(None, where))
        argv = [sys.executable, "-P", __file__, fifo]
        self._guarded = guard.start(argv, stdout=subprocess.PIPE, env=given)
        self._requests = os.open(fifo, os.O_RDWR)  # to read too: opening waits for nobody then

    def call(
        self, module: Sequence[str], cwd: Path, environ: Mapping[str, str], timeout_s: float
    ) -> tuple[int, str]:
        """The status, negative after a signal, and what it said.

        Raises TimeoutError after `timeout_s`, with the program killed: no status of its own.
        """
        request = {"argv": list(module), "cwd": str(cwd), "environ": dict(environ), "s": timeout_s}
        os.write(self._requests, json.dumps(request).encode() + b"\n")
        out: Any = self._guarded.stdout
        answer = out.readline()
        if not answer:
            raise StorageFault("the helper process that forks the trials has ended; try again")
        status, said = json.loads(answer)
        if status is None:
            raise TimeoutError(f"it had not ended after {timeout_s:g} s")
        return int(status), str(said)

    @property
    def is_alive(self) -> bool:
        return self._guarded.poll() is None

    def kill(self) -> None:
        """Ends the program that runs: `call` raises StorageFault then."""
        self._guarded.kill()

    def close(self) -> None:
        os.close(self._requests)
        self._guarded.kill()
        if self._guarded.stdout:
            self._guarded.stdout.close()
        self._folder.cleanup()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _serve(requests: IO[str]) -> None:
    for name in FIRST:
        import_module(name)
    _adopt_orphans()
    gc.freeze()  # a child's collector then leaves these pages shared
    output = (
        os.memfd_create("output") if hasattr(os, "memfd_create") else os.open(os.devnull, os.O_RDWR)
    )
    for line in requests:
        request = json.loads(line)
        os.ftruncate(output, 0)
        os.lseek(output, 0, os.SEEK_SET)
        pid = os.fork()
        if not pid:
            requests.close()
            _become(request, output)
        status = _wait(pid, request["s"])
        _end_orphans()
        end = os.lseek(output, 0, os.SEEK_END)
        said = os.pread(output, TAIL, max(0, end - TAIL)).decode("utf-8", "replace")
        sys.stdout.write(json.dumps([status, said]) + "\n")
        sys.stdout.flush()


def _adopt_orphans() -> None:
    """What a program leaves running becomes a child of this process, where Linux allows it."""
    with suppress(OSError, AttributeError, ImportError):
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_orphans() -> None:
    """Ends what the program left running, as a guard does: a kill means all of the program."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    with suppress(OSError):  # there are no children
        while True:
            for pid in children.read_text(encoding="ascii").split():
                os.kill(int(pid), signal.SIGKILL)
            os.waitpid(-1, 0)


def _wait(pid: int, timeout_s: float) -> int | None:
    """The status of the child; None if an alarm had to end it."""
    late = False

    def end(*_: object) -> None:
        nonlocal late
        late = True
        os.kill(pid, signal.SIGKILL)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return None if late else status
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _become(request: dict[str, Any], output: int) -> None:
    """Turns the forked child into the program. Never returns."""
    code = 70
    try:
        import runpy

        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environ"])
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
        module, *sys.argv[1:] = request["argv"]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # closed by the program
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as requests:
        _serve(requests)

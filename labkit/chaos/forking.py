"""The helper process of a `ForkServer`: forks one program after another, each to its end.

    python forking.py FIFO    requests from a FIFO, answers on standard output

It is started for that purpose, has a single thread, and imports no more than programs need: a fork
takes twice the time with `threading` imported (by `subprocess`) or `random` (by `tempfile`), for
what these two do after it in the child. A child costs what it touches: its pages are copied.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import sys
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from types import CodeType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import IO, Any

PR_SET_CHILD_SUBREAPER = 36
TAIL = 1 << 16  # what is read of a long output
# What an agent imports that does not look at its folder or environment while it is imported. A
# scenario names more of it in LABKIT_FIRST; all others pay for none of that.
FIRST = (
    "fcntl", "getopt", "hashlib", "json", "sqlite3", "labkit.clock", "labkit.crashpoints",
    "labkit.files", "labkit.guard", "labkit.restart.plan", "labkit.restart.store",
)  # fmt: skip
# What does look there, or is run as a command: each child runs it, its code is read before.
READ = ("labkit.restart.__main__", "labkit.restart.agent", "labkit.restart.tools")


class Reread(SourceFileLoader):
    """Gives the code that it has read once, to runpy too."""

    code: CodeType | None = None

    def get_code(self, fullname: str) -> CodeType | None:
        self.code = self.code or super().get_code(fullname)
        return self.code


class Finder:
    """Finds the modules of READ, before the others of `sys.meta_path` look at any folder."""

    def __init__(self) -> None:
        self.specs: dict[str, ModuleSpec] = {}
        for name in READ:
            spec = find_spec(name)
            if spec and spec.origin:
                spec.loader = Reread(name, spec.origin)
                spec.loader.get_code(name)
                self.specs[name] = spec

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return self.specs.get(name)


def serve(requests: IO[str]) -> None:
    """Answers each request, a line of JSON, with one: the status, None if it took too long, and
    what the program said."""
    for name in (*FIRST, *os.environ.get("LABKIT_FIRST", "").split()):
        import_module(name)
    sys.meta_path.insert(0, Finder())
    _adopt_orphans()
    answers = os.dup(1)
    _say_into(os.memfd_create("output") if hasattr(os, "memfd_create") else None)
    environ = dict(os.environ)
    gc.collect()
    gc.freeze()  # a child's collector then leaves these pages shared
    for line in requests:
        request = json.loads(line)
        environ = _change_environ(environ, request["environ"])
        os.ftruncate(1, 0)
        os.lseek(1, 0, os.SEEK_SET)
        pid = os.fork()
        if not pid:
            os.close(answers)
            os.close(requests.fileno())
            _become(request)
        status = _wait(pid, request["s"])
        _end_orphans()
        end = os.lseek(1, 0, os.SEEK_END)
        said = os.pread(1, TAIL, max(0, end - TAIL)).decode("utf-8", "replace")
        os.write(answers, json.dumps([status, said]).encode() + b"\n")


def _say_into(output: int | None) -> None:
    """Makes the children's standard output and error before they are born."""
    output = os.open(os.devnull, os.O_RDWR) if output is None else output
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115


def _adopt_orphans() -> None:
    """What a program leaves running becomes a child of this process, where Linux allows it."""
    with suppress(OSError, AttributeError, ImportError):
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_orphans() -> None:
    """Ends what the program left running, as a guard does: a kill means all of the program."""
    with suppress(OSError):  # there are no children
        while True:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as children:
                    for pid in children.read().split():
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


def _become(request: Mapping[str, Any]) -> None:
    """Turns the forked child into the program. Never returns."""
    code = 70
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.chdir(request["cwd"])
        module, *sys.argv[1:] = request["argv"]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # closed by the program
                stream.flush()
        os._exit(code)


def _change_environ(now: dict[str, str], wanted: dict[str, str]) -> dict[str, str]:
    """In this process, which owns its pages: each one that a child writes to has to be copied."""
    for name in now.keys() - wanted.keys():
        del os.environ[name]
    for name, value in wanted.items() - now.items():
        os.environ[name] = value
    return wanted


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as requests:
        serve(requests)

"""Which system calls of a run touch the trial's folder, told by strace.

A call is named by (process, call, ordinal) as strace counts: each process has its own count of each
call, and a thread is a process of its own. Processes count from 1, in the order of their start.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from labkit.chaos.scenario import Ended, NotDelivered, Trial, Workshop
from labkit.errors import NotFound

if TYPE_CHECKING:
    from labkit.chaos.kill import Injury
    from labkit.guard import Guarded

__all__ = ["NEEDS_STRACE", "STRACE", "Call", "Reader", "record", "require_strace", "run_traced"]

NEEDS_STRACE = "this needs Linux with a strace that may trace; on Debian: apt-get install strace"
STRACE = ("strace",)
# With a question mark strace passes over a name that this machine's architecture does not have.
TRACE = (
    "trace=?write,?pwrite64,?writev,?pwritev,?pwritev2,?copy_file_range,?sendfile,?splice,"
    "?ftruncate,?truncate,?fallocate,?fsync,?fdatasync,?sync_file_range,?open,?openat,?openat2,"
    "?creat,?link,?linkat,?symlink,?symlinkat,?rename,?renameat,?renameat2,?unlink,?unlinkat,"
    "?mkdir,?mkdirat,?rmdir,?clone,?clone3,?fork,?vfork"
)
NAMING = ("open", "creat", "link", "rename", "symlink", "unlink", "mkdir", "rmdir", "truncate")
STARTS = ("clone", "clone3", "fork", "vfork")
# Never --seccomp-bpf: with it strace is faster and injects nothing.
OPTIONS = ("-f", "-y", "-s", "0", "-e", "signal=kill", "-e", TRACE)
QUIET = ("-e", "quiet=attach,path-resolution,personality,thread-execve")

LINE = re.compile(r"(\d+) +(?:(\w+)\((.*)|<\.\.\. \w+ resumed>(.*)|\+\+\+ killed by (SIGKILL))")
RESULT = re.compile(r"\)\s+= (-?\d+|\?).*")
NAMED = re.compile(r'(?:[\w-]+<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
DESCRIPTOR = re.compile(r"(?:^|, )\d+<([^>]*)>")
WRITES = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC)")
ESCAPE = re.compile(r"\\([0-7]{1,3}|.)")
CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
# What is in a name by chance: a UUID, eight hex digits or more, Python's tmp????????, a number of
# three digits or more (an id of a process, a time).
RANDOM = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}|\btmp[\w.]{6,10}|\d{3,}"
)


class Call(NamedTuple):
    """One call. `path` is in the folder, random names made equal; empty if it is elsewhere."""

    process: int
    name: str
    ordinal: int
    path: str

    @property
    def address(self) -> str:
        """`pwrite64:17`, or `2/pwrite64:3` in the second process."""
        process = f"{self.process}/" if self.process > 1 else ""
        return f"{process}{self.name}:{self.ordinal}"


class Reader:
    """A trace that may still grow. `calls` are in the order in which they began.

    `results` has for each call what it returned: "" while it runs, "?" if it never did.
    """

    def __init__(self, folder: Path) -> None:
        self.calls: list[Call] = []
        self.results: list[str] = []
        self.killed: set[int] = set()
        self.pids: list[str] = []
        self._roots = {str(folder), os.path.realpath(folder)}
        self._counts: Counter[tuple[int, str]] = Counter()
        self._last: dict[int, int] = {}
        self._reading: set[int] = set()
        self._rest = ""
        self._outside: dict[int, str] = {}

    def feed(self, text: str) -> Reader:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._read(line)
        return self

    def last(self, process: int) -> tuple[Call, str] | None:
        """The call of a process that began last, and what it returned."""
        at = self._last.get(process)
        return None if at is None else (self.calls[at], self.results[at])

    def in_flight(self, process: int) -> tuple[str, int] | None:
        """The name and the ordinal of the call that a process is in now."""
        begun = LINE.match(self._rest)  # strace writes the call when it begins
        if begun and begun[2] and self._number(begun[1]) == process:
            return begun[2], self._counts[process, begun[2]] + 1
        last = self.last(process)
        return (last[0].name, last[0].ordinal) if last and not last[1] else None

    @property
    def touching(self) -> list[Call]:
        """The calls that touch state in the folder."""
        return [call for at, call in enumerate(self.calls) if call.path and at not in self._reading]

    @property
    def outside(self) -> list[str]:
        """What was opened for writing in no folder of the kit: all trials share that."""
        kit = tuple(f"{os.path.dirname(os.path.dirname(root))}/" for root in self._roots)
        return [
            path
            for at, path in self._outside.items()
            if self.results[at][:1].isdigit()
            and not path.startswith((*kit, "/dev/", "/proc/", "/sys/"))
        ]

    def _number(self, pid: str) -> int:
        if pid not in self.pids:
            self.pids.append(pid)
        return self.pids.index(pid) + 1

    def _read(self, line: str) -> None:
        if not (found := LINE.match(line)):
            return
        process = self._number(found[1])
        if found[5]:
            self.killed.add(process)
        elif found[2]:
            self._begin(process, found[2], found[3])
        elif process in self._last:
            self._end(self._last[process], found[4])

    def _begin(self, process: int, name: str, rest: str) -> None:
        self._counts[process, name] += 1
        path = "" if name in STARTS else _path_of(name, rest, self._roots)
        if name.startswith("open") and not WRITES.search(NAMED.sub("", rest)):
            self._reading.add(len(self.calls))
        elif name.startswith(("open", "creat")) and not path and (named := NAMED.search(rest)):
            place = os.path.join(_plain(named[1] or ""), _plain(named[2]))
            if place.startswith("/"):
                self._outside[len(self.calls)] = place
        self._last[process] = len(self.calls)
        self.calls.append(Call(process, name, self._counts[process, name], path))
        self.results.append("")
        self._end(len(self.calls) - 1, rest)

    def _end(self, at: int, rest: str) -> None:
        if found := RESULT.search(rest):
            self.results[at] = found[0].removeprefix(")").strip().removeprefix("= ")
            if self.calls[at].name in STARTS and found[1].isdigit():
                self._number(found[1])


def _path_of(name: str, rest: str, roots: set[str]) -> str:
    """The path in the folder that the call is about, or nothing."""
    if not name.startswith(NAMING):
        places = [_plain(path) for path in DESCRIPTOR.findall(rest) if path.startswith("/")]
        places = places[-1:] if name in ("copy_file_range", "splice") else places[:1]
    else:
        # Of a name without its folder we suppose that it is meant from the trial's folder.
        found = NAMED.findall(rest)[-1 if name.startswith("symlink") else 0 :]
        places = [os.path.join(_plain(folder), _plain(path)) for folder, path in found]
    for place in places:
        for root in roots:
            relative = os.path.relpath(os.path.join(root, place), root)
            if relative.partition("/")[0] != "..":
                return RANDOM.sub("*", relative)
    return ""


def _plain(text: str) -> str:
    """A name as it is: strace writes what is not ASCII as octal numbers."""
    if "\\" not in text:
        return text

    def one(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code, 8)) if code[0] in "01234567" else CONTROL.get(code, code)

    return ESCAPE.sub(one, text).encode("latin-1", "replace").decode("utf-8", "replace")


def require_strace() -> None:
    """Raises NotFound unless strace is here and may trace."""
    if shutil.which(STRACE[0]):
        argv = [*STRACE, "-o", os.devnull, "true"]
        with tempfile.TemporaryFile() as output:
            if subprocess.run(argv, stdout=output, stderr=output, check=False).returncode == 0:
                return
    raise NotFound(NEEDS_STRACE)


def run_traced(
    trial: Trial,
    options: Sequence[str] = (),
    tracer: Sequence[str] = STRACE,
    meanwhile: Callable[[Guarded, Path], None] | None = None,
) -> tuple[Ended, Reader]:
    """Runs the scenario's `run` once under strace; how it ended, and the whole trace."""
    trace = trial.root / "trace"
    argv = [*tracer, *OPTIONS, *QUIET, *options, "-o", str(trace), "--", *trial.scenario.run]
    trace.write_bytes(b"")  # of an earlier injury
    watch = (lambda process: meanwhile(process, trace)) if meanwhile else None
    ended = trial.call(argv, watch)
    return ended, Reader(trial.folder).feed(trace.read_text("utf-8", "replace"))


def record(
    workshop: Workshop, after: Sequence[Injury] = (), tracer: Sequence[str] = STRACE
) -> Reader:
    """What the run does in a fresh folder, or after these injuries. Raises NotDelivered if it does
    not end as the unharmed run did, NotFound without strace."""
    require_strace()
    with workshop.open() as trial:
        for injury in after:
            injury.strike(trial)
        ended, reader = run_traced(trial, tracer=tracer)
    if ended.code != workshop.code:
        raise NotDelivered(f"the run exits {ended.code} while it is recorded: {ended.said}")
    workshop.outside.update(reader.outside)
    return reader

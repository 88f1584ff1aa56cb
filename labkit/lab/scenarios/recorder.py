"""A process in which every file call is written down, and which dies at the one it is told.

    python -m labkit.lab.scenarios.recorder REQUEST

REQUEST is JSON: a function that publishes a file, and the attempts to make with it. Each attempt
is a fork of its own, so that a SIGKILL is a real one and costs a millisecond. The answer, on
standard output, is JSON too: for each attempt how it ended, which calls it made, and what lies in
the folder afterwards.

The calls are seen where Python hands them to the system: `write` is what left Python's buffer, so
a forgotten `flush()` shows.
"""

from __future__ import annotations

import builtins
import errno
import io
import json
import linecache
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

__all__ = ["main"]

LIMIT_S = 2
EVENTS_MAX = 500
TEXT_MAX = 200_000
LEARNER = "<your function>"

# Taken before they are wrapped.
_write, _kill, _exit = os.write, os.kill, os._exit
_open, _close, _fstat, _stat = os.open, os.close, os.fstat, os.stat


def main(argv: list[str]) -> int:
    """Makes the attempts in order, each in its own process, and prints what each one did.

    After one that does not end no other is made: that would only take time.
    """
    request = json.loads(argv[0])
    publish = _load(request)
    answers: list[dict[str, Any]] = []
    for asked in request["attempts"]:
        endless = bool(answers) and answers[-1]["ended"] == _in_words(-signal.SIGALRM)
        answers.append(answers[-1] if endless else _attempt(publish, asked))
    sys.stdout.write(json.dumps(answers))
    return 0


def _load(request: dict[str, str]) -> Callable[..., Any]:
    """A function of labkit by its name; a learner's by its source, as an agent gets it."""
    found: Callable[..., Any]
    if module := request.get("module"):
        found = getattr(import_module(module), request["name"])
        return found
    text = request["source"]
    linecache.cache[LEARNER] = (len(text), None, text.splitlines(keepends=True), LEARNER)
    space: dict[str, Any] = {"__name__": "labkit_tools"}
    exec(compile(text, LEARNER, "exec"), space)
    found = space[request["name"]]
    return found


def _attempt(publish: Callable[..., Any], asked: dict[str, Any]) -> dict[str, Any]:
    """One call in a fork. A file without a name keeps what it said, however it ends."""
    with tempfile.TemporaryFile() as notes:
        pid = os.fork()
        if pid == 0:
            _child(publish, asked, notes.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        notes.seek(0)
        said = [json.loads(line) for line in notes.read().splitlines()]
    ended = said.pop() if said and "ended" in said[-1] else {"ended": _in_words(status)}
    return {**ended, "events": said, "files": _files(asked["folder"])}


def _files(folder: str) -> dict[str, str]:
    """What lies in the folder once the process is gone; seen from outside of it."""
    found = {}
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_file():
            with open(entry.path, encoding="utf-8", errors="replace") as file:
                found[entry.name] = file.read(TEXT_MAX)
    return found


def _in_words(status: int) -> str:
    if status == -signal.SIGALRM:
        return f"had not ended after {LIMIT_S} s"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"ended its process with exit {status}"


def _child(publish: Callable[..., Any], asked: dict[str, Any], notes: int) -> NoReturn:
    """Never returns into the caller: this is a copy of the whole process."""
    signal.alarm(LIMIT_S)
    quiet = _open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        Recorder(asked, notes).install()
        publish(asked["folder"], asked["name"], asked["content"].encode())
        if asked.get("die_after"):
            _kill(os.getpid(), signal.SIGKILL)
        said = {"ended": "returned"}
    except BaseException as error:
        what = _message(error).replace(os.path.join(asked["folder"], ""), "")
        said = {"ended": f"raised {type(error).__name__}: {what}", "line": _line(error)}
    _say(notes, said)
    _exit(0)


def _message(error: BaseException) -> str:
    try:
        if isinstance(error, OSError) and error.errno and error.filename is not None:
            taken = isinstance(error, FileExistsError) and error.filename2  # of a link: its name
            return f"{error.strerror}: {os.path.basename(os.fsdecode(taken or error.filename))}"
        return str(error)[:300]
    except BaseException:  # its __str__ raised
        return "(its message cannot be printed)"


def _line(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == LEARNER]
    return f"line {frames[-1].lineno}: {frames[-1].line}" if frames else ""


def _say(notes: int, what: dict[str, Any]) -> None:
    _write(notes, json.dumps(what).encode() + b"\n")


class Recorder:
    """Stands between Python and the system. `die_at` counts calls from 0; None dies nowhere.

    `half` dies in the middle of that call, a write, when half of its bytes are in the file.
    `plant` is what another process publishes under the name just before this one would.
    """

    def __init__(self, asked: dict[str, Any], notes: int) -> None:
        self.folder, self.notes = asked["folder"], notes
        self.final = os.path.join(os.path.realpath(self.folder), asked["name"])
        self.die_at, self.half = asked.get("die_at"), asked.get("half", False)
        self.plant = asked.get("plant")
        self.count = 0

    def install(self) -> None:
        self._wrap_writes()
        for name, call in (("link", "link"), ("rename", "rename"), ("replace", "rename")):
            self._wrap(name, call, self._of_two_names)
        for name in ("unlink", "remove"):
            self._wrap(name, "unlink", self._nothing)
        for name in ("mkdir", "symlink", "sync", "truncate", "ftruncate"):
            self._wrap(name, name, self._nothing)
        for name in ("fsync", "fdatasync"):
            self._wrap(name, "fsync", self._of_descriptor)

    def _wrap(self, name: str, call: str, look: Callable[..., dict[str, Any]]) -> None:
        if not hasattr(os, name):  # fdatasync, on macOS
            return
        real = getattr(os, name)

        def wrapped(*args: Any, **more: Any) -> Any:
            self._reach()
            event = {"call": call, **look(*args, **more)}
            if event.get("final") and self.plant is not None:
                self._let_another_publish()
            try:
                result = real(*args, **more)
            except OSError as error:
                self._note({**event, "failed": errno.errorcode.get(error.errno or 0, "")})
                raise
            self._note(event)
            return result

        setattr(os, name, wrapped)

    def _wrap_writes(self) -> None:
        os.write = lambda fd, data: self._write(fd, data)
        real = io.open

        def opened(*args: Any, **more: Any) -> Any:
            file = real(*args, **more)
            raw = getattr(getattr(file, "buffer", file), "raw", file)
            if isinstance(raw, io.FileIO) and raw.writable():
                raw.write = lambda data: self._write(raw.fileno(), data)  # type: ignore[method-assign]
            return file

        builtins.open = io.open = opened

    def _write(self, fd: int, data: Any) -> int:
        data = bytes(data)
        if self.half and self.count == self.die_at:
            _write(fd, data[: len(data) // 2])
            self._note({"call": "half a write"})
        self._reach()
        written = _write(fd, data)
        self._note({"call": "write", **self._of_descriptor(fd)})
        return written

    def _reach(self) -> None:
        """Dies here if this is the call: by SIGKILL, which lets no clean-up code run."""
        if self.count == self.die_at:
            _kill(os.getpid(), signal.SIGKILL)
        self.count += 1

    def _note(self, event: dict[str, Any]) -> None:
        if self.count < EVENTS_MAX:
            _say(self.notes, event)

    def _let_another_publish(self) -> None:
        """By an exclusive create: a file that is there already stays as it is."""
        text, self.plant = str(self.plant), None
        with suppress(FileExistsError):
            fd = _open(self.final, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            _write(fd, text.encode())
            _close(fd)

    def _nothing(self, *_: object, **__: object) -> dict[str, Any]:
        return {}

    def _of_descriptor(self, fd: Any) -> dict[str, Any]:
        about = _fstat(fd if isinstance(fd, int) else fd.fileno())
        folder = bool(about.st_mode & 0o170000 == 0o040000)
        right = folder and os.path.samestat(about, _stat(self.folder))
        return {"folder": folder, "right": right, "inode": about.st_ino, "size": about.st_size}

    def _of_two_names(
        self,
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        **_: object,
    ) -> dict[str, Any]:
        """The parameters have the names that `os.link` and `os.rename` give them."""
        old, new = self._path(src, src_dir_fd), self._path(dst, dst_dir_fd)
        home = os.path.dirname(self.final)
        found = {"final": new == self.final, "inside": os.path.dirname(old) == home}
        try:
            about = _stat(src, dir_fd=src_dir_fd)
        except OSError:
            return found
        return {**found, "inode": about.st_ino, "size": about.st_size}

    def _path(self, name: Any, dir_fd: int | None) -> str:
        """A name seen from an open folder is one of this folder, or of a folder nobody asks for."""
        path: str = os.fsdecode(name)
        if dir_fd is not None and os.path.samestat(_fstat(dir_fd), _stat(self.folder)):
            path = os.path.join(self.folder, path)
        return os.path.realpath(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

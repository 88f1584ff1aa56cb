"""The file operations of one run, with all their data, told by strace.

What a disk can lose needs more than a kill does: which file each call meant, at which offset, and
every byte. strace writes each text in hexadecimal here, so no name or data can confuse the reading.
What is not understood (a file changed through memory, a copy inside the kernel) becomes a *doubt*.
The proof that nothing was missed: all events applied to the folder as it was must give the folder
as it is, byte for byte. A recording with a doubt says nothing about the program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from labkit.chaos.disk import (
    ROOT,
    Bind,
    Cut,
    Disk,
    Ended,
    Event,
    Resize,
    Slot,
    Start,
    Sync,
    Told,
    Write,
    read_folder,
)
from labkit.chaos.scenario import NotDelivered, Trial, Workshop
from labkit.chaos.tracing import QUIET, STRACE, require_strace

__all__ = ["Recording", "TraceReader", "record_files"]

TRACE = (
    "trace=?open,?openat,?openat2,?creat,?close,?dup,?dup2,?dup3,?fcntl,?lseek,?write,?pwrite64,"
    "?writev,?pwritev,?pwritev2,?copy_file_range,?sendfile,?splice,?ftruncate,?truncate,?fallocate,"
    "?fsync,?fdatasync,?sync,?syncfs,?link,?linkat,?symlink,?symlinkat,?rename,?renameat,"
    "?renameat2,?unlink,?unlinkat,?mkdir,?mkdirat,?rmdir,?mmap,?chdir,?fchdir,?clone,?clone3,"
    "?fork,?vfork"
)
# Nothing is injected here, so a filter in the kernel may skip all other calls.
OPTIONS = ("-f", "--seccomp-bpf", "-y", "-xx", "-s", "1000000000", "-e", "signal=none", "-e", TRACE)

LINE = re.compile(r"(\d+) +(?:(\w+)\((.*)|<\.\.\. (\w+) resumed>(.*)|\+\+\+ (.*) \+\+\+)$")
RESULT = re.compile(r"(.*)\) += (-?\w+|\?)(.*)$")
UNFINISHED = " <unfinished ...>"
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
FD = re.compile(r"(-?\d+|AT_FDCWD)(?:<((?:\\x[0-9a-f]{2}|[^>])*)>(\(deleted\))?)?")
PLAIN_FLAGS = re.compile(r"O_\w+")


class Recording(NamedTuple):
    """A run's disk, and why it may say nothing. `ops` are the calls, a word and a path for each
    event."""

    disk: Disk
    doubts: tuple[str, ...]
    ops: tuple[str, ...]


class _Open:
    """An open file as the kernel has it: descriptors copied by dup or fork share its offset."""

    def __init__(self, inode: int | None, flags: Sequence[str] = (), stdout: bool = False) -> None:
        self.inode, self.offset, self.stdout = inode, 0, stdout
        self.append = "O_APPEND" in flags
        self.synced = "O_SYNC" in flags or "O_DSYNC" in flags


class _Process:
    """What the processes that share their descriptors have: the table and the working folder."""

    def __init__(self, table: dict[int, _Open], cwd: str) -> None:
        self.table, self.cwd = table, cwd

    def fork(self) -> _Process:
        return _Process(dict(self.table), self.cwd)


class TraceReader:
    """Reads a trace into events. `events` grow in the order in which the calls returned."""

    def __init__(self, folder: Path, witness: Path, start: Start) -> None:
        self.folder, self.witness = os.path.realpath(folder), os.path.realpath(witness)
        self.events: list[Event] = []
        self.ops: list[str] = []
        self.doubts: list[str] = []
        self.code: int | None = None
        self._folders = {inode: dict(names) for inode, names in start.folders.items()}
        self._bytes = {inode: bytearray(content) for inode, content in start.files.items()}
        self._start = start
        self._next = 1 + max([0, *start.files, *start.links, *(-i for i in start.folders)])
        self._processes: dict[str, _Process] = {}
        self._begun: dict[str, tuple[str, str, int]] = {}
        self._main = ""
        self._calls: dict[str, Callable[[_Process, str, str], None]] = {
            name.removeprefix("_do_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("_do_")
        }

    # Lines.

    def read(self, lines: Iterator[str]) -> TraceReader:
        for line in lines:
            if found := LINE.match(line):
                self._read(found)
        self._add(Ended(-1 if self.code is None else self.code), "the end")
        return self

    def _read(self, found: re.Match[str]) -> None:
        pid, name, rest, resumed, tail, end = found.groups()
        self._main = self._main or pid
        if end:
            exited = re.fullmatch(r"exited with (\d+)", end)
            if pid == self._main:
                self.code = int(exited[1]) if exited else -1
            return
        process = self._process(pid)
        if name and rest.endswith(UNFINISHED):
            self._begun[pid] = name, rest.removesuffix(UNFINISHED), len(self.events)
            return
        began = len(self.events)
        if resumed:
            name, head, began = self._begun.pop(pid, (resumed, "", began))
            rest = head + tail
        if result := RESULT.match(rest):
            self._call(process, name, result, began)

    def _process(self, pid: str) -> _Process:
        """A process that was not seen before was started by a call that has not returned yet."""
        if pid not in self._processes:
            parents = [p for p, begun in self._begun.items() if _starts(begun[0])]
            if parents:
                self._child(pid, self._processes[parents[-1]], self._begun[parents[-1]][1])
            else:
                self._processes[pid] = _Process({1: _Open(None, stdout=True)}, self.folder)
        return self._processes[pid]

    def _child(self, pid: str, parent: _Process, args: str) -> None:
        shared = "CLONE_FILES" in args
        self._processes.setdefault(pid, parent if shared else parent.fork())

    def _call(self, process: _Process, name: str, result: re.Match[str], began: int) -> None:
        args, value, rest = result[1], result[2], result[3]
        if _starts(name) and value.isdigit():
            self._child(value, process, args)
        elif name in ("fsync", "fdatasync", "sync", "syncfs"):
            if value == "0":
                self._sync(process, name, args, began)
        elif value != "?" and not value.startswith("-") and (call := self._calls.get(name)):
            call(process, args, value + rest)
        elif value == "?" and name not in ("close", "lseek", "fcntl"):
            # Ended inside of a call: whether it happened, nobody can say.
            self._unsupported(f"{name} without an end", process, args)

    # Paths and descriptors.

    def _ours(self, path: str) -> bool:
        inside = path == self.folder or path.startswith(f"{self.folder}/")
        return inside and path != self.witness and not path.endswith("-shm")

    def _path(self, process: _Process, text: str, at: str = "") -> str:
        found = FD.match(at)
        base = _plain(found[2]) if found and found[2] else process.cwd
        return os.path.normpath(os.path.join(base, _plain(text)))

    def _find(self, path: str) -> int | None:
        """The inode that a path in the folder leads to now."""
        inode: int | None = ROOT
        for name in os.path.relpath(path, self.folder).split("/"):
            if name != ".":
                inode = self._folders.get(inode if inode is not None else 1, {}).get(name)
        return inode

    def _slot(self, path: str, inode: int | None) -> Slot | None:
        folder, name = os.path.split(path)
        where = self._find(folder)
        if where is None or where > 0:
            self._doubt("a call", f"names {self._short(path)}, in a folder that is not known")
            return None
        return Slot(where, name, inode)

    def _bind(self, word: str, path: str, *slots: Slot | None) -> None:
        known = tuple(slot for slot in slots if slot)
        for slot in known:
            names = self._folders.setdefault(slot.folder, {})
            names.pop(slot.name, None)
            if slot.inode is not None:
                names[slot.name] = slot.inode
        if known:
            self._add(Bind(known), f"{word} {self._short(path)}")

    def _new(self) -> int:
        self._next += 1
        return self._next - 1

    def _add(self, event: Event, op: str) -> None:
        self.events.append(event)
        self.ops.append(op)

    def _doubt(self, call: str, why: str) -> None:
        self.doubts.append(f"{call} {why}")

    def _short(self, path: str) -> str:
        return os.path.relpath(path, self.folder)

    def _file(self, process: _Process, args: str, call: str) -> tuple[_Open | None, str]:
        """The open file that a call means, if its data is ours, and the path."""
        found = FD.match(args)
        if not found or not found[1].isdigit():
            return None, ""
        opened, path = process.table.get(int(found[1])), _plain(found[2] or "")
        if not self._ours(path):
            told = opened if opened and opened.stdout else None
            return (_Open(None) if path == self.witness else told), path
        if opened is None or opened.inode is None:
            self._doubt(call, f"{self._short(path)} by a descriptor that was not seen to open")
            return None, path
        return opened, path

    # Calls that open, close and copy descriptors.

    def _do_openat(self, process: _Process, args: str, value: str) -> None:
        found = FD.match(value)
        if not found or not found[1].isdigit():
            return
        number, path = int(found[1]), _plain(found[2] or "")
        process.table.pop(number, None)
        if not self._ours(path):
            return
        flags = PLAIN_FLAGS.findall(args)
        inode = self._new() if "O_TMPFILE" in flags else self._find(path)
        if inode is None and "O_CREAT" not in flags:
            self._doubt("open", f"{self._short(path)}, a file that was not seen to come")
            return
        if inode is None:
            inode = self._new()
            self._bind("create", path, self._slot(path, inode))
        elif "O_TRUNC" in flags:
            self._resize(inode, 0, path)
        self._bytes.setdefault(inode, bytearray())
        process.table[number] = _Open(inode, flags)

    _do_open = _do_openat2 = _do_openat

    def _do_creat(self, process: _Process, args: str, value: str) -> None:
        self._do_openat(process, f"{args}, O_CREAT|O_TRUNC", value)

    def _do_close(self, process: _Process, args: str, value: str) -> None:
        if found := FD.match(args):
            process.table.pop(int(found[1]), None)

    def _do_dup(self, process: _Process, args: str, value: str) -> None:
        old, new = FD.match(args), FD.match(value)
        if old and new:
            process.table.pop(int(new[1]), None)
            if same := process.table.get(int(old[1])):
                process.table[int(new[1])] = same

    _do_dup2 = _do_dup3 = _do_dup

    def _do_fcntl(self, process: _Process, args: str, value: str) -> None:
        if "F_DUPFD" in args:
            self._do_dup(process, args, value)
        elif "F_SETFL" in args:
            opened, _ = self._file(process, args, "fcntl")
            if opened:
                opened.append = "O_APPEND" in args

    def _do_lseek(self, process: _Process, args: str, value: str) -> None:
        found = FD.match(args)
        if found and (opened := process.table.get(int(found[1]))):
            opened.offset = int(value)

    def _do_chdir(self, process: _Process, args: str, value: str) -> None:
        if found := TEXT.search(args):
            process.cwd = self._path(process, found[1])

    def _do_fchdir(self, process: _Process, args: str, value: str) -> None:
        if (found := FD.match(args)) and found[2]:
            process.cwd = _plain(found[2])

    # Data.

    def _do_write(self, process: _Process, args: str, value: str) -> None:
        opened, path = self._file(process, args, "write")
        if opened:
            self._write(opened, path, _data(args)[: int(value)], None)

    _do_writev = _do_write

    def _do_pwrite64(self, process: _Process, args: str, value: str) -> None:
        opened, path = self._file(process, args, "pwrite64")
        if opened:
            at = re.search(r", (\d+)$", args)
            self._write(opened, path, _data(args)[: int(value)], int(at[1]) if at else 0)

    _do_pwritev = _do_pwrite64

    def _do_pwritev2(self, process: _Process, args: str, value: str) -> None:
        args, _, flags = args.rpartition(", ")
        if flags != "0":
            self._unsupported("pwritev2 with flags", process, args)
        at = int(args.rpartition(", ")[2])
        (self._do_write if at == -1 else self._do_pwrite64)(process, args, value)

    def _write(self, opened: _Open, path: str, data: bytes, at: int | None) -> None:
        if opened.inode is None:
            self._add(Told(path == self.witness, data), "tell")
            return
        content = self._bytes[opened.inode]
        offset = len(content) if opened.append else opened.offset if at is None else at
        if at is None:
            opened.offset = offset + len(data)
        if data:
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(data)] = data
            self._add(Write(opened.inode, offset, data), f"write {self._short(path)}")
            if opened.synced:
                last = len(self.events)
                self._add(Sync(opened.inode, last, last - 1), f"sync {self._short(path)}")

    def _resize(self, inode: int, size: int, path: str) -> None:
        content = self._bytes[inode]
        if len(content) != size:
            del content[size:]
            content.extend(bytes(size - len(content)))
            self._add(Resize(inode, size), f"resize {self._short(path)}")

    def _do_ftruncate(self, process: _Process, args: str, value: str) -> None:
        opened, path = self._file(process, args, "ftruncate")
        if opened and opened.inode is not None:
            self._resize(opened.inode, int(args.rpartition(", ")[2]), path)

    def _do_truncate(self, process: _Process, args: str, value: str) -> None:
        if found := TEXT.match(args):
            path = self._path(process, found[1])
            inode = self._find(path) if self._ours(path) else None
            if inode is not None:
                self._resize(inode, int(args.rpartition(", ")[2]), path)

    def _do_fallocate(self, process: _Process, args: str, value: str) -> None:
        opened, path = self._file(process, args, "fallocate")
        _, mode, offset, length = args.rsplit(", ", 3)
        if opened and opened.inode is not None and mode != "FALLOC_FL_KEEP_SIZE":
            if mode != "0":
                self._doubt("fallocate", f"{mode} on {self._short(path)} is not supported")
            end = int(offset) + int(length)
            self._resize(opened.inode, max(end, len(self._bytes[opened.inode])), path)

    def _sync(self, process: _Process, name: str, args: str, began: int) -> None:
        if name in ("sync", "syncfs"):
            self._add(Sync(None, began), name)
            return
        opened, path = self._file(process, args, name)
        if opened and opened.inode is not None:
            self._add(Sync(opened.inode, began), f"{name} {self._short(path)}")

    def _do_copy_file_range(self, process: _Process, args: str, value: str) -> None:
        source, start, target, at, *_ = args.split(", ")
        self._copy(process, (source, start), (target, at), int(value))

    def _do_sendfile(self, process: _Process, args: str, value: str) -> None:
        target, source, start, *_ = args.split(", ")
        self._copy(process, (source, start), (target, "NULL"), int(value))

    def _copy(
        self, process: _Process, source: tuple[str, str], target: tuple[str, str], count: int
    ) -> None:
        """A copy inside of the kernel: its data is known if its source is a file of the folder."""
        place = FD.match(target[0])
        if not place or not self._ours(_plain(place[2] or "")):
            return
        found = FD.match(source[0])
        opened = process.table.get(int(found[1])) if found else None
        if opened is None or opened.inode is None:
            self._unsupported("a copy from outside", process, target[0])
            return
        given = re.search(r"\d+", source[1])
        start = int(given[0]) if given else opened.offset
        if not given:
            opened.offset += count
        data = bytes(self._bytes[opened.inode][start : start + count])
        into, path = self._file(process, target[0], "copy")
        if into:
            at = re.search(r"\d+", target[1])
            self._write(into, path, data, int(at[0]) if at else None)

    # What this does not model.

    def _unsupported(self, call: str, process: _Process, args: str) -> None:
        for found in FD.finditer(TEXT.sub("", args)):
            if found[2] and self._ours(path := _plain(found[2])):
                self._doubt(call, f"on {self._short(path)} is not supported")

    def _do_splice(self, process: _Process, args: str, value: str) -> None:
        self._unsupported("splice", process, args)

    def _do_mmap(self, process: _Process, args: str, value: str) -> None:
        if "MAP_SHARED" in args and "PROT_WRITE" in args:
            self._unsupported("mmap for writing", process, args.split(", ", 4)[4])

    # Names.

    def _do_mkdirat(self, process: _Process, args: str, value: str) -> None:
        found = TEXT.search(args)
        path = self._path(process, found[1], args) if found else ""
        if self._ours(path):
            inode = -self._new()
            self._folders[inode] = {}
            self._bind("mkdir", path, self._slot(path, inode))

    _do_mkdir = _do_mkdirat

    def _do_unlinkat(self, process: _Process, args: str, value: str) -> None:
        found = TEXT.search(args)
        path = self._path(process, found[1], args) if found else ""
        if self._ours(path):
            self._bind("unlink", path, self._slot(path, None))

    _do_unlink = _do_rmdir = _do_unlinkat

    def _two(self, process: _Process, args: str) -> tuple[str, str]:
        """The two paths of a link or a rename, each with the folder it is counted from."""
        first, second = list(TEXT.finditer(args))[:2]
        between = args[first.end() : second.start()].strip(", ")
        return self._path(process, first[1], args), self._path(process, second[1], between)

    def _do_linkat(self, process: _Process, args: str, value: str) -> None:
        old, new = self._two(process, args)
        if self._ours(new):
            inode = self._find(old) if self._ours(old) else None
            if inode is None or inode <= 0:
                self._doubt("link", f"{self._short(new)} to a file that was not there")
            else:
                self._bind("link", new, self._slot(new, inode))

    _do_link = _do_linkat

    def _do_symlinkat(self, process: _Process, args: str, value: str) -> None:
        path = self._two(process, args)[1]
        if self._ours(path):
            inode = self._new()
            self._start.links[inode] = _plain(TEXT.findall(args)[0])
            self._bind("symlink", path, self._slot(path, inode))

    _do_symlink = _do_symlinkat

    def _do_renameat2(self, process: _Process, args: str, value: str) -> None:
        old, new = self._two(process, args)
        if not self._ours(old) and not self._ours(new):
            return
        moved, replaced = self._find(old), self._find(new)
        if not self._ours(old) or not self._ours(new) or moved is None:
            self._doubt("rename", f"{self._short(old)} to {self._short(new)} is not supported")
            return
        left = replaced if "RENAME_EXCHANGE" in args else None
        gone, come = self._slot(old, left), self._slot(new, moved)
        if os.path.dirname(old) == os.path.dirname(new):
            self._bind("rename", new, gone, come)
        else:  # two folders settle apart
            self._bind("rename to", new, come)
            self._bind("rename from", old, gone)

    _do_rename = _do_renameat = _do_renameat2


def _starts(name: str) -> bool:
    return name in ("clone", "clone3", "fork", "vfork")


def _plain(text: str) -> str:
    """A path that strace wrote in hexadecimal."""
    return os.fsdecode(_bytes(text)) if "\\x" in text else text


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _data(args: str) -> bytes:
    """All texts of a call, which are its data: only the descriptor's path is not in quotes."""
    return b"".join(_bytes(text) for text in TEXT.findall(args))


def record_files(workshop: Workshop, tracer: Sequence[str] = STRACE) -> Recording:
    """Runs the scenario once under strace in a fresh folder. Raises NotFound without strace, and
    NotDelivered if the run ends otherwise than the unharmed one."""
    require_strace()
    with workshop.open() as trial:
        return _record(trial, workshop.code, tracer)


def _record(trial: Trial, code: int, tracer: Sequence[str]) -> Recording:
    scenario, trace = trial.scenario, trial.root / "trace"
    witness = trial.folder / scenario.witness if scenario.witness else trial.witness
    start = read_folder(trial.folder, [witness])
    argv = [*tracer, *OPTIONS, *QUIET, "-o", str(trace), "--", *scenario.run]
    ended = trial.call(argv)
    if ended.code != code:
        raise NotDelivered(f"the run exits {ended.code} while it is recorded: {ended.said}")
    reader = TraceReader(trial.folder, witness, start)
    with open(trace, encoding="latin-1") as lines:
        reader.read(line.rstrip("\n") for line in lines)
    disk = Disk(start, reader.events)
    if reader.code != code:
        reader.doubts.append(f"the trace ends with {reader.code}, the run with {code}")
    if not any(isinstance(event, Write | Resize | Bind) for event in reader.events):
        reader.doubts.append("the run changed nothing in its folder: a power cut can lose nothing")
    reader.doubts += _differences(disk, Disk(read_folder(trial.folder, [witness]), ()))
    return Recording(disk, tuple(dict.fromkeys(reader.doubts)), tuple(reader.ops))


def _differences(told: Disk, real: Disk) -> Iterator[str]:
    """What the events do not explain: the proof that the recording has missed nothing."""
    wanted, seen = (disk.image(Cut(len(disk.events), {})) for disk in (told, real))
    if wanted.digest() == seen.digest():
        return
    for what in ("folders", "files", "links"):
        a, b = ({_name(entry): entry for entry in getattr(i, what)} for i in (wanted, seen))
        yield from (f"{what}: {name} is not explained" for name in sorted(a.keys() ^ b.keys()))
    files = dict(wanted.files), dict(seen.files)
    for name in sorted(files[0].keys() & files[1].keys()):
        if wanted.contents[files[0][name]] != seen.contents[files[1][name]]:
            yield f"the content of {name} is not explained by the recorded calls"


def _name(entry: str | tuple[str, object]) -> str:
    return entry if isinstance(entry, str) else entry[0]

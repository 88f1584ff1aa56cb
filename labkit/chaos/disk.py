"""A disk that may lose power: each file's data and each folder's names settle for themselves.

Until a sync of that file, or of that folder, each write, each change of size and each change of a
name may have settled or not, in any order; a write may settle in part, in whole sectors. Syncing a
file settles its data and its size, not its name. Taken as given: bytes outside of a write keep
their values, and a rename within one folder settles whole.
"""

from __future__ import annotations

import hashlib
import os
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from labkit.errors import UsageError

__all__ = [
    "DROPPED",
    "ROOT",
    "SECTOR",
    "ZEROED",
    "Bind",
    "Cut",
    "Disk",
    "Ended",
    "Event",
    "Image",
    "Resize",
    "Slot",
    "Start",
    "Sync",
    "Told",
    "Write",
    "read_cut",
    "read_folder",
]

SECTOR = 512
ROOT = 0
Ranges = tuple[tuple[int, int], ...]  # the bytes of a write that settled, counted within it
Fate = str | Ranges
DROPPED, ZEROED = "drop", "zero"


class Write(NamedTuple):
    """Bytes of a file. `inode` is the file itself, whatever its names are."""

    inode: int
    offset: int
    data: bytes


class Resize(NamedTuple):
    inode: int
    size: int


class Slot(NamedTuple):
    """A name in a folder, and what it leads to from now on."""

    folder: int
    name: str
    inode: int | None


class Bind(NamedTuple):
    """Names of one folder that change together: a create, link, unlink, mkdir, rmdir or rename."""

    slots: tuple[Slot, ...]

    @property
    def inode(self) -> int:
        return self.slots[0].folder


class Sync(NamedTuple):
    """What had happened to a file, a folder or (None) everything, before event `began`, is settled.
    With `only` it is that one event: a write to a file opened with O_SYNC."""

    inode: int | None
    began: int
    only: int | None = None


class Told(NamedTuple):
    """What the outside was told: by standard output, or by an effect that the witness saw."""

    witness: bool
    data: bytes


class Ended(NamedTuple):
    code: int


Event = Write | Resize | Bind | Sync | Told | Ended


class Start(NamedTuple):
    """A folder as it is on a disk at rest: 0 is the folder itself."""

    files: dict[int, bytes]
    links: dict[int, str]
    folders: dict[int, dict[str, int]]


class Image(NamedTuple):
    """All that is on the disk. Files of one inode are names of one file."""

    folders: tuple[str, ...]
    files: tuple[tuple[str, int], ...]
    links: tuple[tuple[str, str], ...]
    contents: Mapping[int, bytes]

    def digest(self) -> bytes:
        """Equal for images with equal content."""
        first: dict[int, str] = {}
        parts = [*self.folders, *(f"{name}\0{target}" for name, target in self.links)]
        for name, inode in self.files:
            same = first.setdefault(inode, name)
            parts.append(f"{name}\0{same}\0{_hash(self.contents[inode])}")
        return hashlib.sha256("\1".join(parts).encode("utf-8", "surrogateescape")).digest()

    def write(self, folder: Path) -> None:
        """Makes this image in a folder that is there and empty."""
        first: dict[int, str] = {}  # no Path: this is most of what an image costs
        for name in self.folders:
            os.mkdir(f"{folder}/{name}")
        for name, inode in self.files:
            path = f"{folder}/{name}"
            if inode in first:
                os.link(first[inode], path)
            else:
                first[inode] = path
                with open(path, "wb", buffering=0) as file:
                    file.write(self.contents[inode])
        for name, target in self.links:
            os.symlink(target, f"{folder}/{name}")


@lru_cache(256)
def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Cut(NamedTuple):
    """A power cut after the first `at` events. What is pending then settled, but for `lost`."""

    at: int
    lost: Mapping[int, Fate]

    def address(self) -> str:
        """`cut 57: drop 3,5-8; zero 9; tear 6@512`; events count from 1."""
        by_fate: dict[str, list[int]] = {DROPPED: [], ZEROED: []}
        torn = []
        for event, fate in sorted(self.lost.items()):
            if isinstance(fate, str):
                by_fate[fate].append(event + 1)
            else:
                torn.append(f"{event + 1}@{_write_ranges(fate)}")
        words = [f"{fate} {','.join(map(str, ids))}" for fate, ids in by_fate.items() if ids]
        words += [f"tear {','.join(torn)}"] if torn else []
        return f"cut {self.at}: {'; '.join(words) or 'all kept'}"


def read_cut(address: str) -> Cut:
    """The cut of an address. Raises UsageError for any other text."""
    found = re.fullmatch(r"cut (\d+): (.+)", address.strip())
    lost: dict[int, Fate] = {}
    try:
        if not found:
            raise ValueError
        for part in found[2].split(";") if found[2] != "all kept" else ():
            fate, words = part.split()
            for word in words.split(","):
                event, _, ranges = word.partition("@")
                if fate not in (DROPPED, ZEROED, "tear") or (fate == "tear") != bool(ranges):
                    raise ValueError
                lost[int(event) - 1] = _read_ranges(ranges) if ranges else fate
    except ValueError:
        example = "'cut 57: drop 3,5; tear 6@512'"
        raise UsageError(f"{address!r} names no power cut; one is named like {example}") from None
    return Cut(int(found[1]), lost)


def _write_ranges(ranges: Ranges) -> str:
    """`512` for the first 512 bytes, `0-512+1024-1536` for two pieces."""
    if len(ranges) == 1 and ranges[0][0] == 0:
        return str(ranges[0][1])
    return "+".join(f"{begin}-{end}" for begin, end in ranges)


def _read_ranges(text: str) -> Ranges:
    pieces = [piece.split("-") for piece in text.split("+")]
    return tuple((int(p[0]), int(p[1])) if len(p) == 2 else (0, int(p[0])) for p in pieces)


class Disk:
    """What was there at the start and all that happened since; gives the image of any cut."""

    def __init__(self, start: Start, events: Sequence[Event]) -> None:
        self.start, self.events = start, tuple(events)
        self._settled = _settle(self.events)
        self._of: dict[int, list[int]] = defaultdict(list)  # the data events of each file
        for at, event in enumerate(self.events):
            if isinstance(event, Write | Resize):
                self._of[event.inode].append(at)
        self._prefix = lru_cache(64)(self._make_prefix)
        self._content = lru_cache(64)(self._make_content)
        self.known = lru_cache(None)(self._make_known)

    def __reduce__(self) -> tuple[type[Disk], tuple[Start, tuple[Event, ...]]]:
        return Disk, (self.start, self.events)

    def pending(self, at: int) -> list[int]:
        """The events before a cut that nothing had settled."""
        return [e for e, settled in enumerate(self._settled[:at]) if settled >= at]

    def _make_known(self, at: int) -> tuple[tuple[str, ...], bytes, bool]:
        """What the outside knows at a cut: lines, effects, and whether the run has ended."""
        told = [event for event in self.events[:at] if isinstance(event, Told)]
        lines = b"".join(event.data for event in told if not event.witness)
        effects = b"".join(event.data for event in told if event.witness)
        ended = any(isinstance(event, Ended) for event in self.events[:at])
        return tuple(lines.decode("utf-8", "replace").splitlines()), effects, ended

    def check(self, cut: Cut) -> None:
        """Raises UsageError unless all that the cut loses was pending then."""
        pending = set(self.pending(cut.at))
        for event, fate in cut.lost.items():
            is_write = event < cut.at and isinstance(self.events[event], Write)
            if event not in pending or (fate != DROPPED and not is_write):
                raise UsageError(f"{cut.address()}: event {event + 1} cannot be lost so there")

    def image(self, cut: Cut) -> Image:
        folders = {inode: dict(names) for inode, names in self.start.folders.items()}
        for at, event in enumerate(self.events[: cut.at]):
            if isinstance(event, Bind) and at not in cut.lost:
                for slot in event.slots:
                    names = folders.setdefault(slot.folder, {})
                    names.pop(slot.name, None)
                    if slot.inode is not None:
                        names[slot.name] = slot.inode
        walk = _Walk(folders, self.start.links)
        walk.enter(ROOT, "")
        contents = {inode: self.content(inode, cut) for _, inode in walk.files}
        return Image(
            tuple(walk.folders), tuple(sorted(walk.files)), tuple(sorted(walk.links)), contents
        )

    def content(self, inode: int, cut: Cut) -> bytes:
        """A file's bytes: what settled surely, then the rest but for what is lost."""
        mine = self._of.get(inode, [])
        count = bisect_left(mine, cut.at)
        lost = tuple((event, cut.lost[event]) for event in mine[:count] if event in cut.lost)
        return self._content(inode, count, lost)

    def _make_content(self, inode: int, count: int, lost: tuple[tuple[int, Fate], ...]) -> bytes:
        if not lost:
            return self._prefix(inode, count)
        mine, fates = self._of[inode], dict(lost)
        sure = mine.index(lost[0][0])
        content = bytearray(self._prefix(inode, sure))
        for event in mine[sure:count]:
            self._apply(content, event, fates.get(event))
        return bytes(content)

    def _make_prefix(self, inode: int, count: int) -> bytes:
        """The file after the first `count` changes of it."""
        if not count:
            return self.start.files.get(inode, b"")
        nearest = (count - 1) // 64 * 64
        content = bytearray(self._prefix(inode, nearest))
        for event in self._of[inode][nearest:count]:
            self._apply(content, event, None)
        return bytes(content)

    def _apply(self, content: bytearray, at: int, fate: Fate | None) -> None:
        event = self.events[at]
        if isinstance(event, Resize) and fate is None:
            del content[event.size :]
            content.extend(bytes(event.size - len(content)))
        elif isinstance(event, Write) and fate != DROPPED:
            whole = ((0, len(event.data)),)
            pieces = whole if fate is None else () if isinstance(fate, str) else fate
            last = len(event.data) if fate == ZEROED else max((end for _, end in pieces), default=0)
            if last:
                content.extend(bytes(max(0, event.offset + last - len(content))))
            for begin, end in pieces:
                content[event.offset + begin : event.offset + end] = event.data[begin:end]


class _Walk:
    """The names that can be reached from the root. Inodes below zero are folders."""

    def __init__(self, folders: Mapping[int, Mapping[str, int]], links: Mapping[int, str]) -> None:
        self._all, self._targets = folders, links
        self.folders: list[str] = []
        self.files: list[tuple[str, int]] = []
        self.links: list[tuple[str, str]] = []

    def enter(self, inode: int, prefix: str, above: tuple[int, ...] = ()) -> None:
        for name, child in sorted(self._all.get(inode, {}).items()):
            path = f"{prefix}{name}"
            if child in self._targets:
                self.links.append((path, self._targets[child]))
            elif child > 0:
                self.files.append((path, child))
            elif child not in above:  # half a rename of a folder into itself leads nowhere
                self.folders.append(path)
                self.enter(child, f"{path}/", (*above, child))


def _settle(events: Sequence[Event]) -> list[int]:
    """For each event the one that settles it. What changes no disk is settled by itself."""
    settled = [len(events)] * len(events)
    open_of: dict[int, list[int]] = defaultdict(list)
    for at, event in enumerate(events):
        if isinstance(event, Write | Resize | Bind):
            open_of[event.inode].append(at)
            continue
        settled[at] = -1
        if isinstance(event, Sync):
            inodes = list(open_of) if event.inode is None else [event.inode]
            for inode in inodes:
                done = [
                    e
                    for e in open_of[inode]
                    if (e < event.began if event.only is None else e == event.only)
                ]
                for e in done:
                    settled[e] = at
                open_of[inode] = [e for e in open_of[inode] if settled[e] != at]
    return settled


def read_folder(folder: Path, skip: Iterable[Path] = ()) -> Start:
    """A folder as it is, without the paths to skip and without SQLite's -shm, which is memory."""
    start = Start({}, {}, {ROOT: {}})
    _read_into(start, os.fspath(folder), ROOT, {os.fspath(path) for path in skip}, {})
    return start


def _read_into(
    start: Start, where: str, here: int, skip: set[str], known: dict[tuple[int, int], int]
) -> None:
    """`known` is by device and inode, so that names of one file stay that."""
    with os.scandir(where) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if entry.path in skip or entry.name.endswith("-shm"):
            continue
        status = entry.stat(follow_symlinks=False)
        key = status.st_dev, status.st_ino
        number = known.setdefault(key, len(known) + 1)
        if entry.is_dir(follow_symlinks=False):
            number = known[key] = -number
            start.folders[number] = {}
            _read_into(start, entry.path, number, skip, known)
        elif entry.is_symlink():
            start.links[number] = os.readlink(entry.path)
        elif entry.is_file() and number not in start.files:
            with open(entry.path, "rb", buffering=0) as file:
                start.files[number] = file.read()
        start.folders[here][entry.name] = number

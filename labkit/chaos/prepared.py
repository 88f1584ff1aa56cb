"""What a setup left, kept once, and copied for each trial."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from labkit.journal.bounded import read

__all__ = ["Prepared", "keep"]

PIECE = 1 << 20  # bytes


class _Entry(NamedTuple):
    """A file, a folder, or a link and where it leads; `name` is its path within all of it."""

    name: str
    found: os.stat_result
    link: str


class Prepared:
    """A copy of a folder that is copied again, often. It is listed once and must not change.

    Raises OSError or shutil.Error for what cannot be copied.
    """

    def __init__(self, source: Path, folder: Path) -> None:
        shutil.copytree(source, folder, symlinks=True)
        self.folder, self.entries = folder, list(_list(str(folder), ""))

    def copy_to(self, root: Path) -> None:
        """Makes the same in `root`, which is empty, with the same modes and times. Rejected:
        `copytree`, which lists the folder each time and takes five times as long."""
        for name, found, link in self.entries:
            new = f"{root}/{name}"
            if link:
                os.symlink(link, new)
            elif stat.S_ISDIR(found.st_mode):
                os.mkdir(new)
            else:
                _copy_file(f"{self.folder}/{name}", new)
        for name, found, link in reversed(self.entries):  # a folder's own after what is in it
            new, times = f"{root}/{name}", (found.st_atime_ns, found.st_mtime_ns)
            if not link:
                os.chmod(new, stat.S_IMODE(found.st_mode))
            os.utime(new, ns=times, follow_symlinks=False)


def keep(source: Path, place: Path, folder: Path) -> Prepared | None:
    """A copy of `source` in `folder`; None if something in it names `place`, to which a copy would
    lead back, or if it cannot be copied or read."""
    names = {os.fsencode(place), os.fsencode(os.path.realpath(place))}
    try:
        kept = Prepared(source, folder)
        contents = (_content(folder, entry) for entry in kept.entries)
        leads_back = any(name in content for content in contents for name in names)
    except (OSError, shutil.Error):
        return None
    absolute = any(entry.link.startswith("/") for entry in kept.entries)
    return None if leads_back or absolute else kept


def _list(folder: str, below: str) -> Iterator[_Entry]:
    with os.scandir(os.path.join(folder, below)) as found:
        for each in found:
            name = os.path.join(below, each.name)
            link = os.readlink(each.path) if each.is_symlink() else ""
            yield _Entry(name, each.stat(follow_symlinks=False), link)
            if each.is_dir(follow_symlinks=False):
                yield from _list(folder, name)


def _content(folder: Path, entry: _Entry) -> bytes:
    if entry.link or stat.S_ISDIR(entry.found.st_mode):
        return os.fsencode(entry.link)
    return read(folder / entry.name)


def _copy_file(old: str, new: str) -> None:
    """By two bare descriptors: for small files the objects of `open` are most of the time."""
    source = os.open(old, os.O_RDONLY)
    try:
        copy = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            while piece := os.read(source, PIECE):
                while piece:
                    piece = piece[os.write(copy, piece) :]
        finally:
            os.close(copy)
    finally:
        os.close(source)

"""Reads a file that somebody else wrote: only a regular one, and only one that memory has room for.

A FIFO or a device may have no end, and a sparse file of gigabytes costs nobody anything to make. In
a notebook a reader that does not come back holds up the kernel, and every panel in it.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

from labkit.errors import BadInput
from labkit.journal.reading import plain

__all__ = ["LARGEST", "LARGEST_LIST", "copy", "read", "read_bytes", "read_text"]

LARGEST = 64 << 20  # bytes; what an agent leaves has a thousandth of that
LARGEST_LIST = 2 << 20  # where each line becomes a record, which takes a hundred times its room


def read(path: str | os.PathLike[str], largest: int = LARGEST) -> bytes:
    """All that is in a regular file. Never waits.

    Raises OSError, its `strerror` in words: for what the system refuses, for what is no regular
    file, and for one of more than `largest` bytes.
    """
    # Asked of what was opened: between a look at a name and its opening it may come to lead
    # elsewhere. Without O_NONBLOCK the opening of a FIFO waits for somebody who writes.
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            what = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
            raise OSError(errno.EINVAL, f"it is {what}", os.fspath(path))
        with open(opened, "rb", closefd=False) as file:
            # Some files of the system have no size before they are read, and others grow.
            content = file.read(largest + 1) if found.st_size <= largest else b""
        if max(len(content), found.st_size) > largest:
            why = f"it has more than {largest >> 20} MB"
            raise OSError(errno.EFBIG, why, os.fspath(path))
        return content
    finally:
        os.close(opened)


def copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """A file with what `read` gives of another one: for `shutil.copytree`, which would follow a
    link to a device until the disk is full. Raises OSError."""
    content = read(source)
    with open(target, "wb") as file:
        file.write(content)


def read_bytes(path: Path, largest: int = LARGEST) -> bytes | None:
    """The same; None where there is no file. Raises BadInput for what cannot be read."""
    try:
        return read(path, largest)
    except (FileNotFoundError, ValueError):  # the second: no system has such a name
        return None
    except OSError as error:
        where = plain(str(path), 200)
        raise BadInput(f"{where} cannot be read: {error.strerror}; move it away") from None


def read_text(path: Path, largest: int = LARGEST, errors: str = "replace") -> str | None:
    """`read_bytes` as UTF-8, where a line ends as in Python; `errors` as of `bytes.decode`."""
    content = read_bytes(path, largest)
    if content is None:
        return None
    return io.TextIOWrapper(io.BytesIO(content), "utf-8", errors).read()

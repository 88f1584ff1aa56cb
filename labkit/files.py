"""Publishing a file exactly once, so that neither a kill nor a power cut can lose, tear or double it."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys

from labkit.errors import PermanentError, StorageFault

__all__ = ["Conflict", "publish_once", "remove_orphans", "sync_folder"]

_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class Conflict(PermanentError):
    """The name is taken by other content."""


def publish_once(folder: str, name: str, content: bytes) -> bool:
    """Makes `folder/name` hold `content`, durably. True if it did so already, and nothing was written.

    Temporary file, fsync, hard link, fsync of the folder (SQLite's and LevelDB's order). The link, not a rename or an
    exclusive create: it appears whole or not at all and never replaces. Raises Conflict if the name holds
    anything else, StorageFault for every error of the file system.
    """
    final = os.path.join(folder, name)
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
    try:
        _make_folders(folder)
        _write_new(temporary, content)
        try:
            published = _give_name(temporary, final)
        finally:
            _unlink(temporary)
        if not published:
            _require_same(final, content)
        sync_folder(
            folder
        )  # without it a power cut can leave a step done whose file does not exist
    except OSError as error:
        raise StorageFault(
            f"cannot publish {final}: {error.strerror or error}; mend the storage, then run the task again"
        ) from error
    return not published


def sync_folder(folder: str) -> None:
    """Makes the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_orphans(folder: str, names: re.Pattern[str]) -> None:
    """Removes the temporary files that a killed process left for the names that the pattern matches whole."""
    try:
        for entry in os.listdir(folder):
            match = re.fullmatch(r"\.(.+)\.[0-9a-f]{8}\.tmp", entry)
            if match and names.fullmatch(match[1]):
                _unlink(os.path.join(folder, entry))
    except FileNotFoundError:
        return  # nothing was published yet
    except OSError as error:
        raise StorageFault(
            f"cannot clean {folder}: {error.strerror or error}; mend the storage, then run the task again"
        ) from error


def _make_folders(folder: str) -> None:
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(os.path.abspath(folder))
    for path in reversed(missing):
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        sync_folder(os.path.dirname(os.path.abspath(path)))


def _write_new(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    except OSError:
        _unlink(path)
        raise
    finally:
        os.close(fd)


def _give_name(temporary: str, final: str) -> bool:
    """True if the file now has the name, False if the name was taken."""
    try:
        os.link(temporary, final)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return _rename_exclusive(temporary, final)
    return True


def _rename_exclusive(temporary: str, final: str) -> bool:
    """The way for file systems without hard links; plain rename would replace what is there."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    old, new = os.fsencode(temporary), os.fsencode(final)
    if sys.platform == "darwin":
        failed = libc.renamex_np(old, new, 4)  # RENAME_EXCL
    else:
        failed = libc.renameat2(-100, old, -100, new, 1)  # AT_FDCWD, RENAME_NOREPLACE
    if failed and ctypes.get_errno() == errno.EEXIST:
        return False
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True


def _require_same(final: str, content: bytes) -> None:
    """The name may be our own of an earlier attempt; its writer may have died before the folder was synced."""
    if stat.S_ISREG(os.lstat(final).st_mode):  # a FIFO would block the open
        with open(final, "rb") as file:
            if file.read(len(content) + 1) == content:
                os.fsync(file.fileno())
                return
    raise Conflict(
        f"{final} exists with other content, made by an older task of this name; nothing was overwritten: move it away or use another task id"
    )


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # renamed, or cleaned up by another process

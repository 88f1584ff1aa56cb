"""Publishing a file exactly once: neither a kill nor a power cut can lose, tear or double it."""

import errno
import os
import re
import stat
import sys
from contextlib import suppress

from labkit.errors import PermanentError, storage_faults

__all__ = ["Conflict", "publish_once", "remove_orphans", "sync_folder"]


class Conflict(PermanentError): ...


def publish_once(folder: str, name: str, content: bytes) -> bool:
    """Makes `folder/name` hold `content`, durably; True if it did already. By a hard link, not by a
    rename or an exclusive create: the file appears whole or not at all, and never replaces another.
    Raises Conflict for other content, StorageFault if the file system fails."""
    final = os.path.join(folder, name)
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
    with storage_faults(f"cannot publish {final}"):
        _make_folders(folder)
        try:
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            published = _give_name(temporary, final)
        finally:
            with suppress(FileNotFoundError):  # renamed, or never made
                os.unlink(temporary)
        if not published:
            _require_same(final, content)
        sync_folder(folder)  # else a power cut can leave a step done whose file does not exist
    return not published


def sync_folder(folder: str) -> None:  # makes the names in it durable
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_orphans(folder: str, names: str) -> None:  # what killed processes left of these names
    with storage_faults(f"cannot clean {folder}"), suppress(FileNotFoundError):
        for entry in os.listdir(folder):
            if re.fullmatch(rf"\.({names})\.[0-9a-f]{{8}}\.tmp", entry):
                os.unlink(os.path.join(folder, entry))


def _make_folders(folder: str) -> None:
    parent = os.path.dirname(os.path.abspath(folder))
    if not os.path.isdir(folder):
        _make_folders(parent)
        with suppress(FileExistsError):  # another process was faster; a file here fails later
            os.mkdir(folder)
        sync_folder(parent)


def _give_name(temporary: str, final: str) -> bool:
    """True if the file now has the name, False if the name was taken."""
    try:
        os.link(temporary, final)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        return _rename_exclusive(os.fsencode(temporary), os.fsencode(final))
    return True


def _rename_exclusive(old: bytes, new: bytes) -> bool:
    import ctypes  # Python itself has only the rename that replaces

    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        failed = libc.renamex_np(old, new, 4)  # RENAME_EXCL
    else:
        failed = libc.renameat2(-100, old, -100, new, 1)  # AT_FDCWD, RENAME_NOREPLACE
    code = ctypes.get_errno() if failed else 0
    if code not in (0, errno.EEXIST):
        raise OSError(code, f"no hard links here, and no exclusive rename ({os.strerror(code)})")
    return not failed


def _require_same(final: str, content: bytes) -> None:
    """The name may be ours, from an attempt that died before it synced the folder."""
    if stat.S_ISREG(os.lstat(final).st_mode):  # opening a FIFO would wait for ever
        with open(final, "rb") as file:
            if file.read(len(content) + 1) == content:
                return
    raise Conflict(f"{final} has other content, from an older task of this name; move it away")

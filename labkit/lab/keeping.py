"""Small files that are kept whole: the old one or the new one, never half; one writer at a time."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from labkit.errors import StorageBusy
from labkit.files import remove_orphans

__all__ = ["one_at_a_time", "write_whole"]

PATIENCE_S = 10.0  # a lock is held for milliseconds, unless its process was stopped by Ctrl-Z


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Waits until no other process or thread is inside with the same lock.

    Raises StorageBusy after 10 s, OSError where no lock file can be made.
    """
    with open(lock, "a") as file:
        end = time.monotonic() + PATIENCE_S
        while not _locked(file):
            if time.monotonic() > end:
                raise StorageBusy(f"another process holds {lock}; end it, try again")
            time.sleep(0.01)
        yield  # the end of this process, even by a kill, gives the lock back


def write_whole(path: Path, text: str, ready: Callable[[], object] = bool) -> None:
    """Writes a file that is there whole or not at all, after a kill and on a full disk too.

    `ready` is called when the text is on the disk and lacks only its name. Replaces what has the
    name, a symbolic link too. The caller holds a lock. Raises OSError, with nothing replaced.
    """
    remove_orphans(str(path.parent), re.escape(path.name))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # else a power cut can leave the name without the text
        ready()
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

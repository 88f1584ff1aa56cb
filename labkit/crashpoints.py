"""Named places where a process kills itself with a real SIGKILL, so that a crash can be repeated exactly."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Collection

from labkit.errors import UsageError

__all__ = ["CrashPoints"]


class CrashPoints:
    """The crash asked for by `AGENT_CRASH_AT=point:idx`, or none.

    `names` are the points that a system declares; each is reached in one place of its code.
    Raises UsageError for a value that names no such point: a typo must not look like a survived crash.
    """

    def __init__(self, names: Collection[str], asked: str = "") -> None:
        point, _, index = asked.partition(":")
        if asked and not (point in names and re.fullmatch("[0-9]{1,9}", index)):
            raise UsageError(
                f"AGENT_CRASH_AT={asked!r}: use POINT:IDX with POINT one of {', '.join(names)} and IDX a step's number"
            )
        self._at = (point, int(index)) if asked else None

    def reach(self, point: str, index: int) -> None:
        """Die here if this is the place. SIGKILL, since it runs no clean-up code: what a power cut or the OOM killer does."""
        if self._at == (point, index):
            os.kill(os.getpid(), signal.SIGKILL)

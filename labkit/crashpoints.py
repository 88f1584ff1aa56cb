"""Named places where a process SIGKILLs itself, so that a crash can be repeated exactly."""

import os
import re
import signal
from collections.abc import Sequence

from labkit.errors import UsageError

__all__ = ["CrashPoints"]


class CrashPoints:
    """The crash that `AGENT_CRASH_AT=point:idx` asks for, or none; `names` are the system's points.
    Raises UsageError for any other value, since a typo must not look like a survived crash."""

    def __init__(self, names: Sequence[str], asked: str) -> None:
        if asked and not re.fullmatch(f"({'|'.join(names)}):(0|[1-9][0-9]{{0,8}})", asked):
            raise UsageError(f"AGENT_CRASH_AT={asked!r}: use {' or '.join(names)}, a colon, a step")
        self._at, self.idx = asked, int(asked.partition(":")[2] or 0)

    def reach(self, point: str, idx: int) -> None:
        """Dies here if this is the place: SIGKILL, since it lets no clean-up code run."""
        if self._at and self._at == f"{point}:{idx}":
            os.kill(os.getpid(), signal.SIGKILL)

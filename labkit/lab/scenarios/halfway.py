"""Ends an agent by SIGKILL in the middle of a tool: its file is begun, and not yet whole.

A learner's tool reaches an agent as a file of source; a check adds two lines below it:

    from labkit.lab.scenarios import halfway
    halfway.watch("what the tool publishes")

The kill comes between two lines of the tool, so what Python still holds in a buffer is lost, as
in any kill.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["watch"]

MARK = ".killed-half-way"


def watch(text: str, folder: str = "artifacts") -> None:
    """Before each line of the file that calls this: a kill, if `folder` has files without `text`.

    One kill for each working folder; the next run there is left alone.
    """
    mark, reports = Path(MARK).resolve(), Path(folder).resolve()
    file = sys._getframe(1).f_code.co_filename

    def look(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != file:
            return None
        if _is_begun(reports, text):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return look

    if not mark.exists():
        sys.settrace(look)


def _is_begun(folder: Path, text: str) -> bool:
    """A file is there, and none holds the text."""
    held = []
    with suppress(OSError):  # a file that went between the listing and the look
        held = [text.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return bool(held) and not any(held)

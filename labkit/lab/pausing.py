"""A process that is paused in the middle of its work, and woken when the world has moved on.

SIGSTOP stands for whatever keeps a process from running for a while: a closed laptop, a machine
that is moved, a long collection of garbage. The process cannot notice. What it knew before, it
still believes.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from labkit.errors import UsageError
from labkit.lab import verbs
from labkit.lab.process import LOOK_AGAIN_S, TIMEOUT_S, NotReady, Process, Result

__all__ = ["pause", "wake"]

GATE = "gate"


def pause(process: Process, timeout_s: float = TIMEOUT_S) -> None:
    """SIGSTOP, as soon as the process is in the call that its AGENT_HOLD names, the effect done. A
    process with AGENT_STOP_BEFORE stops by itself, and is waited for.

    Raises NotReady if it ends before that, or after `timeout_s`; UsageError for what is no process.
    """
    _require_process(process)
    pause_in(verbs.current_folder().path, process, timeout_s)
    print(f"Process {process.number} is paused.")


def wake(process: Process) -> Result:
    """SIGCONT; waits for the end of the process and prints what it said since it began.

    Raises NotReady for a process that is not paused.
    """
    _require_process(process)
    if not process.paused:
        raise NotReady(
            f"process {process.number} is not paused ({process.state}); "
            "run the cell that pauses it, then this one"
        )
    process.wake()
    result = process.finish()
    print(result.output, end="")
    return result


def pause_in(folder: Path, process: Process, timeout_s: float = TIMEOUT_S) -> None:
    """As `pause`, in any folder, and says nothing."""
    end = time.monotonic() + timeout_s
    while not process.paused:
        if not process.alive:
            last = process.finish().output.strip().rpartition("\n")[2]
            raise NotReady(
                f"process {process.number} ended before it could be paused: {last}. If a cell that "
                "ran before has ended this run, go on from the last lab.begin or lab.fresh: it "
                "gives a fresh folder"
            )
        if time.monotonic() > end:
            raise NotReady(f"process {process.number} came to no call that waits: give AGENT_HOLD")
        if (gate := _entered(folder / GATE)) is None:
            time.sleep(LOOK_AGAIN_S)
            continue
        process.pause()
        os.close(gate)  # the call goes on when the process does
        (folder / GATE).unlink()  # the next process waits at a gate of its own


def _require_process(process: object) -> None:
    if not isinstance(process, Process):
        raise UsageError(f"{process!r} is no process; give what lab.start returned")


def _entered(gate: Path) -> int | None:
    """The gate, open for writing, once somebody waits behind it."""
    try:
        return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return None
        raise

"""What each program of the benchmark does in a step: nothing, but it leaves the time.

`MARKS` names a file: it gets CLOCK_MONOTONIC, the same in every process, at the first step of each
process and at step `LAST`. In step `CRASH`, if that is set, the process SIGKILLs itself.
"""

import os
import signal
import time

LAST, CRASH = int(os.environ["LAST"]), int(os.environ.get("CRASH", "-1"))
seen: list[int] = []


def mark(idx: int) -> None:
    if not seen or idx == LAST:
        now = time.monotonic()
        seen.append(idx)
        with open(os.environ["MARKS"], "a", encoding="utf-8") as file:
            file.write(f"{idx} {now}\n")
    if idx == CRASH:
        os.kill(os.getpid(), signal.SIGKILL)

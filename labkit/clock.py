"""Time and ids. The only module that reads the clock, the random source, LABKIT_CLOCK and LABKIT_RUN_IDS.

The lab sets both variables for its scenarios, so that even raw SQL over a journal prints the same in every run.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping

from labkit.errors import UsageError

__all__ = ["clock", "run_ids"]


def clock(environ: Mapping[str, str] = os.environ) -> Callable[[], float]:
    """A function that returns Unix seconds.

    `LABKIT_CLOCK=START[+STEP]` makes each reading STEP seconds (1 by default) later than the one before.
    """
    asked = environ.get("LABKIT_CLOCK")
    if not asked:
        return time.time
    try:
        start, step = (
            float(part) for part in asked.split("+") + (["1"] if "+" not in asked else [])
        )
        if not (math.isfinite(start) and math.isfinite(step)):
            raise ValueError
    except ValueError:
        raise UsageError(
            f"LABKIT_CLOCK={asked!r}: use START or START+STEP in seconds, as in 1767225600+0.5"
        ) from None
    readings = 0

    def read() -> float:
        nonlocal readings
        readings += 1
        return start + step * (readings - 1)

    return read


def run_ids(environ: Mapping[str, str] = os.environ) -> Callable[[int], str]:
    """A function from the ordinal of a run (1, 2, ...) to its id of eight hex digits.

    `LABKIT_RUN_IDS` lists the first ids, with commas; past its end the ordinal itself is the id.
    """
    asked = environ.get("LABKIT_RUN_IDS")
    if not asked:
        return lambda ordinal: os.urandom(4).hex()
    ids = asked.split(",")
    if not all(re.fullmatch("[0-9a-f]{8}", name) for name in ids):
        raise UsageError(
            f"LABKIT_RUN_IDS={asked!r}: use ids of eight hex digits with commas between them"
        )
    return lambda ordinal: ids[ordinal - 1] if ordinal <= len(ids) else f"{ordinal:08x}"

"""Time and ids: the one module that asks the clock, chance, LABKIT_CLOCK and LABKIT_RUN_IDS, which
the lab sets in its scenarios, so that even raw SQL prints the same in every run."""

import os
import re
import time
from collections.abc import Callable
from itertools import count

from labkit.errors import UsageError

__all__ = ["clock", "run_ids"]


def clock() -> Callable[[], float]:
    """Gives Unix seconds. With `LABKIT_CLOCK=START[+STEP]` each is STEP (or 1) after the last."""
    asked = os.environ.get("LABKIT_CLOCK", "")
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(?:\+([0-9]+(?:\.[0-9]+)?))?", asked)
    if asked and not found:
        raise UsageError(f"LABKIT_CLOCK={asked!r}: use START or START+STEP, as in 1767225600+0.5")
    return count(float(found[1]), float(found[2] or 1)).__next__ if found else time.time


def run_ids() -> Callable[[int], str]:
    """Gives the id of a task's n-th run, eight hex digits; the n-th of `LABKIT_RUN_IDS`, if set."""
    asked = os.environ.get("LABKIT_RUN_IDS", "")
    if asked and not re.fullmatch("[0-9a-f]{8}(,[0-9a-f]{8})*", asked):
        raise UsageError(f"LABKIT_RUN_IDS={asked!r}: use ids of eight hex digits and commas")
    ids = dict(enumerate(asked.split(","), 1)) if asked else {}
    return lambda n: ids.get(n, f"{n:08x}") if ids else os.urandom(4).hex()

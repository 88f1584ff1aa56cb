"""The restart agent, which tells the outside each crash point that it reaches.

    python -m labkit.chaos.telling run t        prints `before_effect:0`, `after_effect:0`, ...

A line is written at once, by one call, so whoever reads it knows that the agent came so far. After
`after_commit:1` the outside may rely on step 1: a power cut must not take it back.
"""

from __future__ import annotations

import os
import sys

from labkit.crashpoints import CrashPoints
from labkit.restart.__main__ import main


class Telling(CrashPoints):
    def reach(self, point: str, idx: int) -> None:
        os.write(1, f"{point}:{idx}\n".encode())
        super().reach(point, idx)


if __name__ == "__main__":
    import labkit.restart.agent

    vars(labkit.restart.agent)["CrashPoints"] = Telling
    sys.exit(main())

"""--tools of the restart agent."""

import os
import sys
from typing import Any

sys.path.insert(0, os.environ["PROGRAMS"])

from marks import mark


def noop(input: Any, ctx: Any, idem_key: str) -> None:
    mark(int(idem_key.rpartition("-")[2]))

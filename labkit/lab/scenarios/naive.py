"""The agent of notebook 01: the plan and the tools of the real agent, and no journal.

    python -m labkit.lab.scenarios.naive plan.json

All it knows is in its memory, so a kill takes all of it. `AGENT_CRASH_AT` works as in the real
agent. The published report is a plain append: without a key, a second one looks like any other.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from labkit.crashpoints import CrashPoints
from labkit.errors import LabkitError, NotFound, UsageError
from labkit.restart.plan import Plan, read_plan
from labkit.restart.tools import BUILT_IN

__all__ = ["main", "run"]


def run(plan: Plan, crash: CrashPoints) -> None:
    """Calls the tool of each step; the outputs live in one dictionary."""
    outputs: dict[int, Any] = {}
    for idx, step in enumerate(plan["steps"]):
        crash.reach("before_effect", idx)
        tool = BUILT_IN[step["tool"]]
        outputs[idx] = tool(step["input"], outputs, f"naive-{idx}")
        print(f"step {idx}: {step['tool']} was called")
        crash.reach("after_effect", idx)
    print("the plan is done")


def main(argv: list[str]) -> int:
    """Runs the plan in the file named by the only argument; exit codes as the real agent's."""
    try:
        plan = _read(argv)
        crash = CrashPoints(("before_effect", "after_effect"), os.environ.get("AGENT_CRASH_AT", ""))
        os.environ["AGENT_UNSAFE_EFFECTS"] = (
            "1"  # write_artifact appends: the first thing one writes
        )
        run(plan, crash)
    except LabkitError as error:
        print(f"naive: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _read(argv: list[str]) -> Plan:
    if len(argv) != 1:
        raise UsageError("give one argument, the file of the plan")
    try:
        with open(argv[0], "rb") as file:
            return read_plan(file.read(), argv[0], BUILT_IN)
    except OSError as error:
        raise NotFound(f"{argv[0]}: {error.strerror}; check the path") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

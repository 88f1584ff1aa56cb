"""The agent of notebook 01: the plan and the tools of the real agent, and no journal.

    python -m labkit.lab.scenarios.naive plan.json

All it knows is in its memory, so a kill takes all of it. `AGENT_CRASH_AT` works as in the real
agent. The published report is a plain append: without a key, a second one looks like any other.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

from labkit.crashpoints import CrashPoints
from labkit.errors import BadInput, LabkitError, NotFound, UsageError
from labkit.restart.tools import fetch, summarize, write_artifact

__all__ = ["Naive", "main"]

TOOLS = {"fetch": fetch, "summarize": summarize, "write_artifact": write_artifact}


class Naive:
    """Takes the steps of a plan one after another and remembers their outputs, in memory."""

    def __init__(self, plan: dict[str, Any], crash: CrashPoints) -> None:
        self.steps = [{"idx": idx, **step} for idx, step in enumerate(plan["steps"])]
        self.outputs: dict[int, Any] = {}
        self.crash = crash

    def run(self) -> None:
        for step in self.steps:
            self._attempt(step)
        print("the plan is done")

    def _attempt(self, step: dict[str, Any]) -> None:
        self.crash.reach("before_effect", step["idx"])
        output = self._call(step)
        self.crash.reach("after_effect", step["idx"])
        self.outputs[step["idx"]] = output

    def _call(self, step: dict[str, Any]) -> Any:
        output = TOOLS[step["tool"]](step["input"], self.outputs, "no key")
        print(f"step {step['idx']}: {step['tool']} was called")
        return output


def main(argv: list[str]) -> int:
    """Runs the plan in the file named by the only argument; exit codes as the real agent's."""
    try:
        plan = _read(argv)
        crash = CrashPoints(("before_effect", "after_effect"), os.environ.get("AGENT_CRASH_AT", ""))
        os.environ["AGENT_UNSAFE_EFFECTS"] = (
            "1"  # write_artifact appends: the first thing one writes
        )
        Naive(plan, crash).run()
    except LabkitError as error:
        with suppress(AttributeError, OSError, ValueError):  # nobody reads it: the code must do
            sys.stderr.write(f"naive: {error}\n")
        return error.exit_code
    return 0


def _read(argv: list[str]) -> dict[str, Any]:
    """It trusts the plan, as first programs do; the real agent checks it before it stores it."""
    if len(argv) != 1:
        raise UsageError("give one argument, the file of the plan")
    try:
        with open(argv[0], "rb") as file:
            plan: dict[str, Any] = json.load(file)
    except OSError as error:
        raise NotFound(f"{argv[0]}: {error.strerror}; check the path") from None
    except ValueError as error:
        raise BadInput(f"{argv[0]} is not JSON ({error}); mend the plan") from None
    return plan


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

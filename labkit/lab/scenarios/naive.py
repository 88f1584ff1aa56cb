"""The agent of notebook 01: the plan and the tools of the real agent, and no journal.

    python -m labkit.lab.scenarios.naive plan.json [--tools tools.py]

All it knows is in its memory, so a kill takes all of it. `AGENT_CRASH_AT` works as in the real
agent. The published report is a plain append: without a key, a second one looks like any other.
With `--tools` a function `(steps, call)` in that file takes the steps, and remembers what it can.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import FunctionType
from typing import Any

from labkit.crashpoints import CrashPoints
from labkit.errors import BadInput, LabkitError, NotFound, UsageError, describe
from labkit.restart.tools import fetch, load_tools, summarize, write_artifact

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

    def call(self, step: dict[str, Any], outputs: Sequence[Any] | Mapping[int, Any]) -> Any:
        """One attempt on behalf of a function that keeps the outputs itself."""
        self.outputs = dict(outputs if isinstance(outputs, Mapping) else enumerate(outputs))
        needed = step["input"].get("from")
        if needed is not None and needed not in self.outputs:
            raise BadInput(f"`done` held no output of step {needed}, and {step['tool']} needs it")
        self._attempt(step)
        return self.outputs[step["idx"]]

    def _call(self, step: dict[str, Any]) -> Any:
        output = TOOLS[step["tool"]](step["input"], self.outputs, "no key")
        print(f"step {step['idx']}: {step['tool']} was called")
        return output


def main(argv: list[str]) -> int:
    """Runs the plan in the file named by the first argument; exit codes as the real agent's."""
    try:
        plan, own = _read(argv[:1]), _own(argv[1:])
        crash = CrashPoints(("before_effect", "after_effect"), os.environ.get("AGENT_CRASH_AT", ""))
        os.environ["AGENT_UNSAFE_EFFECTS"] = (
            "1"  # write_artifact appends: the first thing one writes
        )
        agent = Naive(plan, crash)
        agent.run() if own is None else _take_steps(agent, own)
    except LabkitError as error:
        with suppress(AttributeError, OSError, ValueError):  # nobody reads it: the code must do
            sys.stderr.write(f"naive: {error}\n")
        return error.exit_code
    return 0


def _read(argv: list[str]) -> dict[str, Any]:
    """It trusts the plan, as first programs do; the real agent checks it before it stores it."""
    if len(argv) != 1:
        raise UsageError("give the file of the plan, and --tools FILE if you have one")
    try:
        with open(argv[0], "rb") as file:
            plan: dict[str, Any] = json.load(file)
    except OSError as error:
        raise NotFound(f"{argv[0]}: {error.strerror}; check the path") from None
    except ValueError as error:
        raise BadInput(f"{argv[0]} is not JSON ({error}); mend the plan") from None
    return plan


def _own(rest: list[str]) -> FunctionType | None:
    """The only function of the file after `--tools`."""
    if not rest:
        return None
    if len(rest) != 2 or rest[0] != "--tools":
        raise UsageError(f"{' '.join(rest)!r} is not --tools FILE")
    found = load_tools(rest[1:]).items()
    own = [f for name, f in found if isinstance(f, FunctionType) and name not in TOOLS]
    if len(own) != 1:
        raise BadInput(f"{rest[1]} defines {len(own)} functions; one is to take the steps")
    return own[0]


def _take_steps(agent: Naive, own: FunctionType) -> None:
    try:
        own(agent.steps, agent.call)
    except LabkitError:
        raise
    except Exception as error:
        import traceback  # late: nobody else here needs it, and it is slow to load

        own_file = own.__code__.co_filename
        frames = traceback.extract_tb(error.__traceback__)
        at = "".join(f", in: {frame.line}" for frame in frames if frame.filename == own_file)
        raise BadInput(f"{own.__name__} raised {describe(error)}{at}") from None
    print("the plan is done")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Where an agent can be killed: the named places of both systems, as a grid of places by steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from labkit.errors import UsageError
from labkit.lab import runs
from labkit.lab.trials import POINTS, TASK

__all__ = ["AGENTS", "NOW", "Agent", "Place", "agent_called", "places"]

NOW = "now"
WINDOWS = ("before its attempt is stored", "before its call", "before its result is stored")
BEGUN, STORED = "the attempt of ", " is stored"


class Place(NamedTuple):
    """One place to die. `at` is what AGENT_CRASH_AT takes: "after_effect:2", "boundary:6"."""

    row: str
    column: str
    at: str


class Agent(NamedTuple):
    """An agent of the lab: its commands, what it takes to slow it down, and what one asks of it.

    `status` is the query for how a task stands, `ends` are the answers after which nothing is
    left to do, `effect` is what it leaves outside.
    """

    name: str
    task: str
    create: str
    run: str
    slow: dict[str, str]
    status: str
    ends: tuple[str, ...]
    effect: str
    plans: Callable[[Path], list[str]]

    def killed_at(self, at: str) -> dict[str, str]:
        return {"AGENT_CRASH_AT": at} if at else {}


def _plan_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.json"))


def _definitions(folder: Path) -> list[str]:
    """Of the agent in `dispatch`; it needs the notes, and to dispatch, who is on call."""
    return ["notice", "dispatch"] if (folder / "input" / "on-call.txt").exists() else []


AGENTS: Mapping[str, Agent] = {
    "restart": Agent(
        "restart", TASK, f"agent create {TASK} {{plan}}", f"agent run {TASK}",
        {"AGENT_STEP_DELAY": "3"}, "SELECT status FROM tasks WHERE id = ?", ("done", "failed"),
        "report", _plan_files,
    ),
    "durable": Agent(
        "durable", "pump", "dispatch create pump {plan}", "dispatch go pump {plan}",
        {"AGENT_HOLD": "notify"}, "SELECT status FROM runs WHERE run_id = ?",
        ("SUCCEEDED", "REJECTED", "FAILED", "CANCELLED"), "message", _definitions,
    ),
}  # fmt: skip


def agent_called(name: str) -> Agent:
    """Raises UsageError for a name that AGENTS does not have."""
    if name not in AGENTS:
        raise UsageError(f"no agent is called {name!r}; there are {', '.join(AGENTS)}")
    return AGENTS[name]


def places(agent: str, plan: str, folder: Path) -> list[Place]:
    """Every place of the grid, row by row.

    Of the restart agent: three crash points for each step of the plan. Of a durable run: three
    windows for each step that a run nobody kills makes; it takes a second to find out.
    """
    if agent_called(agent).name == "durable":
        return _windows(plan)
    steps = range(len(json.loads((folder / plan).read_text(encoding="utf-8"))["steps"]))
    return [Place(point, f"step {idx}", f"{point}:{idx}") for point in POINTS for idx in steps]


@cache
def _windows(definition: str) -> list[Place]:
    names = list(runs.places(definition)["before"])
    begun = {n: name for n, name in enumerate(names) if name.startswith(BEGUN)}
    return [
        Place(window, name.removeprefix(BEGUN).removesuffix(STORED), f"boundary:{n + after}")
        for after, window in enumerate(WINDOWS)
        for n, name in begun.items()
    ]

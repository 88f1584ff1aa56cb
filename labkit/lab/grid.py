"""Where an agent can be killed: the named places of both systems, as a grid of places by steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from labkit.durable import ToolEffect
from labkit.errors import NotFound, UsageError
from labkit.journal.bounded import read_bytes
from labkit.lab import runs
from labkit.lab.scenarios import dispatch
from labkit.lab.trials import POINTS, TASK
from labkit.restart.plan import BUILT_IN, read_plan

__all__ = [
    "AGENTS",
    "DEFINITIONS",
    "NOW",
    "Agent",
    "Place",
    "agent_called",
    "every_place",
    "places",
]

NOW = "now"
WINDOWS = ("before its attempt is stored", "before its call", "before its result is stored")
BEGUN, STORED = "the attempt of ", " is stored"
DEFINITIONS = ("notice", "dispatch")
NON_IDEMPOTENT = ToolEffect.NON_IDEMPOTENT
RUN = "the run"  # the column of what belongs to no step


class Place(NamedTuple):
    """One place to die. `at` is what AGENT_CRASH_AT takes: "after_effect:2", "boundary:6".

    `waits`: a run that dies here waits for an answer, since an attempt of a NON_IDEMPOTENT effect
    is stored, and no checkpoint.
    """

    row: str
    column: str
    at: str
    waits: bool = False


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
    # No folder, FIFO or link to a device: an agent that is given one may wait for ever.
    return sorted(path.name for path in folder.glob("*.json") if path.is_file())


def _definitions(folder: Path) -> list[str]:
    """Of the agent in `dispatch`; it needs the notes, and to dispatch, who is on call."""
    return list(DEFINITIONS) if (folder / "input" / "on-call.txt").exists() else []


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
    """The places of every step, row by row: three for each.

    Of the restart agent its crash points; of a durable run three windows of each step that a run
    nobody kills makes; it takes a second to find out. Raises NotFound and BadInput for the plan.
    """
    every = every_place(agent, plan, folder)
    return [place for place in every if place.row in (*POINTS, *WINDOWS)]


def every_place(agent: str, plan: str, folder: Path, mutant: str = "") -> list[Place]:
    """Those of `places`; of a durable run also those that belong to no step, and, of a `mutant`
    that stores a result in more commits than one, those between them.
    """
    if agent_called(agent).name == "durable":
        return list(_durable_places(plan, mutant))
    if (content := read_bytes(folder / plan)) is None:
        raise NotFound(f"there is no plan {plan!r} in this folder")
    steps = range(len(read_plan(content, BUILT_IN)["steps"]))
    return [Place(point, f"step {idx}", f"{point}:{idx}") for point in POINTS for idx in steps]


@cache
def _durable_places(definition: str, mutant: str) -> list[Place]:
    if definition not in dispatch.TURNS:
        known = ", ".join(dispatch.TURNS)
        raise UsageError(f"no definition is called {definition!r}; there are {known}")
    with runs.Trials(mutant) as trials:
        found = _named_places(list(trials.record(definition)))
    rows = list(dict.fromkeys(place.row for place in found))  # in the order in which they come
    return sorted(found, key=lambda place: rows.index(place.row))


def _named_places(names: list[str]) -> list[Place]:
    """Each boundary, by its name: what is about to happen there."""
    found: list[Place] = []
    step, waits = "", False
    for number, name in enumerate(names):
        before_result = f"the result of {step}{STORED}"
        if name.startswith(BEGUN):
            step, waits = name.removeprefix(BEGUN).removesuffix(STORED), False
            row = WINDOWS[0]
        elif step and name.startswith(before_result):
            more = name.removeprefix(f"{before_result}, ")
            row = WINDOWS[2] if name == before_result else f"before {more} of its result"
        elif step and found[-1].row == WINDOWS[0]:
            waits = dispatch.EFFECTS.get(name.removesuffix(" is called")) is NON_IDEMPOTENT
            row = WINDOWS[1]
        else:
            step, waits, row = "", False, f"before {name}"
        found.append(Place(row, step or RUN, f"boundary:{number}", waits))
    return found

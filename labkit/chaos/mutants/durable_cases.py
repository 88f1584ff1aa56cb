"""The cases of the durable run: each is a sweep of one of its scenarios, or of several.

A case says broken with the first trial that was. What must follow each kill is computed from the
store, so a runtime that always waits is broken as one that never does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from labkit.chaos.examples.durable import (
    durable,
    takeovers,
    transactions,
)
from labkit.chaos.kill import Injury, sweep
from labkit.chaos.mutants.cases import sum_up
from labkit.chaos.points import FastWorkshop, points
from labkit.chaos.scenario import Scenario, Workshop
from labkit.chaos.suite import Bench, Case, Faults

__all__ = ["DURABLE_CASES"]

UNHARMED = ("start", "long", "lost", "retry", "confirm", "reject")  # in which nothing is recovered
Plan = Callable[[Workshop], Sequence[Injury]]


@contextmanager
def _root(bench: Bench) -> Iterator[Path]:
    """A folder for one workshop. Python's own library is compiled once for all of them."""
    bench.bytecode.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sweep-", dir=bench.root) as name:
        root = Path(name)
        (root / "bytecode").symlink_to(bench.bytecode)
        yield root


def _scenario(bench: Bench, name: str) -> Scenario:
    return durable(name, Path(bench.agent.path) if bench.agent.path else None)


def _unharmed(bench: Bench) -> Faults:
    """Raises UsageError where not even that holds: nobody can say what a kill would show then."""
    with _root(bench) as root:
        for name in UNHARMED:
            Workshop(_scenario(bench, name), root)
            yield from ()


def _swept(name: str, plan: Plan, bench: Bench) -> Faults:
    with _root(bench) as root, FastWorkshop(_scenario(bench, name), root) as workshop:
        yield from sum_up(sweep(workshop, [[injury] for injury in plan(workshop)]))


def _case(name: str, scenario: str, says: str, tier: str = "statements") -> Case:
    plans: dict[str, Plan] = {
        "points": points, "statements": transactions, "pause": takeovers,
    }  # fmt: skip
    return Case(name, says, partial(_swept, scenario, plans[tier]), tier)


DURABLE_CASES: tuple[Case, ...] = (
    Case("unharmed", "a run that nobody kills ends, and each message goes out once", _unharmed),
    _case("calls", "start", "killed around any call and any verb of the store", "points"),
    _case("start", "start", "killed between any two transactions, each message goes out once"),
    _case("lost", "lost", "killed where a tool's answer is lost, the run waits to be told"),
    _case("recovery", "resume sent", "killed while it recovers, the run waits to be told"),
    _case("retry", "retry", "a retry is one call more, killed or not"),
    _case("confirm", "confirm", "what is confirmed is stored, or the run still waits"),
    _case("reject", "reject", "what is rejected is stored, or the run still waits"),
    _case("cancel", "cancel sent", "an effect that nobody can prove beats a cancel"),
    _case("pause", "start", "who wakes up after its lease was taken is refused", "pause"),
)

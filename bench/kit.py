"""The crash kit's own figures: how many kills a second, and how long the full sweeps take.

The folders are in memory where there is one, as they are for whoever uses the kit.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from labkit.chaos import points, powerloss, syscalls
from labkit.chaos.examples.restart import creating, restart
from labkit.chaos.kill import Injury, sweep
from labkit.chaos.points import FastWorkshop
from labkit.chaos.scenario import Scenario, scratch

__all__ = ["time_images", "time_pairs", "time_points", "time_syscalls"]


def time_points(rounds: int) -> tuple[float, str]:
    """Milliseconds for each trial: a kill at a named point, a restart, the judgement."""
    with _workshop(restart()) as workshop:
        plan = [[point] for point in points.points(workshop)] * (4 * rounds)
        took = _held(workshop, plan)
    return 1000 * took / len(plan), f"{len(plan) / took:.0f} kills and recoveries a second"


def time_syscalls() -> tuple[float, str]:
    """Seconds for a kill before each system call of `create` and of `run`."""
    took, count = 0.0, 0
    for scenario in (creating(), restart()):
        with _workshop(scenario) as workshop:
            began = time.monotonic()
            plan = [[kill] for kill in syscalls.plan(workshop)]
            _held(workshop, plan)
            took, count = took + time.monotonic() - began, count + len(plan)
    return took, f"{count} kills, 0 broken"


def time_pairs(pairs: int) -> tuple[float, str]:
    """Seconds for so many pairs of kills, planning them included."""
    with _workshop(restart()) as workshop:
        began = time.monotonic()
        plan = syscalls.twice(workshop, pairs)
        _held(workshop, plan)
        return time.monotonic() - began, f"{len(plan)} pairs, 0 broken"


def time_images(images: int) -> tuple[float, str]:
    """Seconds for so many distinct disks that a power cut could leave, each run to its end."""
    with _workshop(restart()) as workshop:
        began = time.monotonic()
        losses = powerloss.lose_power(workshop, images)
        took = time.monotonic() - began
    if losses.report.exit_code or losses.images < images:
        raise RuntimeError(f"not all held: {losses}")
    return took, f"{losses.images:,} distinct images, 0 broken"


@contextmanager
def _workshop(scenario: Scenario) -> Iterator[FastWorkshop]:
    with (
        tempfile.TemporaryDirectory(prefix="labkit-bench-", dir=scratch()) as root,
        FastWorkshop(scenario, Path(root)) as workshop,
    ):
        yield workshop


def _held(workshop: FastWorkshop, plan: Sequence[Sequence[Injury]]) -> float:
    """Seconds of the sweep. A figure of one that did not hold would mean nothing."""
    began = time.monotonic()
    report = sweep(workshop, plan)
    took = time.monotonic() - began
    if report.exit_code:
        raise RuntimeError(f"not all held: {report}")
    return took

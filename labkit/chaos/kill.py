"""One trial from injury to verdict, and many of them on both cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from labkit.chaos.scenario import Broken, NotDelivered, Trial, Workshop
from labkit.chaos.verdict import BROKEN, UNKNOWN, Report, Verdict
from labkit.errors import LabkitError, StorageFault, describe

__all__ = ["Injury", "sweep", "try_injuries"]


class Injury(Protocol):
    """One way to be harmed. `how` is its kind, `address` its name within the kind."""

    @property
    def how(self) -> str: ...

    @property
    def address(self) -> str: ...

    def strike(self, trial: Trial) -> None:
        """Runs the scenario's `run` once, harmed. Raises NotDelivered unless that is proved, and
        Broken if the harmed run itself did what it must not do."""


def try_injuries(workshop: Workshop, injuries: Sequence[Injury], *, keep: bool = False) -> Verdict:
    """One trial in a fresh folder: each injury in turn, restarts until it ends, the judgement.

    `keep` leaves the folder where it is.
    """
    how, address = injuries[0].how, " ".join(injury.address for injury in injuries)
    delivered = False
    trial = workshop.open()
    try:
        for injury in injuries:
            injury.strike(trial)
            if workshop.scenario.at_injury:
                workshop.scenario.at_injury(trial.folder)
        delivered = True
        trial.restart(workshop.code)
        return Verdict(how, address, *workshop.judge(trial), delivered)
    except NotDelivered as why:
        return Verdict(how, address, UNKNOWN, str(why), delivered)
    except (
        OSError,
        LabkitError,
        StorageFault,
    ) as error:  # of one trial: the others go on
        return Verdict(how, address, UNKNOWN, describe(error), delivered)
    except Broken as why:
        return Verdict(how, address, BROKEN, str(why), True)
    finally:
        if not keep:
            trial.close()


def sweep(
    workshop: Workshop,
    plan: Iterable[Sequence[Injury]],
    on_end: Callable[[Verdict], object] | None = None,
) -> Report:
    """One trial on each core at a time. The threads only wait for processes. What interrupts it
    ends the trials that run."""
    planned = list(plan)

    def one(injuries: Sequence[Injury]) -> Verdict:
        verdict = try_injuries(workshop, injuries)
        if on_end:
            on_end(verdict)
        return verdict

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        try:
            return Report(len(planned), tuple(pool.map(one, planned)))
        except BaseException:  # Ctrl-C: the pool would wait for the trials that run
            workshop.running.stop()
            raise

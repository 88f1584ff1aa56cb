"""The crash matrix: one trial for every place of an agent, and the cells that they leave.

    for outcome in cells.run("restart"):        # each one as it ends
        print(outcome)
    cells.tabulate(cells.run("durable"))        # a table of words

`Sweep` is the same for somebody who cannot wait, such as a panel. What a trial is, and how it is
judged, is in `benches`.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from labkit.errors import UsageError
from labkit.lab import verbs
from labkit.lab.benches import AT_ONCE, MUTANT, Bench, DurableBench, Outcome, RestartBench
from labkit.lab.grid import DEFINITIONS, Place, agent_called, every_place
from labkit.lab.process import NotReady

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["UNSAFE", "Outcome", "Sweep", "grid", "plans", "run", "summarize", "tabulate"]

MOST = 300  # places of one grid: more is a matter of `labkit chaos`
NAMED = 2  # places that a summary names
UNSAFE = {  # the control of each agent: what is taken from it
    "restart": "the report is written without its key",
    "durable": "a result is stored in three commits",
}


def plans(agent: str) -> list[str]:
    """What `run` takes for a plan: the plans of this folder, or the definitions of durable runs.

    Raises NotReady before `lab.begin`, UsageError for an unknown agent.
    """
    chosen, folder = agent_called(agent), verbs.current_folder()
    return list(DEFINITIONS) if chosen.name == "durable" else chosen.plans(folder.path)


def grid(agent: str = "restart", plan: str = "", *, unsafe: bool = False) -> list[Place]:
    """Every place of the grid, row by row; of a durable run it takes a second to find them.

    `plan` is one of `plans(agent)`, the first by default. Raises UsageError, NotFound or BadInput.
    """
    plan = _known_plan(agent, plan)
    found = every_place(agent, plan, verbs.current_folder().path, MUTANT if unsafe else "")
    if len(found) > MOST:
        raise UsageError(f"{plan} has {len(found)} places, more than the {MOST} that a grid takes")
    return found


def _known_plan(agent: str, plan: str) -> str:
    known = plans(agent)
    if not known:
        raise UsageError(f"this folder holds no plan of the {agent} agent")
    if plan and plan not in known:
        raise UsageError(f"no plan is called {plan!r}; there are {', '.join(known)}")
    return plan or known[0]


def run(
    agent: str = "restart",
    plan: str = "",
    *,
    unsafe: bool = False,
    places: Sequence[Place] | None = None,
) -> Iterator[Outcome]:
    """One trial for each place, two at a time; each outcome as its trial ends.

    `unsafe` is the control: what it takes from the agent is in `UNSAFE`. `places` are some of the
    grid's. Raises NotReady before `lab.begin`, UsageError for what is not there, and LabkitError
    if not even the run that nobody kills ends well.
    """
    sweep = Sweep(agent, plan, unsafe=unsafe, places=places)
    try:
        yield from sweep
    finally:
        sweep.close()


class Sweep:
    """Trials at work in threads. Ask `take` for what has ended, until `is_over`; or iterate.

    Arguments and errors as of `run`; NotReady too if the notebook ends while the places are looked
    for. An open notebook closes it at its end; `close` leaves no process behind.
    """

    def __init__(
        self,
        agent: str = "restart",
        plan: str = "",
        *,
        unsafe: bool = False,
        places: Sequence[Place] | None = None,
    ) -> None:
        notebook = verbs.current_notebook()
        self.agent, self.plan, self._unsafe = agent, _known_plan(agent, plan), unsafe
        self.places = list(grid(agent, plan, unsafe=unsafe) if places is None else places)
        if verbs.current_notebook() is not notebook:  # nobody would end these trials
            raise NotReady("the notebook ended before its trials began; run them again")
        self.outcomes: list[Outcome] = []
        self.is_stopped = False
        self._rest = deque(enumerate(self.places))
        self._ended: SimpleQueue[Outcome | BaseException | None] = SimpleQueue()
        made = {"restart": RestartBench, "durable": DurableBench}[agent]
        self._bench: Bench = made(notebook, agent_called(agent), self.plan, unsafe)
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(AT_ONCE)]
        self._at_work = len(self._threads)
        for thread in self._threads:
            thread.start()
        notebook.beside[f"trials {len(notebook.beside)}"] = self  # `close` joins what has started

    @property
    def is_over(self) -> bool:
        """Nothing is at work, and all that has ended was taken."""
        return not self._at_work

    def take(self) -> list[Outcome]:
        """What has ended since the last call. Raises what stopped the trials."""
        found = []
        with suppress(Empty):
            while self._at_work:
                found += self._received(self._ended.get_nowait())
        return found

    def __iter__(self) -> Iterator[Outcome]:
        while self._at_work:
            yield from self._received(self._ended.get())

    def _received(self, item: Outcome | BaseException | None) -> list[Outcome]:
        if item is None:
            self._at_work -= 1
            return []
        if isinstance(item, BaseException):
            raise item
        self.outcomes.append(item)
        return [item]

    @property
    def code(self) -> str:
        """What does the same in a cell."""
        control = ", unsafe=True" if self._unsafe else ""
        return (
            "from labkit.lab import cells\n\n"
            f"for outcome in cells.run({_quote(self.agent)}, {_quote(self.plan)}{control}):\n"
            "    print(outcome)"
        )

    @property
    def words(self) -> str:
        """How far it is, and in the end what came of it."""
        if self.is_over or self.is_stopped:
            stopped = (
                "Stopped: " if self.is_stopped and len(self.outcomes) < len(self.places) else ""
            )
            return stopped + summarize(self.outcomes, len(self.places))
        held = sum(outcome.held for outcome in self.outcomes)
        return f"{len(self.outcomes)} of {len(self.places)} trials have ended, {held} held."

    def stop(self) -> None:
        """Kills what runs. A trial that was cut off leaves no outcome."""
        self.is_stopped = True
        self._bench.stop()

    def wait(self) -> None:
        """Returns once no trial is at work."""
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Stops, and returns once nothing is left running. A second call does nothing."""
        self.stop()
        self.wait()
        self._at_work = 0
        self._bench.close()

    def _work(self) -> None:
        try:
            self._bench.prepare()
            while self._rest and not self.is_stopped:
                outcome = self._bench.trial(*self._rest.popleft())
                if not self.is_stopped:
                    self._ended.put(outcome)
        except BaseException as error:  # `take` raises it where somebody can see it
            if not self.is_stopped:
                self._ended.put(error)
            self._rest.clear()
        finally:
            self._ended.put(None)


def tabulate(outcomes: Iterable[Outcome]) -> pd.DataFrame:
    """The words of the grid: a row for each kind of place, a column for each step.

    Where a step has no such place, or it was not tried, the cell is empty. Raises UsageError
    without an outcome.
    """
    import pandas as pd

    every = _in_order(outcomes)
    if not every:
        raise UsageError("cells.tabulate: give at least one outcome")
    cells = [(each.place.row, each.place.column, each.word) for each in every]
    frame = pd.DataFrame(cells, columns=["killed", "step", "word"])
    table = frame.pivot(index="killed", columns="step", values="word").fillna("")
    return table.reindex(index=frame.killed.unique(), columns=frame.step.unique())


def summarize(outcomes: Iterable[Outcome], planned: int = 0) -> str:
    """One sentence: "9 of 9 killed and held.", and where it is not so, what was, and where.

    `planned` is the number of places, unless each was tried.
    """
    found = _in_order(outcomes)
    planned = planned or len(found)
    said = [f"{sum(each.held for each in found)} of {planned} killed and held"]
    for kind, word in (("broken", "broken"), ("unproved", "without a proof")):
        if those := [each for each in found if each.kind == kind]:
            said.append(f"{len(those)} {word} ({_name(those)})")
    if rest := planned - len(found):
        said.append(f"{rest} not tried")
    return f"{'; '.join(said)}."


def _name(outcomes: Sequence[Outcome]) -> str:
    named = [each.where for each in outcomes[:NAMED]]
    more = len(outcomes) - len(named)
    return "; ".join([*named, *([f"and {more} more"] if more else [])])


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _in_order(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return sorted(outcomes, key=lambda outcome: outcome.number)

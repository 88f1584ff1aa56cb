"""An agent in front of a room: create, run, kill, resume, answer, start afresh; and what one sees.

Each act is a call of one of the lab's verbs, and says the line of code that does the same in a
cell. The instructor's panel has a button for each, and nothing else.
"""

from __future__ import annotations

import io
import time
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, NamedTuple

from labkit.errors import LabkitError, UsageError
from labkit.lab import evidence, runs, verbs
from labkit.lab.grid import NOW, Agent, agent_called
from labkit.lab.process import NotReady, Process, Result
from labkit.lab.scenarios import dispatch

if TYPE_CHECKING:
    import pandas as pd

    from labkit.journal.figure import Timeline

__all__ = ["ACTS", "Done", "Stage"]

ACTS = ("create", "run", "kill", "resume", "answer", "reset")
LIMIT_S = 120.0  # a room that is left alone leaves no agent behind
UNMADE, READY, AT_WORK, WAITS, OVER = "unmade", "ready", "at work", "waits", "over"
POSSIBLE = {
    UNMADE: ("create", "reset"),
    READY: ("run", "resume", "reset"),
    AT_WORK: ("kill", "reset"),
    WAITS: ("answer", "resume", "reset"),
    OVER: ("resume", "reset"),
}


class Done(NamedTuple):
    """One act: the line of code that does the same, and what it printed."""

    act: str
    code: str
    said: str


class Stage:
    """One agent with one plan, in the folder of the open notebook.

    `agent` is "restart" or "durable", `plan` one of `plans(agent)`. Raises NotReady before
    `lab.begin`, UsageError for what is not there.
    """

    def __init__(self, agent: str = "restart", plan: str = "", *, limit_s: float = LIMIT_S) -> None:
        self.agent: Agent = agent_called(agent)
        known = self.agent.plans(verbs.current_folder().path)
        if not known:
            raise UsageError(f"this folder holds no plan of the {agent} agent")
        if plan and plan not in known:
            raise UsageError(f"no plan is called {plan!r}; this folder has {', '.join(known)}")
        self.plan = plan or known[0]
        self.process: Process | None = None
        self._limit_s, self._began_s = limit_s, 0.0

    # What can be done.

    def create(self) -> Done:
        """The task, or the durable run, is stored; nothing of it is done."""
        return self._run("create", self.agent.create.format(plan=self.plan))

    def run(self, at: str = "") -> Done:
        """Starts a process. `at` is a place of `grid.places`, where it is killed; "now" makes it
        slow, or wait in its effect, so that somebody can kill it; "" lets it run to its end."""
        return self._start("run", self.agent.slow if at == NOW else self.agent.killed_at(at))

    def resume(self) -> Done:
        """Starts a process that nothing kills: it goes on from what is stored."""
        return self._start("resume", {})

    def kill(self) -> Done:
        """SIGKILL, now. Raises NotReady if nothing runs."""
        if self.process is None:
            raise NotReady("no process was started here; press Run first")
        with redirect_stdout(io.StringIO()) as said:
            verbs.kill(self.process)
        return Done("kill", "lab.kill(process)", said.getvalue())

    def answer(self, answer: str) -> Done:
        """Resolves a durable run that waits, by one of `dispatch.RESOLUTIONS`."""
        if answer not in self.answers:
            known = ", ".join(self.answers) or "none: a task of the restart agent never waits"
            raise UsageError(f"{answer!r} is no answer; use one of {known}")
        return self._run("answer", f"dispatch resolve {self.agent.task} {answer}")

    def reset(self) -> Done:
        """Ends what runs here; a fresh folder with the same notes, and no journal."""
        self.process = None
        with redirect_stdout(io.StringIO()) as said:
            verbs.fresh("stage")
        return Done("reset", 'lab.fresh("stage")', said.getvalue())

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(dispatch.RESOLUTIONS) if self.agent.name == "durable" else ()

    # How it stands.

    @property
    def state(self) -> str:
        """One of: unmade, ready, at work, waits, over."""
        if self.process and self.process.alive:
            return AT_WORK
        status = self.status
        if not status:
            return UNMADE
        if status == "WAITING":
            return WAITS
        return OVER if status in self.agent.ends else READY

    @property
    def status(self) -> str:
        """What the database says of the task or the run; "" while there is none."""
        folder = verbs.current_folder()
        if not folder.database.exists():
            return ""
        found = evidence.journal(folder).sql(self.agent.status, (self.agent.task,))
        return str(found.iloc[0, 0]) if len(found) else ""

    @property
    def possible(self) -> tuple[str, ...]:
        """The acts that make sense now, in the order of ACTS."""
        return tuple(act for act in ACTS if act in POSSIBLE[self.state])

    def ended(self) -> Result | None:
        """How the last process ended; None while it runs, or was never started.

        It is ended here if it has run for longer than `limit_s`.
        """
        if self.process is None:
            return None
        if self.process.alive:
            if time.monotonic() < self._began_s + self._limit_s:
                return None
            self.process.close()
        return self.process.finish()

    # What one sees.

    def timeline(self) -> Timeline:
        """Raises NotReady while there is no journal, UnknownTask while it holds no task."""
        return verbs.timeline(self.agent.task)

    def artifacts(self) -> pd.DataFrame:
        """What left the agent: the reports, or the messages that were sent."""
        return verbs.reports() if self.agent.name == "restart" else runs.outbox()

    def outcome(self) -> str:
        """In the words that a room votes on: "1 report", "2 messages", "waits, 1 message"."""
        number = len(self.artifacts())
        words = f"{number} {self.agent.effect}{'' if number == 1 else 's'}"
        return f"waits, {words}" if self.state == WAITS else words

    def _run(self, act: str, command: str) -> Done:
        with redirect_stdout(io.StringIO()) as said:
            result = verbs.run(command)
        if result.code not in (0, 4):
            raise LabkitError(said.getvalue().strip().rpartition("\n")[2])
        return Done(act, f'lab.run("{command}")', said.getvalue())

    def _start(self, act: str, settings: dict[str, str]) -> Done:
        if self.process and self.process.alive:
            raise NotReady(f"process {self.process.number} is at work; kill it, or wait")
        command = self.agent.run.format(plan=self.plan)
        with redirect_stdout(io.StringIO()) as said:
            self.process = verbs.start(command, **settings)
        self._began_s = time.monotonic()
        given = "".join(f', {name}="{value}"' for name, value in settings.items())
        return Done(act, f'process = lab.start("{command}"{given})', said.getvalue())

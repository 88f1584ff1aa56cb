"""An agent in front of a room: create, run, kill, resume, answer, start afresh; and what one sees.

Each act is a call of one of the lab's verbs, and says the line of code that does the same in a
cell. The instructor's panel has a button for each, and nothing else.
"""

from __future__ import annotations

import io
import json
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, NamedTuple

from labkit.errors import LabkitError, StorageBusy, StorageFault, UsageError
from labkit.journal.reading import Reader, snapshot
from labkit.lab import changes, evidence, runs, verbs
from labkit.lab.grid import NOW, Agent, Place, agent_called, places
from labkit.lab.pausing import GATE
from labkit.lab.process import NotReady, Process, Result
from labkit.lab.scenarios import dispatch

if TYPE_CHECKING:
    import pandas as pd

    from labkit.journal.figure import Timeline
    from labkit.lab.changes import Change
    from labkit.lab.folder import Folder

__all__ = ["ACTS", "NOWHERE", "Done", "Mark", "Stage"]

ACTS = ("create", "run", "kill", "resume", "answer", "reset")
NOWHERE = ""  # a place of `run`: nothing kills it
LIMIT_S = 120.0  # a room that is left alone leaves no agent behind
TAIL = 50  # events
BRIEF_S = 0.5  # how long a locked file is waited for; more, and a click seems to do nothing
UNMADE, READY, AT_WORK, WAITS, OVER = "unmade", "ready", "at work", "waits", "over"
UNREADABLE, LOCKED, CLOSED = "unreadable", "locked", "closed"
POSSIBLE = {
    UNMADE: ("create", "reset"),
    READY: ("run", "resume", "reset"),
    AT_WORK: ("kill", "reset"),
    WAITS: ("resume", "answer", "reset"),
    OVER: ("resume", "reset"),
    UNREADABLE: ("reset",),
    LOCKED: ("run", "resume", "reset"),  # the lock may be gone when the click comes
    CLOSED: ("reset",),
}
# The acts whose outcome nobody knows; of what is over, and what waits, a Resume changes nothing.
BRINGS_NEWS = {
    READY: ("run", "resume"),
    WAITS: ("answer",),
    LOCKED: ("run", "resume", "answer"),
}
WORDS = {
    UNMADE: "No {thing} is stored yet.",
    READY: "The {thing} is stored as {status}. No process is at work.",
    AT_WORK: "Process {number} is at work.",
    WAITS: "The {thing} waits: was its message sent?",
    OVER: "The {thing} is stored as {status}.",
    UNREADABLE: "state.db is nothing that this agent can read; Reset gives a fresh folder.",
    LOCKED: "state.db is locked by another program; nothing is lost, try again when it has ended.",
    CLOSED: "This folder is closed, and a fresh one was not made; mend the storage, then Reset.",
}
IDLE = {
    OVER: " It found nothing left to do, and did nothing.",
    WAITS: " It did nothing: an answer comes first.",
}
LEFT_ALONE = "It was left at work for too long."
UNSEEN = (
    "The process has ended. The room votes, then Reveal; "
    "a Resume before that makes one question of both."
)
THE_GATE = "from labkit.lab.pausing import pause\n\npause(process)  # in its call, the effect done"
UNTOLD = "# Hidden until the room has voted."
OLDER = "# This folder held a journal before these acts; after a reset they start from nothing."


class Done(NamedTuple):
    """One act: the line of code that does the same, and what it printed."""

    act: str
    code: str
    said: str

    def __repr__(self) -> str:
        return self.code


class Mark(NamedTuple):
    """Differs from the one before as soon as there is something new to see."""

    folder: str
    last_seq: int
    state: str
    acts: int


class Stage:
    """One agent with one plan, in the folder of the open notebook.

    `agent` is "restart" or "durable", `plan` one of `plans`, or else the first of them. Raises
    NotReady before `lab.begin`, UsageError for what is not there.
    """

    def __init__(self, agent: str = "restart", plan: str = "", *, limit_s: float = LIMIT_S) -> None:
        self.limit_s = limit_s
        self._settle(verbs.current_folder())
        self._choose(agent, plan)

    def _choose(self, agent: str, plan: str) -> None:
        chosen = agent_called(agent)
        known = chosen.plans(self._folder.path)
        if not known:
            raise UsageError(f"this folder holds no plan of the {agent} agent")
        if plan and plan not in known:
            raise UsageError(f"no plan is called {plan!r}; this folder has {', '.join(known)}")
        self.agent: Agent = chosen
        self.plan = plan or known[0]

    def _settle(self, folder: Folder) -> None:
        self._home = folder
        self.acts: list[Done] = []
        self.process: Process | None = None
        self.is_locked = False  # when it was last read
        self._began_s, self._held, self._is_placed = 0.0, False, False
        self._is_older, self._is_given_up = folder.database.exists(), False
        self._before = changes.State(0, {})

    @property
    def _folder(self) -> Folder:
        """That of the notebook. After a `lab.fresh` in a cell, what was begun here is over."""
        if (folder := verbs.current_folder()) is not self._home:
            self._settle(folder)
        return folder

    # What can be done.

    def create(self) -> Done:
        """The task, or the durable run, is stored; nothing of it is done."""
        return self._run("create", self._command(self.agent.create))

    def run(self, at: str = NOWHERE) -> Done:
        """Starts a process. `at` is a place of `places`, where it is killed; NOW makes it slow,
        or wait in its effect, so that somebody can kill it; NOWHERE lets it run to its end."""
        return self._start("run", self.agent.slow if at == NOW else self.agent.killed_at(at))

    def resume(self) -> Done:
        """Starts a process that nothing kills: it goes on from what is stored."""
        return self._start("resume", {})

    def kill(self) -> Done:
        """SIGKILL, now. Raises NotReady if nothing runs.

        Its code waits for the last event that the process has stored, then kills it.
        """
        if self.process is None:
            raise NotReady("no process was started here; press Run first")
        if not self.process.alive:
            raise NotReady(f"process {self.process.number} has ended already")
        with self.held(), redirect_stdout(io.StringIO()) as said:
            verbs.kill(self.process)
            code = self._how_it_was_killed()
        return self._note(Done("kill", code, said.getvalue()))

    def answer(self, answer: str) -> Done:
        """Resolves a durable run that waits, by one of `answers`."""
        if answer not in self.answers:
            known = ", ".join(self.answers) or "none: a task of the restart agent never waits"
            raise UsageError(f"{answer!r} is no answer; use one of {known}")
        return self._run("answer", f"dispatch resolve {self.agent.task} {answer}")

    def reset(self) -> Done:
        """Ends what runs here; a fresh folder with the same notes, and no journal.

        Raises StorageFault where there can be none; the next reset tries again.
        """
        with redirect_stdout(io.StringIO()) as said:
            if self.is_at_work:
                print("The process that was at work was killed.")
            self._is_given_up = True  # until there is another: nothing can be started here
            with self.held():
                verbs.fresh("stage")
            self._settle(verbs.current_folder())
            if self.plan not in self.plans:  # somebody's own, which a fresh folder does not have
                print(f"It has no plan {self.plan}.")
                self._choose(self.agent.name, "")
        return Done("reset", 'lab.fresh("stage")', said.getvalue())

    def use(self, agent: str, plan: str = "") -> Done | None:
        """Another agent, or another plan. Where the folder has been used, it is a reset too."""
        self._choose(agent, plan)
        is_used = bool(self.acts) or self.is_at_work or self._folder.database.exists()
        return self.reset() if is_used else None

    def close(self) -> None:
        """Kills what runs here. A second call does nothing."""
        if self.process is not None:
            self.process.close()

    # How it stands.

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(dispatch.RESOLUTIONS) if self.agent.name == "durable" else ()

    @property
    def plans(self) -> list[str]:
        return self.agent.plans(self._folder.path)

    @property
    def places(self) -> list[Place]:
        """Where `run` can be killed. For a durable run it takes a second, the first time."""
        return places(self.agent.name, self.plan, self._folder.path)

    def tabulate_places(self) -> pd.DataFrame:
        """The grid: a row for each step, a column for each point, and in it what `run` takes."""
        import pandas as pd

        table = pd.DataFrame(self.places, columns=["", "step", "at", "waits"])
        wide = table.pivot(index="step", columns="", values="at")
        return wide.loc[table["step"].unique(), table[""].unique()]

    @property
    def is_at_work(self) -> bool:
        return self._folder is self._home and self.process is not None and self.process.alive

    @property
    def state(self) -> str:
        """One of: unmade, ready, at work, waits, over, unreadable, locked, closed."""
        if self.is_at_work:
            return AT_WORK
        if self._is_given_up:
            return CLOSED
        try:
            status = self.status
        except StorageBusy:
            return LOCKED
        except (LabkitError, StorageFault):
            return UNREADABLE
        if not status:
            return UNMADE
        if status == "WAITING":
            return WAITS
        return OVER if status in self.agent.ends else READY

    @property
    def status(self) -> str:
        """What the database says of the task or the run; "" while there is none."""
        with self._reading() as reader:
            found = reader and reader.value(self.agent.status, self.agent.task)
        return str(found or "")

    @property
    def _patience_s(self) -> float:
        """What was found locked is not waited for a second time, until it has been read."""
        return 0 if self.is_locked else BRIEF_S

    @contextmanager
    def _reading(self) -> Iterator[Reader | None]:
        """None while there is no journal. Raises as `snapshot`."""
        busy_s, self.is_locked = self._patience_s, False
        if not (database := self._folder.database).exists():
            yield None
            return
        try:
            with snapshot(str(database), busy_s) as reader:
                yield reader if reader.has_journal else None
        except StorageBusy:
            self.is_locked = True
            raise

    @property
    def possible(self) -> tuple[str, ...]:
        """The acts that make sense now, in the order of ACTS."""
        return POSSIBLE[self.state]

    @property
    def possible_unseen(self) -> tuple[str, ...]:
        """Those of them that are the same however the last process ended: they give nothing
        away."""
        if (state := self.state) in (UNMADE, AT_WORK) or not self.has_started:
            return POSSIBLE[state]
        return ("resume", "reset")

    def brings_news(self, act: str) -> bool:
        """Whether nobody can know what comes of this act now."""
        return act in BRINGS_NEWS.get(self.state, ())

    @property
    def has_started(self) -> bool:
        """Whether a process was started in this folder, so that there is an outcome to guess."""
        is_here = self._folder is self._home and not self._is_given_up
        return is_here and self.process is not None

    @property
    def words(self) -> str:
        """How it stands, and how the last process ended, in a line."""
        thing = "task" if self.agent.name == "restart" else "run"
        ended, state = self.ended(), self.state  # in this order: a process may end here
        number = self.process.number if self.process else 0
        status = self.status if state in (READY, OVER) else ""
        words = WORDS[state].format(thing=thing, status=status, number=number)
        if ended is None or self.acts[-1].act == "answer":  # that was another process
            return words
        why = f" {LEFT_ALONE}" if self.acts[-1].said == LEFT_ALONE else ""
        if state in IDLE and not ended.killed and self._last_seq == self._before.last_seq:
            why = IDLE[state]
        return f"Process {number}: {ended}.{why} {words}"

    @property
    def words_unseen(self) -> str:
        """`words` without what the room is to guess."""
        if self.is_locked:  # that tells nothing of it
            return WORDS[LOCKED]
        return UNSEEN if self.has_started and not self.is_at_work else self.words

    @property
    def mark(self) -> Mark:
        """Cheap: it is looked at ten times a second. Raises StorageFault."""
        state, seq = self.state, 0
        if state not in (UNMADE, UNREADABLE, LOCKED):
            with suppress(StorageBusy):
                seq = self._last_seq
        return Mark(str(self._folder.path), seq, state, len(self.acts))

    @property
    def _last_seq(self) -> int:
        """Of the journal; 0 while there is none. Raises StorageFault."""
        with self._reading() as reader:
            return (reader and reader.value("SELECT max(seq) FROM journal")) or 0

    def ended(self) -> Result | None:
        """How the last process ended; None while it runs, or was never started.

        It is ended here if it has run for longer than `limit_s`, and the words say so.
        """
        if self._folder is not self._home or self.process is None:
            return None
        if self.process.alive:
            if time.monotonic() < self._began_s + self.limit_s:
                return None
            self.process.close()
            self._note(Done("kill", self._how_it_was_killed(), LEFT_ALONE))
        result = self.process.finish()
        if not self._is_noted:
            # Where it was killed and no place was given, somebody killed it from outside.
            by_hand = result.killed and not self._is_placed
            code = self._how_it_was_killed() if by_hand else "process.finish()"
            self._note(Done("finish", code, result.output))
        return result

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within it no other program can lock the database, unless it has done so before: all that
        is read meanwhile is read at once."""
        with ExitStack() as stack:
            with suppress(LabkitError, StorageFault, StorageBusy):
                stack.enter_context(self._reading())
            yield

    # What one sees.

    def tail(self, rows: int = TAIL) -> pd.DataFrame:
        """The last events of the journal, the latest first. Raises NotReady while there is none."""
        columns = "seq, kind, owner, step, attempt, data"
        query = f"SELECT {columns} FROM journal ORDER BY seq DESC LIMIT {rows}"
        return evidence.journal(self._folder).sql(query)

    def timeline(self, style: str = "notebook") -> Timeline:
        """Raises NotReady while there is no journal, UnknownTask while it holds no task."""
        return evidence.timeline(self._folder, self.agent.task, "order", style)

    def artifacts(self) -> pd.DataFrame:
        """What left the agent: the reports, or the messages that were sent."""
        return verbs.reports() if self.agent.name == "restart" else runs.outbox()

    def changes(self) -> list[Change]:
        """What is stored since the last create, run, resume or answer began."""
        return changes.changes(self._folder.database, self._before)

    def effects(self) -> str:
        """What left the agent, in words: "1 report", "0 messages"."""
        number = len(self.artifacts())
        return f"{number} {self.agent.effect}{'' if number == 1 else 's'}"

    def outcome(self) -> str:
        """In the words that a room votes on: "1 report", "2 messages", "waits, 1 message".

        Raises NotReady while a process is at work: what comes of it is not known yet; and while
        state.db is locked.
        """
        if self.is_at_work:
            raise NotReady("a process is at work; its outcome is known when it has ended")
        if (state := self.state) == LOCKED:
            raise NotReady(WORDS[LOCKED])
        return f"waits, {self.effects()}" if state == WAITS else self.effects()

    @property
    def code(self) -> str:
        """The first cell of a fresh notebook that does again what was done here, since the folder
        was fresh, and comes to the same journal."""
        return self.code_of(None)

    def code_of(self, acts: int | None) -> str:
        """`code`, of no more than so many acts, if the room is to guess what came then."""
        self.ended()  # noted, if nobody has looked
        begin = f'lab.begin("{verbs.current_notebook().notebook.number}")'
        first = ["from labkit import lab\n", *([OLDER] if self._is_older else []), begin]
        last = [UNTOLD] if self.acts[:acts] != self.acts else []
        return "\n".join([*first, *(done.code for done in self.acts[:acts]), *last])

    # How it is done.

    def _command(self, template: str) -> str:
        """With the plan as a shell takes it. A file may be called as an option is, and a path that
        begins with "./" is none."""
        path = f"./{self.plan}" if self.plan.startswith("-") else self.plan
        return template.format(plan=shlex.quote(path))

    def _run(self, act: str, command: str) -> Done:
        self.ended()  # noted before what comes after it
        self._remember()
        with redirect_stdout(io.StringIO()) as said:
            result = verbs.run(command)
        if result.code not in (0, 4):
            # One line, which an agent folds for its terminal.
            raise LabkitError(" ".join(result.output.split()) or repr(result))
        return self._note(Done(act, f"lab.run({_literal(command)})", said.getvalue()))

    def _start(self, act: str, settings: dict[str, str]) -> Done:
        if self.is_at_work and self.process:
            raise NotReady(f"process {self.process.number} is at work; kill it, or wait")
        self.ended()  # noted before what comes after it
        self._remember()
        command = self._command(self.agent.run)
        with redirect_stdout(io.StringIO()) as said:
            self.process = verbs.start(command, **settings)
        self._began_s, self._held = time.monotonic(), "AGENT_HOLD" in settings
        self._is_placed = "AGENT_CRASH_AT" in settings
        given = "".join(f', {name}="{value}"' for name, value in settings.items())
        code = f"process = lab.start({_literal(command)}{given})"
        return self._note(Done(act, code, said.getvalue()))

    def _remember(self) -> None:
        self._before = changes.state(self._folder.database, self._patience_s)

    def _note(self, done: Done) -> Done:
        self.acts.append(done)
        return done

    @property
    def _is_noted(self) -> bool:
        """Whether the acts say how the last process ended."""
        of_processes = [done.act for done in self.acts if done.act not in ("create", "answer")]
        return of_processes[-1:] in (["kill"], ["finish"])

    def _how_it_was_killed(self) -> str:
        if self._held and (self._folder.path / GATE).exists():
            return f"{THE_GATE}\nlab.kill(process)"
        if not (found := self._last_event()):
            return "lab.kill(process)"
        kind, step_idx = found
        of_step = "" if step_idx is None else f", {step_idx}"
        return f'lab.wait_for(process, "{kind}"{of_step})\nlab.kill(process)'

    def _last_event(self) -> tuple[str, int | None] | None:
        """The last one since the process began: its kind and its step."""
        last = "SELECT kind, step_idx FROM journal WHERE seq > ? ORDER BY seq DESC LIMIT 1"
        # It is killed already: a database that went meanwhile must not hide that.
        with suppress(LabkitError, StorageFault, StorageBusy), self._reading() as reader:
            if reader:
                return next(reader.tuples(last, (self._before.last_seq,)), None)
        return None


def _literal(command: str) -> str:
    """In Python. A plan's file may have any name, and the line is to be copied into a cell."""
    # Not as JSON with \u for all that is not ASCII: that has two halves for one emoji.
    literal = json.dumps(command, ensure_ascii=False)
    return literal if literal.isprintable() else repr(command)

"""Where a durable run can be killed, in words: before each transaction, before each call.

AGENT_DIE_BEFORE="notify is called" dies there, the first time that a process comes to it;
AGENT_STOP_BEFORE stops there, by SIGSTOP, until somebody sends SIGCONT. AGENT_CRASH_AT=boundary:N
dies before the N-th of all of them, counted from 0 in each process. With LABKIT_PLACES=FILE they
are written down, a line each, and below it what a transaction writes to.

Between two neighbours nothing happens that anybody could see. What lies after a call is the place
before the transaction that stores its result.
"""

from __future__ import annotations

import inspect
import os
import re
import signal
import sqlite3
from typing import Any

from labkit.chaos.examples.programs.durable_run import Boundaries, append
from labkit.errors import UsageError

__all__ = ["WRITTEN", "Places"]

WRITTEN = "  writes "  # before the name of a table
WRITES = re.compile(r"\s*(?:INSERT INTO|UPDATE) (\w+)")
VERBS = {
    "create_run": "the run is stored",
    "acquire_lease": "the lease is taken",
    "resolve_run": "the answer of the application is stored",
    "provide": "the notes are read",
}


class Places(Boundaries):
    """The places of this process, from the moment when it is made."""

    def __init__(self) -> None:
        super().__init__()
        self._doing, self._begun = "", 0
        self._file, self._asked = (
            os.environ.get("LABKIT_PLACES"),
            os.environ.get("AGENT_DIE_BEFORE"),
        )
        self._stop = os.environ.get("AGENT_STOP_BEFORE")
        connect = sqlite3.connect

        def traced(*args: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*args, **options)
            connection.set_trace_callback(self._told)
            return connection

        sqlite3.connect = traced  # type: ignore[assignment]

    def come_to(self, place: str) -> None:
        """Dies or stops here if this is the place that was asked for."""
        if self._file:
            append(self._file, place)
        if place == self._asked:
            os.kill(os.getpid(), signal.SIGKILL)
        if place == self._stop:
            self._stop = None
            os.kill(os.getpid(), signal.SIGSTOP)
        self.reach()

    def end(self) -> None:
        """Raises UsageError if this process lives though it was asked to die: a typo must not look
        like a survived crash."""
        self.come_to("the process ends")
        if asked := self._asked or os.environ.get("AGENT_CRASH_AT"):
            raise UsageError(f"this process never came to {asked!r}; it was not killed")
        if self._stop:
            raise UsageError(f"this process never came to {self._stop!r}; it was not stopped")

    def watch_calls(self, inner: object) -> Any:
        return _Watched(inner, self._before_call)

    def watch_store(self, inner: object) -> Any:
        return _Watched(inner, self._before_verb)

    def _before_call(self, words: str) -> None:
        self.come_to(words)

    def _before_verb(self, words: str) -> None:
        self._doing, self._begun = words, 0

    def _told(self, statement: str) -> None:
        """SQLite tells each statement before it obeys it. A verb of ours begins one transaction; of
        a store that begins more, each is a place."""
        if statement == "BEGIN IMMEDIATE" and self._doing:
            self._begun += 1
            self.come_to(self._doing + f", commit {self._begun}" * (self._begun > 1))
        elif self._file and self._doing and (found := WRITES.match(statement)):
            append(self._file, f"{WRITTEN}{found[1]}")


class _Watched:
    """Everything that another object is; before each awaited call somebody is told which."""

    def __init__(self, inner: Any, tell: Any) -> None:
        self._inner, self._tell = inner, tell

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # a definition takes a Tool only, and isinstance asks here
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def watched(*args: Any, **options: Any) -> Any:
            self._tell(_in_words(name, args, self._inner))
            return await found(*args, **options)

        return watched


def _in_words(verb: str, args: tuple[Any, ...], inner: Any) -> str:
    """What is about to happen."""
    match verb:
        case "begin_attempt":
            return f"the attempt of {args[1].step_id} is stored"
        case "record_success":
            return f"the result of {args[1].step_id} is stored"
        case "record_failure":
            return f"the failure of {args[1].step_id} is stored"
        case "change_run":
            return f"the run is stored as {args[1].to}"
        case "generate":
            return f"the model is called, turn {len(args[0].turns) + 1}"
        case "invoke":
            return f"{inner.name} is called"
    return VERBS.get(verb, "")

"""The agent: recover; then start, call and finish one step after another.

What lies between two commits may be repeated, so nothing there is believed until it is committed.
"""

import fcntl
import json
import os
import re
import signal
import time
from collections.abc import Mapping
from typing import Any

from labkit import errors
from labkit.crashpoints import CrashPoints
from labkit.database import Row, connect, look
from labkit.files import remove_orphans
from labkit.jsonvalues import to_json
from labkit.restart.store import SCHEMA, Outputs, Store, failure, find_task, list_steps
from labkit.restart.tools import Tool, artifacts_folder

INTERRUPTED = "interrupted by Ctrl-C; `run` goes on"
POINTS = ("before_effect", "after_effect", "after_commit")
VARIABLES = {  # the default, and what a value must look like
    "AGENT_STEP_DELAY": ("0", r"[0-9]{1,6}(\.[0-9]+)?|\.[0-9]+"),
    "AGENT_MAX_ATTEMPTS": ("3", "[1-9][0-9]{0,8}"),
    "AGENT_LLM": ("", "(ollama)?"),
    "AGENT_UNSAFE_EFFECTS": ("0", "[01]"),
}


class Agent:
    """One process's pass over one task. Raises UsageError for an environment that means nothing."""

    def __init__(self, task_id: str, tools: Mapping[str, Tool], env: Mapping[str, str]) -> None:
        self.task_id, self.tools, self.in_tool, self.interrupted = task_id, tools, False, False
        signal.signal(signal.SIGINT, self._on_ctrl_c)
        self.crash = CrashPoints(POINTS, env.get("AGENT_CRASH_AT", ""))
        values = {name: env.get(name) or default for name, (default, _) in VARIABLES.items()}
        for name, (_, pattern) in VARIABLES.items():
            if not re.fullmatch(pattern, values[name]):
                raise errors.UsageError(f"{name}={values[name]!r}: it must match {pattern}")
        self.delay_s = float(values["AGENT_STEP_DELAY"])
        self.max_attempts = int(values["AGENT_MAX_ATTEMPTS"])

    def run(self, path: str, *, retry: bool) -> str:
        """Carries the task to its end, and says so; every other end is an error of its own."""
        if ended := self._look_first(path, retry):
            return ended
        self._lock(path)
        store = Store(connect(path, SCHEMA), self.task_id)
        if not store.begin_run(retry=retry):
            return self._look_first(path, retry)  # it ended between our look and our lock
        remove_orphans(artifacts_folder(), re.escape(self.task_id) + r"-[0-9]+\.md")
        for step in list_steps(store.db, self.task_id):
            if step["status"] == "pending":
                self._take_step(store, step)
        store.finish_task()
        return f"task {self.task_id} is done"

    def _look_first(self, path: str, retry: bool) -> str:
        """Reads only: what the user has to mend is said before the lock."""
        db = look(path, SCHEMA)
        if not db or not (task := find_task(db, self.task_id)):
            raise errors.UnknownTask(f"no task {self.task_id!r:.110} in {path}; `create` it first")
        if task["status"] == "done":
            return f"task {self.task_id} is done already"
        if task["status"] == "failed" and not retry:
            raise failure(db, self.task_id)
        needed = {s["tool"] for s in list_steps(db, self.task_id) if s["status"] != "done"}
        if missing := sorted(needed - set(self.tools)):
            raise errors.UsageError(f"no tool {missing[0]}; give its file with --tools FILE.py")
        return ""

    def _lock(self, path: str) -> None:
        """A courtesy until the process ends: the fence decides. A fork does not inherit this kind."""
        name = f"{os.path.realpath(path)}.{self.task_id}.lock"
        with errors.storage_faults(f"cannot lock {name}"):
            lock = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise errors.TakenOver(f"another process runs task {self.task_id}") from None

    def _take_step(self, store: Store, step: Row) -> None:
        """Tries the step until it is done. Nobody else changes it while the fence is ours."""
        attempt, done = step["attempts"], False
        while not done:
            if self.interrupted:
                raise errors.Interrupted(INTERRUPTED)
            if attempt >= self.max_attempts:
                store.give_up(step, attempt)
            attempt += 1
            store.start_attempt(step, attempt)
            done = self._attempt(store, step, attempt)

    def _attempt(self, store: Store, step: Row, attempt: int) -> bool:
        self.crash.reach("before_effect", step["idx"])
        try:
            output = self._call(store, step)
            self.crash.reach("after_effect", step["idx"])
            text = to_json(output)
        except errors.Interrupted as error:
            store.fail_attempt(step, attempt, error, last=False)
            raise
        except errors.Fatal:
            raise  # our storage or our fence: the step stays running, as after a kill
        except BaseException as error:  # SystemExit too: a tool does not end the agent
            store.fail_attempt(step, attempt, error, last=attempt >= self.max_attempts)
            return False
        store.finish_step(step, attempt, text)
        self.crash.reach("after_commit", step["idx"])
        return True

    def _call(self, store: Store, step: Row) -> Any:
        given, key, pid = json.loads(step["input"]), f"{self.task_id}-{step['idx']}", os.getpid()
        try:
            self.in_tool = True
            time.sleep(self.delay_s)
            return self.tools[step["tool"]](given, Outputs(store.db, self.task_id), key)
        finally:
            self.in_tool = False
            if os.getpid() != pid:
                os._exit(70)  # a child that the tool forked must not go on as a second agent

    def _on_ctrl_c(self, signum: int, frame: object) -> None:
        """Tells Ctrl-C from a KeyboardInterrupt that a tool raises, and never cuts a transaction."""
        in_tool, self.in_tool, self.interrupted = self.in_tool, False, True
        if in_tool:
            raise errors.Interrupted(INTERRUPTED)

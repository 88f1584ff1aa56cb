"""The agent: recover; then start, call and finish one step after another."""

import fcntl
import json
import os
import re
import signal
import time

from labkit import errors
from labkit.crashpoints import CrashPoints
from labkit.database import Row, connect
from labkit.files import remove_orphans
from labkit.jsonvalues import to_json
from labkit.restart.store import SCHEMA, Outputs, Store, failure, list_steps, open_task
from labkit.restart.tools import ARTIFACTS, load_tools

VARIABLES = {"AGENT_STEP_DELAY": r"[0-9]{1,6}(\.[0-9]+)?|\.[0-9]+", "AGENT_LLM": "ollama",
    "AGENT_MAX_ATTEMPTS": "[1-9][0-9]{0,8}", "AGENT_UNSAFE_EFFECTS": "[01]"}  # fmt: skip
POINTS = ("before_effect", "after_effect", "after_commit")


class Agent:
    """One process's pass over one task. Raises UsageError for an environment that means nothing."""

    def __init__(self, task_id: str, tool_files: list[str]) -> None:
        self.task_id, self.tools = task_id, load_tools(tool_files)
        self.in_tool = self.interrupted = False
        signal.signal(signal.SIGINT, self._on_ctrl_c)
        self.crash = CrashPoints(POINTS, os.environ.get("AGENT_CRASH_AT", ""))
        for name, pattern in VARIABLES.items():
            bad = errors.UsageError(f"{name} must match {pattern}")
            errors.ensure(re.fullmatch(f"({pattern})?", os.environ.get(name, "")), bad)
        self.delay_s = float(os.environ.get("AGENT_STEP_DELAY") or 0)
        self.max_attempts = int(os.environ.get("AGENT_MAX_ATTEMPTS") or 3)

    def run(self, path: str, *, retry: bool) -> str:
        """Carries the task to its end, and says so; every other end is an error of its own."""
        if ended := self._look_first(path, retry):
            return ended
        self._lock(path)
        store = Store(connect(path, SCHEMA), self.task_id)
        if not store.begin_run(retry=retry):
            return self.run(path, retry=retry)  # it ended between our look and our lock: look again
        remove_orphans(ARTIFACTS, re.escape(self.task_id) + r"-[0-9]+\.md")
        for step in list_steps(store.db, self.task_id):
            attempt = step["attempts"] + 1  # stored before the effect: a step that kills must end
            while step["status"] == "pending" and not self._attempt(store, step, attempt):
                attempt += 1
        store.record("task_done")
        store.db.check_file()
        return f"task {self.task_id} is done"

    def _look_first(self, path: str, retry: bool) -> str:  # reads only, before the lock
        db, task = open_task(path, self.task_id)
        if task["status"] == "done":
            return f"task {self.task_id} is done already"
        if task["status"] == "failed" and not retry:
            raise failure(db, self.task_id)
        for step in list_steps(db, self.task_id):
            missing = errors.UsageError(f"no tool {step['tool']}; give its file with --tools FILE")
            errors.ensure(step["status"] == "done" or step["tool"] in self.tools, missing)
        errors.ensure(
            self.crash.idx <= step["idx"], errors.UsageError("AGENT_CRASH_AT: no such step")
        )
        return ""

    def _lock(self, path: str) -> None:
        """A courtesy until the process ends: the fence decides. A fork does not inherit it."""
        name, task = f"{os.path.realpath(path)}.lock", int.from_bytes(self.task_id.encode(), "big")
        with errors.storage_faults(f"cannot lock {name}"):
            lock = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, task % 2147483647)
            except BlockingIOError:
                raise errors.TakenOver(f"another process runs task {self.task_id}") from None

    def _attempt(self, store: Store, step: Row, attempt: int) -> bool:  # True: the step is done
        store.require_attempt(step, attempt - 1, self.max_attempts)
        store.record("step_started", step, attempt, tool=step["tool"], attempt=attempt)
        self.crash.reach("before_effect", step["idx"])
        try:
            output = self._call(store, step)
            self.crash.reach("after_effect", step["idx"])
            text = to_json(output)
        except errors.Fatal:
            raise  # a fault of our storage, or our fence: the step stays as after a kill
        except BaseException as error:  # SystemExit too: a tool does not end the agent
            flags = {"permanent": issubclass(type(error), errors.PermanentError)}
            flags["interrupted"] = type(error) is errors.Interrupted  # its __class__ may lie
            store.record("step_error", step, attempt, error=errors.describe(error), **flags)
            if flags["interrupted"]:
                raise
            return False
        store.record("step_finished", step, attempt, text, tool=step["tool"])  # never run again
        self.crash.reach("after_commit", step["idx"])
        return True

    def _call(self, store: Store, step: Row) -> errors.Any:
        given, key, pid = json.loads(step["input"]), f"{self.task_id}-{step['idx']}", os.getpid()
        try:
            self.in_tool = True
            if self.interrupted:  # before the tool began: it is obeyed, and journaled, here
                self._on_ctrl_c()
            if self.delay_s:
                time.sleep(self.delay_s)  # even of 0 seconds it gives the processor away
            return self.tools[step["tool"]](given, Outputs(store.db, self.task_id), key)
        finally:
            self.in_tool, store.db.tool_ran = False, True
            if os.getpid() != pid:
                os._exit(70)  # a child that the tool forked must not go on as a second agent

    def _on_ctrl_c(self, *_: object) -> None:  # so told from a KeyboardInterrupt that a tool raises
        self.interrupted = True
        if self.in_tool:
            raise errors.Interrupted("interrupted in a step; `run` goes on")

"""The agent: recover, then start, call and finish one step after another. All that lies between two commits may be repeated."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from labkit.crashpoints import CrashPoints
from labkit.database import connect, look
from labkit.errors import (
    Fatal,
    Interrupted,
    PermanentError,
    StorageFault,
    TakenOver,
    TaskFailed,
    UnknownTask,
    UsageError,
    describe,
)
from labkit.files import remove_orphans
from labkit.jsonvalues import to_json
from labkit.restart.store import (
    SCHEMA,
    Outputs,
    Step,
    Store,
    explain_failure,
    find_task,
    list_steps,
)
from labkit.restart.tools import Tool, artifacts_folder

__all__ = ["Settings", "read_settings", "run"]


class Settings(NamedTuple):
    crash: CrashPoints
    step_delay_s: float
    max_attempts: int


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Raises UsageError for a value that means nothing: an agent must not run on a guess."""
    crash = CrashPoints(
        ("before_effect", "after_effect", "after_commit"), environ.get("AGENT_CRASH_AT", "")
    )
    for name, allowed in (("AGENT_LLM", ("", "ollama")), ("AGENT_UNSAFE_EFFECTS", ("", "0", "1"))):
        if environ.get(name, "") not in allowed:
            raise UsageError(f"{name}={environ[name]!r}: use {allowed[-1]!r} or leave it out")
    return Settings(
        crash,
        step_delay_s=_number(environ, "AGENT_STEP_DELAY", 0, r"[0-9]{1,9}(\.[0-9]*)?|\.[0-9]+", 0),
        max_attempts=int(_number(environ, "AGENT_MAX_ATTEMPTS", 3, r"[0-9]{1,9}", 1)),
    )


def run(
    db: str, task_id: str, tools: Mapping[str, Tool], settings: Settings, *, retry: bool = False
) -> str:
    """Carries a task to its end; returns what to tell the user. Raises an error of labkit.errors for each other end."""
    if (ended := _look_first(db, task_id, tools, retry)) is not None:
        return ended
    lock = _lock(db, task_id)
    try:
        store = Store(connect(db, SCHEMA), task_id)
        if not store.begin_run(retry=retry):
            return run(
                db, task_id, tools, settings, retry=retry
            )  # it ended between our look and our lock
        remove_orphans(artifacts_folder(), _own_names(task_id))
        _carry_on(store, tools, settings)
        store.finish_task()
    finally:
        os.close(lock)
    return f"task {task_id} is done"


def _look_first(db: str, task_id: str, tools: Mapping[str, Tool], retry: bool) -> str | None:
    """Reads only: what the user must mend, or an end that is already there, is said before the lock."""
    database = look(db, SCHEMA)
    task = find_task(database, task_id) if database else None
    if not database or not task:
        raise UnknownTask(f"no task {task_id} in {db}; `create` it first")
    if task.status == "done":
        return f"task {task_id} is done already"
    if task.status == "failed" and not retry:
        raise TaskFailed(explain_failure(database, task_id))
    missing = {step.tool for step in list_steps(database, task_id) if step.status != "done"} - set(
        tools
    )
    if missing:
        raise UsageError(
            f"task {task_id} needs the tool {', '.join(sorted(missing))}; give its file with --tools FILE.py"
        )
    database.close()
    return None


def _lock(db: str, task_id: str) -> int:
    """A courtesy: a quick answer instead of a race that the fence decides. A record lock, since a forked child does not inherit it."""
    import fcntl

    path = f"{os.path.realpath(db)}.{task_id}.lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StorageFault(
            f"cannot open the lock file {path}: {error.strerror}; mend the storage, then run again"
        ) from error
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise TakenOver(
            f"another process is running task {task_id}; wait for it, or end it"
        ) from None
    return lock


def _carry_on(store: Store, tools: Mapping[str, Tool], settings: Settings) -> None:
    ctx, after = Outputs(store.database, store.task_id), 0
    while (step := store.next_step(after)) is not None:
        CTRL_C.obey()
        _require_attempt(store, step, settings.max_attempts)
        _attempt(store, store.start_step(step), tools[step.tool], ctx, settings)
        after = step.idx


def _require_attempt(store: Store, step: Step, max_attempts: int) -> None:
    """Fails the task when a kill, an interrupt or a lower limit has left no attempt."""
    if step.attempts >= max_attempts:
        last = store.last_event(step)
        cut_off = last["kind"] == "step_recovered" or bool(last.get("interrupted"))
        store.give_up(step, "unknown" if cut_off else "failed")
        raise TaskFailed(explain_failure(store.database, store.task_id))


def _attempt(store: Store, step: Step, tool: Tool, ctx: Outputs, settings: Settings) -> None:
    settings.crash.reach("before_effect", step.idx)
    try:
        output = CTRL_C.call(tool, step, ctx, f"{store.task_id}-{step.idx}", settings.step_delay_s)
        settings.crash.reach("after_effect", step.idx)
        text = to_json(output)
    except Interrupted:
        store.fail_step(
            step, "interrupted by Ctrl-C", permanent=False, last=False, interrupted=True
        )
        raise
    except Fatal:
        raise  # our own storage or fence: the step stays running, as after a kill
    except BaseException as error:  # SystemExit, KeyboardInterrupt and CancelledError too: a tool does not end the agent
        _record_error(store, step, error, settings.max_attempts)
        return
    store.finish_step(step, text)
    settings.crash.reach("after_commit", step.idx)


def _record_error(store: Store, step: Step, error: BaseException, max_attempts: int) -> None:
    permanent, last = isinstance(error, PermanentError), step.attempts >= max_attempts
    store.fail_step(step, describe(error), permanent=permanent, last=last)
    if permanent or last:
        raise TaskFailed(explain_failure(store.database, store.task_id)) from None


class CtrlC:
    """Tells a Ctrl-C from a KeyboardInterrupt that a tool raises, and never lets it cut a transaction."""

    def __init__(self) -> None:
        self._asked = self._in_tool = False

    def install(self) -> None:
        signal.signal(signal.SIGINT, self._handle)

    def obey(self) -> None:
        if self._asked:
            raise Interrupted(
                "interrupted by Ctrl-C between two steps; run the task again to go on"
            )

    def call(self, tool: Tool, step: Step, ctx: Outputs, idem_key: str, delay_s: float) -> Any:
        pid = os.getpid()
        try:
            self._in_tool = True
            if delay_s:
                time.sleep(delay_s)
            return tool(step.input, ctx, idem_key)
        finally:
            self._in_tool = False
            if os.getpid() != pid:
                os._exit(70)  # a child that the tool forked must not go on as a second agent

    def _handle(self, signum: int, frame: object) -> None:
        self._asked = True
        if self._in_tool:
            self._in_tool = False
            raise Interrupted("interrupted by Ctrl-C; run the task again to go on")


CTRL_C = CtrlC()


def _own_names(task_id: str) -> re.Pattern[str]:
    return re.compile(re.escape(task_id) + r"-[0-9]+\.md")


def _number(
    environ: Mapping[str, str], name: str, default: float, pattern: str, least: float
) -> float:
    text = environ.get(name) or str(default)
    if not re.fullmatch(pattern, text) or float(text) < least:
        raise UsageError(f"{name}={text!r}: use a number from {least} up, of at most 9 digits")
    return float(text)

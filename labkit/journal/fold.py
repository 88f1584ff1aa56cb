"""What the events alone say: tasks and steps as they stood, attempts, and lanes. Pure functions.

The tables of a database are a cache of this fold. That the two agree is one of the laws. A durable
run is a task here, told apart by its events; what only it has stands at the end of each part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from labkit.errors import BadInput
from labkit.journal.reading import Event

__all__ = [
    "CLOSERS", "ENDS", "KINDS", "RUN_KINDS", "Attempt", "Lane", "RunNow", "RunStepNow", "StepNow",
    "TaskNow", "fold", "lanes", "pair", "split_owner",
]  # fmt: skip

KINDS = (  # in the order of a task's life
    "task_created", "run_started", "step_recovered", "step_started", "step_finished",
    "step_error", "task_done", "task_failed", "task_retried",
)  # fmt: skip

RUN_KINDS = (  # of a durable run
    "task_created", "run_started", "run_resolved", "step_recovered", "step_started",
    "step_finished", "step_error", "run_waiting", "cancel_requested", "task_done",
    "task_rejected", "task_failed", "task_cancelled",
)  # fmt: skip

ENDS = {  # what ends an advance of a durable run, and the status it leads to
    "run_waiting": "WAITING", "task_done": "SUCCEEDED", "task_rejected": "REJECTED",
    "task_failed": "FAILED", "task_cancelled": "CANCELLED",
}  # fmt: skip

MAX_STEPS = 1_000_000

CLOSERS = ("step_finished", "step_recovered", "step_error")  # each closes one step_started


@dataclass
class StepNow:
    """A step after some event. `step` is the tool's name, unknown before the first attempt."""

    step: str | None = None
    status: str = "pending"
    attempts: int = 0


@dataclass
class TaskNow:
    status: str = "pending"
    steps: list[StepNow] = field(default_factory=list)


@dataclass
class RunStepNow(StepNow):
    """A step of a durable run: `step` is its id, `checkpoint` the number of an attempt. `name` and
    `effect` are the tool's.
    """

    type: str | None = None
    name: str | None = None
    effect: str | None = None
    checkpoint: int | None = None


@dataclass
class RunNow(TaskNow):
    """A durable run. Its version is at least `version - unsure`: a journal does not say whether an
    advance that ends at once was RUNNING in between. `owner` is that of the last advance.
    """

    status: str = "CREATED"
    version: int = 1
    unsure: int = 0
    owner: str | None = None
    waiting_reason: str | None = None
    waiting_step: str | None = None
    error_code: str | None = None
    cancel_requested: bool = False
    has_just_begun: bool = False


def fold(events: Iterable[Event]) -> dict[str, TaskNow]:
    """The tasks by name, as they stand after the last of the events.

    An event of a task that was never created, or of a step that the task does not have, changes
    nothing here; the laws report it. Raises BadInput where an event's data is not JSON.
    """
    tasks: dict[str, TaskNow] = {}
    for event in events:
        if event.kind == "task_created":
            tasks[event.task_id] = _created(event)
        elif event.task_id in tasks:
            _apply(tasks[event.task_id], event)
    return tasks


def _created(event: Event) -> TaskNow:
    if event.is_durable:
        return RunNow()
    count = event.detail("steps", int) or 0
    if count > MAX_STEPS:  # a number written by hand must not take the memory of this machine
        raise BadInput(f"event {event.seq}: a plan of {count} steps; the journal was altered")
    return TaskNow(steps=[StepNow() for _ in range(count)])


def _apply(task: TaskNow, event: Event) -> None:
    if isinstance(task, RunNow):
        _apply_to_run(task, event)
        return
    task.status = _TASK_STATUS.get(event.kind, task.status)
    if event.kind == "step_error" and event.detail("interrupted"):
        task.status = "pending"  # Ctrl-C is an orderly stop: nothing is left running
    rule = _STEP_RULES.get(event.kind)
    if rule and event.step_idx is not None and event.step_idx in range(len(task.steps)):
        rule(task.steps[event.step_idx], event)


def _start(step: StepNow, event: Event) -> None:
    step.step, step.status = event.step, "running"
    step.attempts = event.attempt or step.attempts + 1


def _move(status: str) -> Callable[[StepNow, Event], None]:
    def move(step: StepNow, event: Event) -> None:
        step.status = status

    return move


def _retry(step: StepNow, event: Event) -> None:
    step.status, step.attempts = "pending", 0


_TASK_STATUS = {
    "run_started": "running",
    "task_done": "done",
    "task_failed": "failed",
    "task_retried": "pending",
}
_STEP_RULES: dict[str, Callable[[StepNow, Event], None]] = {
    "step_started": _start,
    "step_recovered": _move("pending"),
    "step_finished": _move("done"),
    "step_error": _move("pending"),  # a failure for good is the task_failed of the same transaction
    "task_failed": _move("failed"),
    "task_retried": _retry,
}


def _apply_to_run(run: RunNow, event: Event) -> None:
    if event.kind == "run_started":
        _begin_advance(run, event)
    elif event.kind in ENDS:
        _end_advance(run, event)
    elif event.kind == "cancel_requested":
        run.cancel_requested = True
    elif event.kind == "run_resolved" and event.detail("action", str) == "RETRY_STEP":
        run.cancel_requested = False  # who retries wants the run to go on
    elif event.kind.startswith("step_"):
        run.has_just_begun = False
        _apply_to_run_step(run, event)


def _begin_advance(run: RunNow, event: Event) -> None:
    if run.status != "RUNNING":
        run.status, run.version, run.has_just_begun = "RUNNING", run.version + 1, True
    run.owner, run.waiting_reason, run.waiting_step = event.owner, None, None


def _end_advance(run: RunNow, event: Event) -> None:
    run.status, run.version = ENDS[event.kind], run.version + 1
    run.unsure += run.has_just_begun
    run.has_just_begun = False
    run.error_code = event.detail("code", str)
    if event.kind == "run_waiting":
        run.waiting_reason, run.waiting_step = event.detail("reason", str), event.step
        return
    for step in run.steps:
        step.status = "FAILED" if step.status == "RUNNING" else step.status


def _apply_to_run_step(run: RunNow, event: Event) -> None:
    if event.kind == "step_started" and event.step_idx == len(run.steps):
        # Steps follow one another: each comes as the next.
        what = (event.detail(name, str) for name in ("type", "name", "effect"))
        run.steps.append(RunStepNow(event.step, "RUNNING", 0, *what))
    if event.step_idx is None or event.step_idx not in range(len(run.steps)):
        return
    step = run.steps[event.step_idx]
    if event.kind == "step_started":
        step.status = "RUNNING"
        step.attempts = event.attempt or step.attempts + 1
    elif event.kind == "step_finished" and isinstance(step, RunStepNow):
        step.status, step.checkpoint = "SUCCEEDED", event.attempt


class Attempt(NamedTuple):
    """One try at a step. `ended` is "finished", "error", "interrupted", "recovered", or None while
    open; of a durable run also "confirmed" or "rejected" by the application, without a call, and
    "uncertain": an end of which nobody can say what happened.
    """

    task_id: str
    run_id: str | None
    owner: str | None
    step_idx: int | None
    step: str | None
    attempt: int | None
    started_seq: int
    started_at: float
    ended_seq: int | None
    ended_at: float | None
    ended: str | None
    ended_by: str | None


def pair(events: Iterable[Event]) -> tuple[list[Attempt], list[Event]]:
    """Each step_started with the event that closes it, and the closers that close nothing."""
    started: list[Event] = []
    closers: dict[int, Event] = {}
    strays: list[Event] = []
    opened: dict[tuple[str, int | None], int] = {}
    for event in events:
        if event.kind == "step_started":
            # An attempt that is still open here stays open: a law reports it.
            opened[event.task_id, event.step_idx] = event.seq
            started.append(event)
        elif event.kind in CLOSERS:
            seq = opened.pop((event.task_id, event.step_idx), None)
            if seq is None:
                strays.append(event)
            else:
                closers[seq] = event
    return [_attempt(event, closers.get(event.seq)) for event in started], strays


def _attempt(start: Event, end: Event | None) -> Attempt:
    return Attempt(
        start.task_id, start.run_id, start.owner, start.step_idx, start.step, start.attempt,
        start.seq, start.ts, *(_end(end) if end else (None, None, None, None)),
    )  # fmt: skip


def _end(event: Event) -> tuple[int, float, str, str | None]:
    how = event.kind.removeprefix("step_")
    if event.is_durable:
        how = _end_in_run(event, how)
    elif how == "error" and event.detail("interrupted"):
        how = "interrupted"
    return event.seq, event.ts, how, event.owner


def _end_in_run(event: Event, how: str) -> str:
    if how == "finished":
        action = event.detail("action", str)
        return {"CONFIRM_STEP": "confirmed", "REJECT_STEP": "rejected"}.get(action, how)
    is_unsure = how == "error" and event.detail("classification") == "UNCERTAIN"
    return "uncertain" if is_unsure else how


class Lane(NamedTuple):
    """All that one owner (system 1: one run) did on one task.

    `ended` is "done", "failed" or "interrupted", of a durable run also "waiting", "rejected" or
    "cancelled"; None where the owner's last entry is none of these: the journal cannot say whether
    it was killed, taken over, or is still at work. In a durable run `owner` has the epoch of its
    lease, so that each advance is a lane; see `split_owner`.
    """

    task_id: str
    run_id: str | None
    owner: str
    first_seq: int
    first_at: float
    last_seq: int
    last_at: float
    recovered: int
    ended: str | None


def lanes(events: Iterable[Event]) -> list[Lane]:
    """One lane for each owner on each task, in the order of their first entries."""
    ends: dict[tuple[str, str], tuple[Event, Event]] = {}
    recovered: Counter[tuple[str, str]] = Counter()
    for event in events:
        if event.owner is not None:
            key = (event.task_id, event.owner)
            ends[key] = (ends[key][0] if key in ends else event, event)
            recovered[key] += event.kind == "step_recovered"
    return [
        Lane(
            task, first.run_id, owner, first.seq, first.ts, last.seq, last.ts,
            recovered[task, owner], _ending(last),
        )
        for (task, owner), (first, last) in ends.items()
    ]  # fmt: skip


def _ending(event: Event) -> str | None:
    if event.kind == "step_error":
        return "interrupted" if event.detail("interrupted") else None
    return _LANE_ENDS.get(event.kind)


_LANE_ENDS = {
    "task_done": "done", "task_failed": "failed", "run_waiting": "waiting",
    "task_rejected": "rejected", "task_cancelled": "cancelled",
}  # fmt: skip


def split_owner(owner: str) -> tuple[str, int | None]:
    """`worker-a#3` is worker-a under epoch 3. An owner of the restart agent has no epoch."""
    name, mark, epoch = owner.rpartition("#")
    # At most 18 digits, as in an INTEGER of SQLite: more were written by hand.
    if mark and epoch.isdecimal() and epoch.isascii() and len(epoch) < 19:
        return name, int(epoch)
    return owner, None

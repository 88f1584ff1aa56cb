"""The five promises of the restart agent, and that its tables equal the fold of the journal, judged
from the rows alone.

A verdict is *held*, *broken* with the rows that show it, or *not judged* with the reason. Each law
is one function from the evidence to the rows that break it; what cannot be judged never counts as
held. No pandas here: a check that judges a thousand trials starts a thousand processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from labkit.journal.fold import CLOSERS, Attempt, StepNow, TaskNow, fold, pair
from labkit.journal.reading import (
    Event,
    StepRow,
    TaskRow,
    read_events,
    read_steps,
    read_tasks,
    snapshot,
)
from labkit.journal.run_laws import judge_runs
from labkit.journal.run_rows import read_rows
from labkit.journal.verdicts import (
    BROKEN,
    HELD,
    NOT_JUDGED,
    Finding,
    Verdict,
    Witness,
    count,
    judge_effects,
    name_step,
    not_judged,
    verdict,
)

__all__ = [
    "BROKEN",
    "HELD",
    "NOT_JUDGED",
    "Evidence",
    "Finding",
    "Verdict",
    "Witness",
    "collect",
    "judge",
    "judge_file",
]

Rows = dict[tuple[str, int | None], StepRow]  # by task and index


class Evidence(NamedTuple):
    """The rows of the three tables, and what follows from the events alone."""

    events: list[Event]
    tasks: list[TaskRow]
    steps: list[StepRow]
    attempts: list[Attempt]
    strays: list[Event]
    now: dict[str, TaskNow]

    def plan(self, task_id: str) -> range:
        """The indexes of the task's steps, by its journal."""
        return range(len(self.now[task_id].steps))

    def is_open(self, task_id: str) -> bool:
        """True for a task that has not ended, by its journal."""
        task = self.now.get(task_id)
        return task is not None and task.status not in ("done", "failed")


def judge_file(
    path: str, witness: Witness | None = None, task: str | None = None
) -> tuple[Verdict, ...]:
    """The verdicts on a journal's file, from one snapshot: six, of a durable run ten.

    Raises what `snapshot` raises.
    """
    with snapshot(path) as reader:
        if reader.is_durable:
            return judge_runs(list(read_events(reader, task)), read_rows(reader, task), witness)
        rows = list(read_events(reader, task)), read_tasks(reader, task), read_steps(reader, task)
    return judge(collect(*rows), witness)


def judge(evidence: Evidence, witness: Witness | None = None) -> tuple[Verdict, ...]:
    """One verdict for each law, in the order 1 to 6.

    The witness is kept outside the system, by the effect itself: a file with one line for each
    effect, the effect's key as its first word; or the keys. A journal is never trusted about
    effects.
    """
    return (
        verdict(1, _state_is_preserved(evidence), f"{count(evidence.tasks, 'task')} in place"),
        verdict(2, _committed_steps_stay(evidence), "no step started again after it finished"),
        verdict(3, _recovery_is_explicit(evidence), "each run says what it moved back"),
        judge_effects(witness, [task.id for task in evidence.tasks]),
        _judge_balance(evidence),
        verdict(6, _tables_equal_fold(evidence), "tasks and steps are as the events say"),
    )


def collect(events: list[Event], tasks: list[TaskRow], steps: list[StepRow]) -> Evidence:
    """What the laws judge, from the rows of the three tables."""
    attempts, strays = pair(events)
    return Evidence(events, tasks, steps, attempts, strays, fold(events))


# 1 - State is preserved.


def _state_is_preserved(evidence: Evidence) -> Iterator[Finding]:
    rows: Rows = {(step.task_id, step.idx): step for step in evidence.steps}
    tasks = {task.id for task in evidence.tasks}
    for event in evidence.events:
        if event.kind == "task_created":
            yield from _whole_plan(event, tasks, rows)
        elif event.kind == "step_finished":
            row = rows.get((event.task_id, event.step_idx))
            if not row or not row.has_output:
                yield Finding(
                    f"{name_step(event)} finished, but its output is not in the table", (event.seq,)
                )


def _whole_plan(created: Event, tasks: set[str], rows: Rows) -> Iterator[Finding]:
    if created.task_id not in tasks:
        yield Finding(f"task {created.task_id} was created, but has no row", (created.seq,))
    for idx in range(created.detail("steps", int) or 0):
        if (created.task_id, idx) not in rows:
            yield Finding(f"step {idx} of task {created.task_id} has no row", (created.seq,))


# 2 - The task resumes.


def _committed_steps_stay(evidence: Evidence) -> Iterator[Finding]:
    finished: dict[tuple[str, int | None], Event] = {}
    for event in evidence.events:
        key = (event.task_id, event.step_idx)
        if event.kind == "step_finished":
            finished.setdefault(key, event)
        elif event.kind == "step_started" and key in finished:
            seqs = (finished[key].seq, event.seq)
            yield Finding(f"{name_step(event)} started again after it had finished", seqs)


# 3 - Recovery is explicit.


def _recovery_is_explicit(evidence: Evidence) -> Iterator[Finding]:
    """A run that begins has moved back every step in progress, by entries, and lists them."""
    running: dict[str, dict[int | None, Event]] = {}
    moved: dict[tuple[str, str | None], list[Event]] = {}
    for event in evidence.events:
        in_progress = running.setdefault(event.task_id, {})
        if event.kind == "step_started":
            in_progress[event.step_idx] = event
        elif event.kind == "step_recovered":
            moved.setdefault((event.task_id, event.run_id), []).append(event)
            if in_progress.pop(event.step_idx, None) is None:
                yield Finding(
                    f"{name_step(event)} was recovered, but was not running", (event.seq,)
                )
        elif event.kind in CLOSERS:
            in_progress.pop(event.step_idx, None)
        elif event.kind == "run_started":
            yield from _unsaid(event, moved.get((event.task_id, event.run_id), []), in_progress)


def _unsaid(
    begin: Event, moved: list[Event], in_progress: dict[int | None, Event]
) -> Iterator[Finding]:
    said, done = begin.detail("recovered", list) or [], [event.step_idx for event in moved]
    if sorted(map(str, said)) != sorted(map(str, done)):
        seqs = (*(event.seq for event in moved), begin.seq)
        yield Finding(f"run {begin.run_id} says it recovered {said}, its entries say {done}", seqs)
    for left in in_progress.values():
        seqs = (left.seq, begin.seq)
        yield Finding(f"run {begin.run_id} began while {name_step(left)} was left running", seqs)


# 5 - The journal balances.


def _judge_balance(evidence: Evidence) -> Verdict:
    findings = tuple(chain.from_iterable(rule(evidence) for rule in _BALANCE))
    in_progress = [a for a in evidence.attempts if a.ended is None and evidence.is_open(a.task_id)]
    if findings or not in_progress:
        return verdict(5, findings, "each step_started is closed once, each run has its entry")
    last = in_progress[-1]
    return not_judged(
        5,
        f"step {last.step_idx} of task {last.task_id} is open (seq {last.started_seq}): "
        "it is in progress, or the next run will recover it",
    )


def _unpaired(evidence: Evidence) -> Iterator[Finding]:
    last = {(a.task_id, a.step_idx): a for a in evidence.attempts}
    for a in evidence.attempts:
        in_progress = a is last[a.task_id, a.step_idx] and evidence.is_open(a.task_id)
        if a.ended is None and not in_progress:
            text = f"attempt {a.attempt} of step {a.step_idx} of task {a.task_id} was never closed"
            yield Finding(text, (a.started_seq,))
    for event in evidence.strays:
        yield Finding(f"{event.kind} of {name_step(event)} closes nothing", (event.seq,))


def _without_run(evidence: Evidence) -> Iterator[Finding]:
    """What a run moves back stands before its run_started, in the same transaction."""
    begun: dict[tuple[str, str | None], list[Event]] = {}
    for event in evidence.events:
        if event.kind == "run_started":
            begun.setdefault((event.task_id, event.run_id), []).append(event)
    for key, starts in begun.items():
        if len(starts) > 1:
            yield Finding(f"run {key[1]} began twice", tuple(event.seq for event in starts))
    for event in evidence.events:
        if event.run_id is None:
            continue
        starts = begun.get((event.task_id, event.run_id), [])
        early = event.kind in ("step_recovered", "task_retried")
        if not starts or (event.seq < starts[0].seq and not early):
            text = f"{event.kind} of run {event.run_id} without a run_started before it"
            yield Finding(text, (event.seq,))


def _unknown(evidence: Evidence) -> Iterator[Finding]:
    created: set[str] = set()
    for event in evidence.events:
        if event.kind == "task_created":
            created.add(event.task_id)
        elif event.task_id not in created:
            yield Finding(f"{event.kind} of task {event.task_id}, never created", (event.seq,))
        elif event.step_idx is not None and event.step_idx not in evidence.plan(event.task_id):
            yield Finding(f"{name_step(event)} is not in the plan", (event.seq,))


def _after_the_end(evidence: Evidence) -> Iterator[Finding]:
    """Two runners at once can end a task twice; only a retry goes on after a failure."""
    ends: dict[str, Event] = {}
    for event in evidence.events:
        end = ends.pop(event.task_id, None)
        if end and not (end.kind == "task_failed" and event.kind == "task_retried"):
            text = f"{event.kind} of task {event.task_id} after its {end.kind}"
            yield Finding(text, (end.seq, event.seq))
        elif event.kind == "task_retried" and not end:
            yield Finding(f"task {event.task_id} was retried, but had not failed", (event.seq,))
        if event.kind in ("task_done", "task_failed"):
            ends[event.task_id] = event


_BALANCE = (_unpaired, _without_run, _unknown, _after_the_end)


# 6 - The tables equal the fold of the journal.


def _tables_equal_fold(evidence: Evidence) -> Iterator[Finding]:
    tasks = {task.id: task for task in evidence.tasks}
    made_by_hand = [name for name in tasks if name not in evidence.now]
    yield from (Finding(f"task {name} has no task_created") for name in made_by_hand)
    for name, task in evidence.now.items():
        if name not in tasks:
            yield Finding(f"task {name} is not in the table")
        elif tasks[name].status != task.status:
            yield Finding(
                f"task {name} is {tasks[name].status} in its table, {task.status} by the journal"
            )
    for row in evidence.steps:
        yield from _step_differs(row, evidence.now.get(row.task_id))


def _step_differs(row: StepRow, task: TaskNow | None) -> Iterator[Finding]:
    where = f"step {row.idx} of task {row.task_id}"
    if task is None or row.idx not in range(len(task.steps)):
        yield Finding(f"{where} has a row, but the journal never made it")
        return
    now: StepNow = task.steps[row.idx]
    if (row.status, row.attempts) != (now.status, now.attempts):
        yield Finding(
            f"{where} is {row.status} after {row.attempts} attempts in its table, "
            f"{now.status} after {now.attempts} by the journal"
        )
    if now.step is not None and now.step != row.tool:
        yield Finding(f"{where} is {row.tool} in its table, {now.step} by the journal")

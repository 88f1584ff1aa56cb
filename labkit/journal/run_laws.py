"""The laws of the durable run, judged from rows alone: the six of the restart agent, and four more.

Each law is one function from the evidence to what breaks it. None of them asks the runtime or knows
its code: a runtime that writes in another order, repeats an effect or forgets a lease is caught by
what it has written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from labkit.journal.fold import CLOSERS, ENDS, Attempt, RunNow, RunStepNow, fold, pair, split_owner
from labkit.journal.reading import Event
from labkit.journal.run_rows import AttemptRow, RunRow, RunRows, RunStepRow
from labkit.journal.verdicts import (
    Finding,
    Verdict,
    Witness,
    count,
    judge_effects,
    name_step,
    not_judged,
    verdict,
)

__all__ = ["judge_runs"]

UNCERTAIN, DEFINITION = "UNCERTAIN_NON_IDEMPOTENT", "DEFINITION_UNAVAILABLE"
POLICY = "POLICY_RESOLUTION_REQUIRED"
ANSWERS = {  # what a run may wait for, and the resolutions that answer it
    UNCERTAIN: ("RETRY_STEP", "CONFIRM_STEP", "REJECT_STEP", "FAIL_RUN", "CANCEL_RUN"),
    DEFINITION: ("FAIL_RUN", "CANCEL_RUN"),
    POLICY: ("CONTINUE_RUN", "FAIL_RUN", "CANCEL_RUN"),
}
Side = dict[tuple[str, str | int], tuple[str | None, ...]]  # by run and what is in it
TERMINAL = ("SUCCEEDED", "REJECTED", "FAILED", "CANCELLED")


class Evidence(NamedTuple):
    """The rows, and what follows from the events alone; `by_run` has each run's events in order."""

    rows: RunRows
    by_run: dict[str, list[Event]]
    attempts: list[Attempt]
    strays: list[Event]
    now: dict[str, RunNow]
    closers: dict[int, Event]  # by the seq of the step_started


def judge_runs(
    events: list[Event], rows: RunRows, witness: Witness | None = None
) -> tuple[Verdict, ...]:
    """One verdict for each law, in the order 1 to 10. The witness as for the restart agent."""
    evidence = _collect(events, rows)
    return (
        verdict(1, _state_is_preserved(evidence), f"{count(rows.runs, 'run')} in place"),
        verdict(2, _each(_checkpoints_stay, evidence), "no step started again after it finished"),
        verdict(3, _each(_recovery_is_explicit, evidence), "no attempt was left open unsaid"),
        judge_effects(witness, [run.run_id for run in rows.runs]),
        _judge_balance(evidence),
        verdict(6, _tables_equal_fold(evidence), "the tables are as the events say"),
        verdict(7, _each(_only_the_holder_writes, evidence), "each entry is of the newest epoch"),
        verdict(8, _each(_one_cause, evidence), "each wait has its cause and its answer"),
        verdict(9, _each(_the_end_is_the_end, evidence), "no run went on after its end"),
        verdict(10, _each(_not_repeated, evidence), "each repeated call was safe, or answered for"),
    )


def _collect(events: list[Event], rows: RunRows) -> Evidence:
    by_run: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_run[event.task_id].append(event)
    attempts, strays = pair(events)
    by_seq = {event.seq: event for event in events}
    closers = {a.started_seq: by_seq[a.ended_seq] for a in attempts if a.ended_seq is not None}
    now = {name: run for name, run in fold(events).items() if isinstance(run, RunNow)}
    return Evidence(rows, by_run, attempts, strays, now, closers)


def _each(law: Callable[[list[Event]], Iterator[Finding]], evidence: Evidence) -> Iterator[Finding]:
    """A law that looks at one run at a time."""
    return chain.from_iterable(map(law, evidence.by_run.values()))


# 1 - State is preserved: a step has its checkpoint exactly when the journal says that it finished.


def _state_is_preserved(evidence: Evidence) -> Iterator[Finding]:
    rows = evidence.rows
    there = {run.run_id for run in rows.runs}
    steps = {(step.run_id, step.step_id): step for step in rows.steps}
    outputs = {(a.run_id, a.attempt_id) for a in rows.attempts if a.has_output}
    finished = {}
    for event in chain.from_iterable(evidence.by_run.values()):
        if event.kind == "task_created" and event.task_id not in there:
            yield Finding(f"run {event.task_id} was created, but has no row", (event.seq,))
        elif event.kind == "step_finished":
            finished[event.task_id, event.step] = event
    for key, event in finished.items():
        step = steps.get((event.task_id, event.step or ""))
        wanted = f"{event.step}#{event.attempt}"
        if step is None or step.checkpoint != wanted or (key[0], wanted) not in outputs:
            yield Finding(f"{name_step(event)} finished, but has no checkpoint", (event.seq,))
    for step in rows.steps:
        if step.checkpoint is not None and (step.run_id, step.step_id) not in finished:
            where = f"step {step.step_id} of run {step.run_id}"
            yield Finding(f"{where} has a checkpoint, but no step_finished")


# 2 - The task resumes.


def _checkpoints_stay(events: list[Event]) -> Iterator[Finding]:
    finished: dict[str | None, Event] = {}
    for event in events:
        if event.kind == "step_finished":
            finished.setdefault(event.step, event)
        elif event.kind == "step_started" and event.step in finished:
            seqs = (finished[event.step].seq, event.seq)
            yield Finding(f"{name_step(event)} started again after it had finished", seqs)


# 3 - Recovery is explicit: what one advance has begun, another ends by a step_recovered alone.


def _recovery_is_explicit(events: list[Event]) -> Iterator[Finding]:
    begun: Event | None = None
    for event in events:
        if begun and (event.kind == "step_started" or event.kind in ENDS):
            text = f"{event.kind} of run {event.task_id} while {name_step(begun)} was left open"
            yield Finding(text, (begun.seq, event.seq))
        if event.kind == "step_started":
            begun = event
        elif event.kind in CLOSERS:
            yield from _ended_by_another(begun, event)
            begun = None


def _ended_by_another(begun: Event | None, event: Event) -> Iterator[Finding]:
    if event.kind == "step_recovered":
        if begun is None:
            yield Finding(f"{name_step(event)} was recovered, but was not open", (event.seq,))
        if event.detail("classification", str) != "UNCERTAIN":
            yield Finding(f"{name_step(event)} was recovered as if it were certain", (event.seq,))
    elif begun and begun.owner != event.owner:
        text = f"{name_step(event)} was begun by {begun.owner} and ended by {event.owner}"
        yield Finding(text, (begun.seq, event.seq))


# 5 - The journal balances.


def _judge_balance(evidence: Evidence) -> Verdict:
    rules = (_unpaired(evidence), _each(_numbering, evidence), _each(_without_creation, evidence))
    findings = tuple(chain.from_iterable(rules))
    in_progress = [a for a in evidence.attempts if _is_in_progress(a, evidence)]
    if findings or not in_progress:
        return verdict(5, findings, "each step_started is closed once, attempts follow each other")
    last = in_progress[-1]
    return not_judged(
        5,
        f"step {last.step} of run {last.task_id} is open (seq {last.started_seq}): "
        "it is in progress, or the next advance will recover it",
    )


def _is_in_progress(attempt: Attempt, evidence: Evidence) -> bool:
    """The newest attempt of a run that the journal leaves RUNNING."""
    run = evidence.now.get(attempt.task_id)
    if attempt.ended is not None or run is None or run.status != "RUNNING":
        return False
    starts = (e.seq for e in reversed(evidence.by_run[attempt.task_id]) if e.kind == "step_started")
    return next(starts) == attempt.started_seq


def _unpaired(evidence: Evidence) -> Iterator[Finding]:
    for a in evidence.attempts:
        if a.ended is None and not _is_in_progress(a, evidence):
            text = f"attempt {a.attempt} of step {a.step} of run {a.task_id} was never closed"
            yield Finding(text, (a.started_seq,))
    for event in evidence.strays:
        yield Finding(f"{event.kind} of {name_step(event)} closes nothing", (event.seq,))


def _numbering(events: list[Event]) -> Iterator[Finding]:
    """Steps follow one another from 0, each under one id; so do the attempts of a step, from 1."""
    number: dict[str | None, int] = {}
    tried: dict[str | None, int] = defaultdict(int)
    for event in events:
        if event.kind != "step_started" and event.kind not in CLOSERS:
            continue
        if event.kind == "step_started":
            tried[event.step] += 1
        idx = number.setdefault(event.step, len(number))
        if (event.step_idx, event.attempt) != (idx, tried[event.step]):
            said = f"attempt {event.attempt} of step number {event.step_idx}"
            text = f"{event.kind} of {name_step(event)} is of {said}"
            yield Finding(f"{text}, not {tried[event.step]} of {idx}", (event.seq,))


def _without_creation(events: list[Event]) -> Iterator[Finding]:
    for event in events:
        if (event.kind == "task_created") != (event is events[0]):
            text = f"{event.kind} of run {event.task_id}: a run begins with its task_created"
            yield Finding(text, (event.seq,))


# 6 - The tables equal the fold of the journal.


def _tables_equal_fold(evidence: Evidence) -> Iterator[Finding]:
    rows = evidence.rows
    tables = {run.run_id: run for run in rows.runs}
    for name in sorted(tables.keys() ^ evidence.now.keys()):
        where = "is not in the table" if name in evidence.now else "has no task_created"
        yield Finding(f"run {name} {where}")
    for name in sorted(tables.keys() & evidence.now.keys()):
        yield from _run_differs(tables[name], evidence.now[name])
    yield from _steps_differ(rows.steps, evidence.now)
    yield from _attempts_differ(rows.attempts, evidence)
    yield from _resolutions_differ(evidence)


def _run_differs(row: RunRow, now: RunNow) -> Iterator[Finding]:
    said = {
        "status": (row.status, now.status),
        "waiting_reason": (row.waiting_reason, now.waiting_reason),
        "waiting_step_id": (row.waiting_step_id, now.waiting_step),
        "error_code": (row.error_code, now.error_code),
        "cancel_requested": (row.cancel_requested, now.cancel_requested),
        "lease_epoch": (row.lease_epoch, split_owner(now.owner or "")[1] or 0),
    }
    if row.lease_owner is not None:  # NULL also after an advance that gave its lease back
        owner = split_owner(now.owner or "")[0] if now.status == "RUNNING" else None
        said["lease_owner"] = row.lease_owner, owner
    for name, (in_table, by_journal) in said.items():
        if in_table != by_journal:
            text = f"{name} of run {row.run_id} is {in_table} in its table, {by_journal}"
            yield Finding(f"{text} by the journal")
    if not now.version - now.unsure <= row.version <= now.version:
        text = f"version of run {row.run_id} is {row.version} in its table, {now.version}"
        yield Finding(f"{text} by the journal")


def _steps_differ(steps: list[RunStepRow], now: dict[str, RunNow]) -> Iterator[Finding]:
    in_table: Side = {
        (s.run_id, s.idx): (s.step_id, s.type, s.name, s.effect, s.status, s.checkpoint)
        for s in steps
    }
    by_journal: Side = {
        (name, idx): (s.step, s.type, s.name, s.effect, s.status, _checkpoint(s))
        for name, run in now.items()
        for idx, s in enumerate(run.steps)
        if isinstance(s, RunStepNow)
    }
    yield from _differences("step", in_table, by_journal)


def _checkpoint(step: RunStepNow) -> str | None:
    return None if step.checkpoint is None else f"{step.step}#{step.checkpoint}"


def _attempts_differ(attempts: list[AttemptRow], evidence: Evidence) -> Iterator[Finding]:
    in_table: Side = {
        (a.run_id, f"{a.step_id}#{a.number}"): (a.status, a.classification, a.error_code)
        for a in attempts
    }
    by_journal: Side = {
        (a.task_id, f"{a.step}#{a.attempt}"): _outcome(evidence.closers.get(a.started_seq))
        for a in evidence.attempts
    }
    yield from _differences("attempt", in_table, by_journal)


def _outcome(closer: Event | None) -> tuple[str | None, ...]:
    if closer is None or closer.kind == "step_finished":
        return ("SUCCEEDED" if closer else "RUNNING", None, None)
    return ("FAILED", closer.detail("classification", str), closer.detail("code", str))


def _resolutions_differ(evidence: Evidence) -> Iterator[Finding]:
    in_table: Side = {}
    by_journal: Side = {}
    for row in evidence.rows.resolutions:
        key = (row.run_id, sum(run == row.run_id for run, _ in in_table))
        in_table[key] = (row.action, row.step_id, row.actor)
    for name, events in evidence.by_run.items():
        resolved = (event for event in events if event.kind == "run_resolved")
        for number, event in enumerate(resolved):
            answer = (event.detail("action", str), event.step, event.detail("actor", str))
            by_journal[name, number] = answer
    yield from _differences("resolution", in_table, by_journal)


def _differences(what: str, in_table: Side, by_journal: Side) -> Iterator[Finding]:
    for key in sorted(in_table.keys() | by_journal.keys(), key=str):
        if in_table.get(key) != by_journal.get(key):
            run, name = key
            sides = [
                "missing" if side is None else ", ".join(map(str, filter(None, side)))
                for side in (in_table.get(key), by_journal.get(key))
            ]
            text = f"{what} {name} of run {run} is {sides[0]} in its table, {sides[1]}"
            yield Finding(f"{text} by the journal")


# 7 - Only the holder of the lease writes.


def _only_the_holder_writes(events: list[Event]) -> Iterator[Finding]:
    epoch, holder, begun = 0, None, None
    for event in events:
        if event.kind == "run_started":
            now = split_owner(event.owner or "")[1]
            if now != epoch + 1 or event.detail("epoch", int) != now:
                text = f"run {event.task_id} began under {event.owner} after epoch {epoch}"
                yield Finding(text, (begun.seq, event.seq) if begun else (event.seq,))
            epoch, holder, begun = now or epoch, event.owner, event
        elif event.kind == "cancel_requested":
            continue  # the one write that needs no lease: anybody may ask
        elif event.owner is None:
            if event.kind != "task_created":
                yield Finding(f"{event.kind} of run {event.task_id} has no owner", (event.seq,))
        elif event.owner != holder:
            text = f"{event.kind} of run {event.task_id} was written by {event.owner}"
            who = f"while {holder} held the lease" if holder else "without a lease"
            yield Finding(f"{text} {who}", (begun.seq, event.seq) if begun else (event.seq,))
        elif event.kind in ENDS:
            holder = None


# 8 - A run waits for one cause, and goes on by what answers it.


def _one_cause(events: list[Event]) -> Iterator[Finding]:
    ends: dict[str | None, Event] = {}
    wait: Event | None = None
    for before, event in zip([None, *events], events, strict=False):
        if event.kind in CLOSERS:
            ends[event.step] = event
        if event.kind == "run_waiting":
            yield from _cause(event, ends.get(event.step))
            wait = event
        elif event.kind == "run_resolved":
            yield from _answer(event, wait if before and before.kind == "run_started" else None)
            wait = None
        elif wait and event.kind != "run_started":
            if wait.detail("reason", str) != DEFINITION and event.kind != "task_cancelled":
                text = f"run {event.task_id} went on with {event.kind} without an answer"
                yield Finding(text, (wait.seq, event.seq))
            wait = None


def _cause(wait: Event, end: Event | None) -> Iterator[Finding]:
    reason = wait.detail("reason", str)
    if reason not in ANSWERS:
        yield Finding(f"run {wait.task_id} waits for {reason or 'nothing'}", (wait.seq,))
    elif reason == UNCERTAIN:
        if end is None or end.detail("classification", str) != "UNCERTAIN":
            yield Finding(f"{name_step(wait)} is no uncertain one to wait for", (wait.seq,))
    elif reason == DEFINITION and wait.step is not None:
        yield Finding(f"run {wait.task_id} waits for its definition and a step", (wait.seq,))


def _answer(resolved: Event, wait: Event | None) -> Iterator[Finding]:
    action = resolved.detail("action", str)
    if wait is None:
        yield Finding(f"run {resolved.task_id} was resolved, but did not wait", (resolved.seq,))
        return
    allowed = ANSWERS.get(wait.detail("reason", str) or "", ())
    if action not in allowed or resolved.step != wait.step:
        text = f"{action} at {resolved.step} is no answer to what run {resolved.task_id} waits for"
        yield Finding(text, (wait.seq, resolved.seq))


# 9 - The end is the end.


def _the_end_is_the_end(events: list[Event]) -> Iterator[Finding]:
    end: Event | None = None
    asked: Event | None = None
    fails = False
    for event in events:
        if end:
            yield Finding(
                f"{event.kind} of run {event.task_id} after its {end.kind}", (end.seq, event.seq)
            )
        if event.kind == "cancel_requested":
            asked = event
        elif event.kind == "run_resolved":
            action = event.detail("action", str)
            asked = None if action == "RETRY_STEP" else asked
            fails = action == "FAIL_RUN"
        elif ENDS.get(event.kind) in TERMINAL:
            end = end or event
            obeys = event.kind == "task_cancelled" or (event.kind == "task_failed" and fails)
            if asked and not obeys:
                text = f"{event.kind} of run {event.task_id}, which was to be cancelled"
                yield Finding(text, (asked.seq, event.seq))


# 10 - What cannot be proved is not repeated.


def _not_repeated(events: list[Event]) -> Iterator[Finding]:
    """An attempt follows another one where nothing happened, where a call may be repeated by its
    frozen effect, or where the application has said so.
    """
    for start, closer, answer in _repeats(events):
        seqs = (closer.seq, start.seq) if closer else (start.seq,)
        if answer in ("RETRY_STEP", "CONFIRM_STEP", "REJECT_STEP"):
            continue
        if closer is None:
            yield Finding(f"{name_step(start)} was tried again while it was open", seqs)
        elif closer.kind == "step_recovered" and not _may_be_repeated(start):
            yield Finding(f"{name_step(start)} may have had its effect, and was tried again", seqs)
        elif closer.kind == "step_error" and closer.detail("classification", str) != "TRANSIENT":
            how = closer.detail("classification", str)
            yield Finding(f"{name_step(start)} was tried again after a failure that is {how}", seqs)


def _may_be_repeated(start: Event) -> bool:
    """A tool only by its effect: one that declares none may not."""
    is_tool = start.detail("type", str) not in ("CONTEXT", "MODEL")
    return not is_tool or start.detail("effect", str) in ("READ_ONLY", "IDEMPOTENT")


def _repeats(events: list[Event]) -> Iterator[tuple[Event, Event | None, str | None]]:
    """Each attempt after the first of its step, how the one before it ended, and the answer of the
    application that stands between the two.
    """
    closers: dict[str | None, Event | None] = {}
    answers: dict[str | None, str | None] = {}
    for event in events:
        if event.kind == "run_resolved":
            answers[event.step] = event.detail("action", str)
        elif event.kind in CLOSERS:
            closers[event.step] = event
        elif event.kind == "step_started":
            if event.step in closers:
                yield event, closers[event.step], answers.pop(event.step, None)
            closers[event.step] = None

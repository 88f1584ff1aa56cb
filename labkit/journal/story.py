"""A task's journal, or a durable run's, in plain sentences: each is one event, with its `seq`, or
says where an entry is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from labkit.journal.fold import Lane, lanes, split_owner
from labkit.journal.reading import (
    Event,
    plain,
    read_events,
    read_steps,
    snapshot,
    unknown_task,
)

__all__ = ["sentences", "tell"]


def tell(path: str, task: str) -> str:
    """A sentence on each line. Raises UnknownTask, and what `snapshot` raises."""
    with snapshot(path) as reader:
        events = list(read_events(reader, task))
        if not events:
            raise unknown_task(reader, task)
        steps = read_steps(reader, task)
    return "\n".join(sentences(events, {step.idx for step in steps if step.deduplicated}))


def sentences(events: list[Event], deduplicated: set[int]) -> Iterator[str]:
    """A line for each event of one task, and one where a run's entries stop without an end."""
    silent = {lane.last_seq: lane for lane in lanes(events) if lane.ended is None}
    answered = {(event.step, event.attempt) for event in events if _is_answer(event)}
    for event in events:
        if event.kind == "step_started" and (event.step, event.attempt) in answered:
            text = _answer_taken(event)
        else:
            text = _sentence(event, deduplicated)
        yield f"{event.seq:>4}  {text}"
        if lane := silent.get(event.seq):
            yield f"   -  {_silence(lane, is_last=event is events[-1])}"


def _sentence(event: Event, deduplicated: set[int]) -> str:
    if tell_one := (_RUN_TELLERS if event.is_durable else _TELLERS).get(event.kind):
        text = tell_one(event)
    else:
        text = f"{plain(event.kind)} was recorded."
    if event.kind == "step_finished" and event.step_idx in deduplicated:
        text += " Its effect was there already, from an earlier attempt: nothing was done twice."
    return text


def _silence(lane: Lane, *, is_last: bool) -> str:
    who = _who(lane.owner) if lane.run_id == lane.task_id else f"Run {plain(lane.owner)}"
    if is_last:  # a journal cannot tell a dead process from a slow one
        return f"{who} has left no entry since: it ended, or is still at work."
    return f"{who} left no further entry: it ended without one."


def _created(event: Event) -> str:
    count = event.detail("steps", int)
    return f"Task {plain(event.task_id)} was created with {count} step{'' if count == 1 else 's'}."


def _run_started(event: Event) -> str:
    recovered = event.detail("recovered", list)
    after = f", after it recovered {_list(recovered)}" if recovered else ""
    return f"Run {_run(event)} began{after}."


def _recovered(event: Event) -> str:
    return f"Run {_run(event)} found {_step(event)} in progress and moved it back to pending."


def _started(event: Event) -> str:
    return f"Run {_run(event)} began attempt {event.attempt} of {_step(event)}."


def _finished(event: Event) -> str:
    return f"{_step(event, 'S')} finished, and its output is stored."


def _error(event: Event) -> str:
    if event.detail("interrupted"):
        return f"{_step(event, 'S')} was interrupted by Ctrl-C and is pending again."
    hope = "no other attempt can help" if event.detail("permanent") else "it may be tried again"
    what = _line(event.detail("error"))
    return f"Attempt {event.attempt} of {_step(event)} failed: {what} ({hope})."


def _failed(event: Event) -> str:
    reason = {"max_attempts": "every attempt was used", "permanent": "its failure is permanent"}
    why = event.detail("reason")
    text = f"The task failed at {_step(event)}: {reason.get(why, _line(why))}."
    if event.detail("outcome") == "unknown":
        text += " The outcome of the last attempt is unknown, and its effect may exist."
    return text


def _retried(event: Event) -> str:
    return f"A retry moved {_step(event)} back to pending, with fresh attempts."


def _run(event: Event) -> str:
    return plain(event.run_id or "without an id")


def _step(event: Event, first: str = "s") -> str:
    name = f" ({plain(event.step)})" if event.step else ""
    return f"{first}tep {event.step_idx}{name}"


def _list(indexes: list[int]) -> str:
    return f"step{'' if len(indexes) == 1 else 's'} {plain(', '.join(map(str, indexes)))}"


def _line(value: object) -> str:
    """An error's text may be long and have line breaks; a sentence has neither."""
    return plain(" ".join(str(value).split()), 200)


_TELLERS: dict[str, Callable[[Event], str]] = {
    "task_created": _created,
    "run_started": _run_started,
    "step_recovered": _recovered,
    "step_started": _started,
    "step_finished": _finished,
    "step_error": _error,
    "task_done": lambda event: "The task is done.",
    "task_failed": _failed,
    "task_retried": _retried,
}


# Of a durable run, whose steps are named and whose advances have an owner and an epoch.


def _run_created(event: Event) -> str:
    version = plain(str(event.detail("version")))
    what = f"{plain(str(event.detail('definition')))} {version}"
    return f"Run {plain(event.task_id)} of {what} was created."


def _advance_started(event: Event) -> str:
    name, epoch = split_owner(event.owner or "")
    return f"{plain(name, 40)} took the lease, under epoch {epoch}."


def _attempt_started(event: Event) -> str:
    what = f"attempt {event.attempt} of {_tried(event)}"
    on_request = ", as the answer asked" if event.detail("authorised") else ""
    return f"{_who(event.owner)} began {what}{on_request}."


def _tried(event: Event) -> str:
    tool = f" ({plain(name)})" if (name := event.detail("name", str)) else ""
    return f"{_named(event)}{tool}"


def _is_answer(event: Event) -> bool:
    """Of an attempt that holds what the application answered: both its entries come at once."""
    return event.is_durable and event.kind == "step_finished" and bool(event.detail("action", str))


def _answer_taken(event: Event) -> str:
    return f"{_who(event.owner)} took the answer as attempt {event.attempt} of {_tried(event)}."


def _attempt_finished(event: Event) -> str:
    said = {"CONFIRM_STEP": "confirmed", "REJECT_STEP": "rejected"}
    if how := said.get(event.detail("action", str) or ""):
        return f"{_named(event, 'S')} was {how} by the application, without a call."
    return f"{_named(event, 'S')} finished, and its checkpoint is stored."


def _attempt_recovered(event: Event) -> str:
    return (
        f"{_who(event.owner)} found {_named(event)} cut off at attempt {event.attempt}: "
        "its outcome is unknown and its effect may exist."
    )


def _attempt_failed(event: Event) -> str:
    hope = {
        "TRANSIENT": "no effect happened, and it may be tried again",
        "PERMANENT": "no other attempt can help",
        "UNCERTAIN": "its outcome is unknown and its effect may exist",
    }.get(event.detail("classification", str) or "", "of no known class")
    code = _line(event.detail("code"))
    return f"Attempt {event.attempt} of {_named(event)} failed: {code} ({hope})."


def _waits(event: Event) -> str:
    reason = event.detail("reason", str)
    known = {
        "UNCERTAIN_NON_IDEMPOTENT": f"whether {_named(event)} had its effect, nobody can say",
        "DEFINITION_UNAVAILABLE": "its definition is not registered here",
        "POLICY_RESOLUTION_REQUIRED": "a policy holds it",
    }
    return f"The run waits ({_line(reason)}): {known.get(reason or '', 'see its cause')}."


def _resolved(event: Event) -> str:
    who = event.detail("actor", str)
    where = f" at {_named(event)}" if event.step else ""
    by = f" by {plain(who)}" if who else ""
    return f"The run was answered{by}{where}: {_line(event.detail('action'))}."


def _cancel_requested(event: Event) -> str:
    who = event.detail("actor", str)
    return f"A cancel was requested{f' by {plain(who)}' if who else ''}."


def _run_failed(event: Event) -> str:
    return f"The run failed: {_line(event.detail('code'))}."


def _who(owner: str | None) -> str:
    name, epoch = split_owner(owner or "nobody")
    return plain(name, 40) if epoch is None else f"{plain(name, 40)}, epoch {epoch},"


def _named(event: Event, first: str = "s") -> str:
    return f"{first}tep {plain(event.step or 'without a name')}"


_RUN_TELLERS: dict[str, Callable[[Event], str]] = {
    "task_created": _run_created,
    "run_started": _advance_started,
    "step_started": _attempt_started,
    "step_finished": _attempt_finished,
    "step_recovered": _attempt_recovered,
    "step_error": _attempt_failed,
    "run_waiting": _waits,
    "run_resolved": _resolved,
    "cancel_requested": _cancel_requested,
    "task_done": lambda event: "The run succeeded.",
    "task_failed": _run_failed,
    "task_rejected": lambda event: "The run was rejected.",
    "task_cancelled": lambda event: "The run was cancelled.",
}

"""A task's journal in plain sentences: each is one event, with its `seq`, or says where an entry is
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from labkit.journal.fold import Lane, lanes
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
    for event in events:
        yield f"{event.seq:>4}  {_sentence(event, deduplicated)}"
        if lane := silent.get(event.seq):
            yield f"   -  {_silence(lane, is_last=event is events[-1])}"


def _sentence(event: Event, deduplicated: set[int]) -> str:
    if tell_one := _TELLERS.get(event.kind):
        text = tell_one(event)
    else:
        text = f"{plain(event.kind)} was recorded."
    if event.kind == "step_finished" and event.step_idx in deduplicated:
        text += " Its effect was there already, from an earlier attempt: nothing was done twice."
    return text


def _silence(lane: Lane, *, is_last: bool) -> str:
    if is_last:  # a journal cannot tell a dead process from a slow one
        return f"Run {plain(lane.owner)} has left no entry since: it ended, or is still at work."
    return f"Run {plain(lane.owner)} left no further entry: it ended without one."


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

"""The story: every kind of event as a sentence, and where an entry is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.errors import UnknownTask
from labkit.journal import Journal
from labkit.journal.reading import Event
from labkit.journal.story import sentences

STORY = """\
   1  Task demo was created with 3 steps.
   2  Run 00000001 began.
   3  Run 00000001 began attempt 1 of step 0 (fetch).
   4  Step 0 (fetch) finished, and its output is stored.
   5  Run 00000001 began attempt 1 of step 1 (summarize).
   -  Run 00000001 left no further entry: it ended without one.
   6  Run 00000002 found step 1 (summarize) in progress and moved it back to pending.
   7  Run 00000002 began, after it recovered step 1.
   8  Run 00000002 began attempt 2 of step 1 (summarize).
   9  Step 1 (summarize) finished, and its output is stored.
  10  Run 00000002 began attempt 1 of step 2 (write_artifact).
   -  Run 00000002 left no further entry: it ended without one.
  11  Run 00000003 found step 2 (write_artifact) in progress and moved it back to pending.
  12  Run 00000003 began, after it recovered step 2.
  13  Run 00000003 began attempt 2 of step 2 (write_artifact).
  14  Step 2 (write_artifact) finished, and its output is stored. \
Its effect was there already, from an earlier attempt: nothing was done twice.
  15  The task is done."""


def tell(kind: str, data: str = "{}", **more: object) -> str:
    row = (7, 0.0, "t", "0000000a", "0000000a", kind, 1, "fetch", 2, data)
    event = Event(*row)._replace(**more)  # type: ignore[arg-type]
    return next(iter(sentences([event], set()))).removeprefix("   7  ")


def test_the_story_of_two_kills(killed_twice: Path) -> None:
    assert Journal(killed_twice).story("demo") == STORY


def test_a_last_run_may_be_at_work(left_open: Path) -> None:
    last = Journal(left_open).story("demo").splitlines()[-1]
    assert last == "   -  Run 00000001 has left no entry since: it ended, or is still at work."


@pytest.mark.parametrize(
    ("kind", "data", "sentence"),
    [
        ("task_created", '{"steps": 1}', "Task t was created with 1 step."),
        ("run_started", '{"recovered": [0, 2]}',
         "Run 0000000a began, after it recovered steps 0, 2."),
        ("step_error", '{"error": "no\\n\\tnet"}',
         "Attempt 2 of step 1 (fetch) failed: no net (it may be tried again)."),
        ("step_error", '{"error": "bad", "permanent": true}',
         "Attempt 2 of step 1 (fetch) failed: bad (no other attempt can help)."),
        ("step_error", '{"error": "", "interrupted": true}',
         "Step 1 (fetch) was interrupted by Ctrl-C and is pending again."),
        ("task_failed", '{"reason": "max_attempts", "outcome": "unknown"}',
         "The task failed at step 1 (fetch): every attempt was used. "
         "The outcome of the last attempt is unknown, and its effect may exist."),
        ("task_failed", '{"reason": "permanent", "outcome": "failed"}',
         "The task failed at step 1 (fetch): its failure is permanent."),
        ("task_retried", "{}",
         "A retry moved step 1 (fetch) back to pending, with fresh attempts."),
        ("run_waiting", "{}", "run_waiting was recorded."),
    ],
)  # fmt: skip
def test_each_kind_is_a_sentence(kind: str, data: str, sentence: str) -> None:
    assert tell(kind, data) == sentence


def test_an_error_cannot_speak_to_the_terminal() -> None:
    assert "\\x1b[31m" in tell("step_error", '{"error": "\\u001b[31mred"}')
    assert "\x1b" not in tell("step_started", step="\x1b[2J")
    assert len(tell("step_error", '{"error": "' + "x" * 5000 + '"}')) < 300


def test_an_unknown_task(killed_twice: Path) -> None:
    with pytest.raises(UnknownTask, match="no task 'nope'"):
        Journal(killed_twice).story("nope")

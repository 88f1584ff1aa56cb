"""The fold, attempts and lanes over journals that a right agent could have written."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.journal.fold import fold, lanes, pair
from labkit.journal.laws import BROKEN, HELD, NOT_JUDGED, Evidence, collect, judge
from tests.journal.histories import History

histories = st.builds(History, st.integers(0, 10**9), st.integers(1, 4))


def evidence_of(history: History, *, without: int | None = None) -> Evidence:
    events = [event for event in history.events if event.seq != without]
    return collect(events, *history.tables)


@given(histories)
def test_the_fold_gives_the_tables(history: History) -> None:
    task = fold(history.events)["t"]
    assert task.status == history.status
    assert [(s.status, s.attempts) for s in task.steps] == [(s[0], s[1]) for s in history.steps]


@given(histories)
def test_each_attempt_is_one_step_started(history: History) -> None:
    attempts, strays = pair(history.events)
    starts = [event.seq for event in history.events if event.kind == "step_started"]
    assert [attempt.started_seq for attempt in attempts] == starts
    assert strays == []
    assert sum(attempt.ended is None for attempt in attempts) == sum(
        step[0] == "running" for step in history.steps
    )


@given(histories)
def test_a_lane_is_a_run(history: History) -> None:
    found = lanes(history.events)
    assert [lane.owner for lane in found] == [f"{n + 1:08x}" for n in range(history.runs)]
    assert sum(lane.recovered for lane in found) == sum(
        event.kind == "step_recovered" for event in history.events
    )


@given(histories)
def test_no_law_is_broken_by_a_right_agent(history: History) -> None:
    verdicts = {verdict.law: verdict for verdict in judge(evidence_of(history), ["t-0"])}
    is_open = any(step[0] == "running" for step in history.steps)
    expected = dict.fromkeys(range(1, 7), HELD) | ({5: NOT_JUDGED} if is_open else {})
    assert {law: verdict.verdict for law, verdict in verdicts.items()} == expected


@settings(max_examples=60)
@given(histories)
def test_no_event_can_be_taken_out_unseen(history: History) -> None:
    """Except the only entry of a run that was killed at once: nothing else tells of that run."""
    entries = Counter(event.run_id for event in history.events)
    for event in history.events:
        if event.kind != "run_started" or entries[event.run_id] > 1:
            verdicts = judge(evidence_of(history, without=event.seq))
            assert BROKEN in {verdict.verdict for verdict in verdicts}, event

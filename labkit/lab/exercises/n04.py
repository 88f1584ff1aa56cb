"""Step timelines: find where each run ended, and draw bars that equal those of the timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from labkit.errors import UsageError
from labkit.journal import Journal, timeline
from labkit.journal.fold import Attempt, pair
from labkit.journal.reading import Event
from labkit.lab.checks import Desk, Judgement, ask, broken, held, not_judged
from labkit.lab.folder import FIRST_START, RUN_IDS, Folder
from labkit.lab.sweeps import FETCH, give_plan

__all__ = ["ex1", "ex2"]

COLUMNS = ("run_id", "step_idx", "attempt", "begin_seq", "end_seq")
# Of exercise 1: three steps to be killed in, and one that can only fail.
STEPS = [
    FETCH,
    {"tool": "summarize", "input": {"from": 0}},
    {"tool": "write_artifact", "input": {"from": 1}},
    {"tool": "fetch", "input": {"path": "input/missing.txt"}},
]
SET_BACK_S = 3  # less than a run takes, so that by time the rows of two runs are mixed


class ClockSetBack(Folder):
    """Each process has an id of its own, and a clock that is behind that of the one before."""

    def _environ(self) -> dict[str, str]:
        number = len(self.processes)
        clock = FIRST_START - SET_BACK_S * number
        ids = ",".join([RUN_IDS[number - 2]] * 6)  # for whichever run of its task; two creates
        return {**super()._environ(), "LABKIT_CLOCK": str(clock), "LABKIT_RUN_IDS": ids}


def ex1(ended_in: Any, desk: Desk) -> Judgement:
    """`ended_in` must find the step that each of three killed runs left open, and a failed one."""
    rule = "A run ended inside a step if it began an attempt and never wrote how that ended."
    folder = desk.fresh()
    give_plan(folder, STEPS)
    _do(folder, "agent create notes plan.json")
    for crash_at in ("before_effect:0", "after_commit:1", "after_effect:2"):
        _do(folder, "agent run notes", crash_at)
    _do(folder, "agent run notes", code=2)
    journal = Journal(folder.database)
    events = journal.read()
    said = _as_dict(ask(ended_in, journal))
    if said is None:
        return not_judged("Return a dict: for each run_id the idx of a step, or None.", rule)
    for run, step in _left_open(events).items():
        if said.get(run, "nothing") != step:
            return _wrong_end(run, step, said, events, rule)
    if unknown := sorted(map(str, said.keys() - {event.run_id for event in events})):
        return broken(f"Your answer has {unknown[0]!r} among its runs; no run has that id.", rule)
    seen = "Three runs killed in other places and one that failed, each where it ended."
    return held(seen, rule)


def ex2(bars: Any, desk: Desk) -> Judgement:
    """`bars` must find the bars of two tasks in one journal, killed, failed and still open."""
    folder = ClockSetBack(desk.fresh().path)
    _do(folder, "agent create notes plan.json")
    give_plan(folder, [{**FETCH, "input": {"path": "input/missing.txt"}}])
    _do(folder, "agent create second plan.json")
    _do(folder, "agent run notes", "after_effect:1")
    _do(folder, "agent run second", code=2)
    _do(folder, "agent run notes", "before_effect:1")
    _do(folder, "agent run notes", "after_effect:2")
    journal = Journal(folder.database)
    found = []
    for task in ("notes", "second"):
        answer = _as_frame(ask(bars, journal, task))
        if isinstance(answer, Judgement):
            return answer
        shown = _Bars(journal, task)
        if fault := next(shown.faults(answer), None):
            return fault
        found.append(f"{task}: {len(shown.wanted)} in {_lanes(shown.lanes)}")
    return held(f"Your bars are those of the picture ({'; '.join(found)}).", _Bars.rule)


class _Bars:
    """What the picture of one task shows, and what differs from it in an answer."""

    rule = "One bar for each step_started, one lane for each run_id, ends from its own run."

    def __init__(self, journal: Journal, task: str) -> None:
        self.task = task
        self.events = {event.seq: event for event in journal.read()}
        drawn = timeline(journal, task)
        self.lanes = len(drawn.chart.lanes)
        table = drawn.table[drawn.table.what == "attempt"].rename(columns={"owner": "run_id"})
        self.wanted = {row.begin_seq: row for row in table[list(COLUMNS)].itertuples()}

    def faults(self, answer: pd.DataFrame) -> Iterator[Judgement]:
        """What a learner should hear first comes first."""
        for seq in answer.begin_seq:
            if seq not in self.wanted:
                yield self._broken(self._no_bar(seq), seq)
        for seq in answer.begin_seq[answer.begin_seq.duplicated()]:
            reason = f"The bar that begins at seq {seq} is there more than once. A step may be"
            yield self._broken(f"{reason} tried again: compare the attempt and the run too.", seq)
        for seq in self.wanted:
            if seq not in set(answer.begin_seq):
                yield self._broken(self._missing(seq), seq)
        for row in answer.itertuples():
            yield from self._differences(row)

    def _no_bar(self, seq: int) -> str:
        event = self.events.get(seq)
        if event is None:
            return f"A bar begins at seq {seq}; the journal has no such row."
        if event.task_id != self.task:
            return f"Asked for task {self.task}, you give a bar of task {event.task_id}."
        return f"A bar begins at seq {seq}, a {event.kind}; it should begin at a step_started."

    def _missing(self, seq: int) -> str:
        wanted = self.wanted[seq]
        reason = f"In the picture of task {self.task} a bar begins at seq {seq}, in yours none. "
        if wanted.end_seq == seq:
            return f"{reason}An attempt without an end of its own has a bar, too."
        return f"{reason}Its end is seq {wanted.end_seq}, a {self.events[wanted.end_seq].kind}."

    def _differences(self, row: Any) -> Iterator[Judgement]:
        seq, wanted = row.begin_seq, self.wanted[row.begin_seq]
        for name in COLUMNS[:3]:
            mine, its = getattr(row, name), getattr(wanted, name)
            if pd.isna(mine) or mine != its:
                reason = f"The bar that begins at seq {seq} has {name} {mine}; its row says {its}."
                yield self._broken(reason, seq)
        end = seq if pd.isna(row.end_seq) else row.end_seq  # no end: no length, as in the picture
        if end != wanted.end_seq:
            yield self._broken(self._other_end(wanted, end), seq, end, wanted.end_seq)

    def _other_end(self, wanted: Any, end: int) -> str:
        where, event = f"The bar that begins at seq {wanted.begin_seq}", self.events.get(end)
        if end == wanted.begin_seq:
            return f"{where} has no end; its run says at seq {wanted.end_seq} how it ended."
        if event is None:
            return f"{where} ends at seq {end}; the journal has no such row."
        if event.run_id != wanted.run_id and event.kind == "step_recovered":
            return (
                f"{where} ends at seq {end}, which run {event.run_id} wrote: there the end was "
                f"found. When run {wanted.run_id} ended nobody knows: leave end_seq missing."
            )
        if end < wanted.begin_seq:
            return f"{where} ends before, at seq {end}. Order is seq: a clock may be set back."
        return f"{where} ends at seq {end}, a {event.kind}; that is no end of this attempt."

    def _broken(self, reason: str, *seqs: int) -> Judgement:
        rows = [_line(self.events[seq]) for seq in sorted({*seqs}) if seq in self.events]
        return broken(reason, self.rule, rows)


def _do(folder: Folder, command: str, crash_at: str = "", code: int = 0) -> None:
    """Runs a command to its end. Raises UsageError where that is not the end that was meant."""
    result = folder.start(command, {"AGENT_CRASH_AT": crash_at} if crash_at else {}).finish()
    if not (result.killed if crash_at else result.code == code):
        raise UsageError(f"{result.typed} ended otherwise ({result!r})")


def _left_open(events: list[Event]) -> dict[str, int | None]:
    """For each run the step whose attempt it began and never closed."""
    left: dict[str, int | None] = {event.run_id: None for event in events if event.run_id}
    attempts: list[Attempt] = pair(events)[0]
    return left | {a.run_id: a.step_idx for a in attempts if a.run_id and a.ended_by != a.owner}


def _as_dict(answer: Any) -> dict[Any, Any] | None:
    if not isinstance(answer, Mapping | pd.Series):
        return None
    return {
        run: None if pd.isna(step) else step for run, step in answer.items() if not pd.isna(run)
    }


def _wrong_end(
    run: str, step: int | None, said: dict[Any, Any], events: list[Event], rule: str
) -> Judgement:
    last = [event for event in events if event.run_id == run][-1]
    mine = f"{said.get(run)!r:.60}" if isinstance(said.get(run), str) else f"{said.get(run)!s:.60}"
    if run not in said:
        reason = f"Run {run} is not in your answer; each run has its place there."
    elif step is None:
        reason = f"Run {run} did not end in step {mine}. Its last row is a {last.kind}."
        if last.kind == "task_failed":
            reason += " Each attempt of the step has its end, a step_error."
    else:
        reason = (
            f"Run {run} left step {step} open, and you say {mine}. Whichever run closed the "
            f"step later, the last row of run {run} is a step_started."
        )
    later = [e for e in events if e.kind == "step_recovered" and e.seq == last.seq + 1]
    return broken(reason, rule, [_line(event) for event in (last, *later)])


def _as_frame(answer: Any) -> pd.DataFrame | Judgement:
    """The five columns as whole numbers and text, or why the answer cannot be read."""
    if not isinstance(answer, pd.DataFrame):
        return not_judged(f"Return a DataFrame; this is a {type(answer).__name__}.", _Bars.rule)
    levels = [name for name in answer.index.names if name in COLUMNS]  # after a groupby
    answer = answer.reset_index([name for name in levels if name not in answer.columns])
    if lacking := [name for name in COLUMNS if name not in answer.columns]:
        return not_judged(f"Your table lacks the columns {', '.join(lacking)}.", _Bars.rule)
    frame = answer[list(COLUMNS)].reset_index(drop=True)
    try:
        frame = frame.astype(dict.fromkeys(COLUMNS[1:], "Int64"))
    except (TypeError, ValueError):
        text = f"{', '.join(COLUMNS[1:])} hold whole numbers; yours hold something else."
        return not_judged(text, _Bars.rule)
    if frame.begin_seq.isna().any():
        return not_judged("A bar without begin_seq cannot be drawn.", _Bars.rule)
    return frame


def _lanes(number: int) -> str:
    return f"{number} lane{'' if number == 1 else 's'}"


def _line(event: Event) -> str:
    step = "" if event.step_idx is None else f"  step {event.step_idx}  attempt {event.attempt}"
    return f"seq {event.seq}  {event.kind}  run {event.run_id}{step}"

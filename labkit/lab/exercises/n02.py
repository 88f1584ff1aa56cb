"""The same crash with a journal: a step of the learner's own, and what a second run has to do."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, NamedTuple

from labkit.errors import ensure
from labkit.lab.checks import Desk, Judgement, ask, broken, held, not_judged
from labkit.lab.evidence import journal
from labkit.lab.folder import RUN_IDS
from labkit.lab.handing import source_of
from labkit.lab.process import NotReady
from labkit.lab.sweeps import (
    FETCH,
    ending,
    give_plan,
    is_sound,
    raised,
    side_by_side,
    step_rows,
    try_tool,
)
from labkit.lab.trials import TASK, Trial

__all__ = ["ex1", "ex2"]

OTHER_NOTES = (
    "Nobody saw the notes of this trial before:\n\na number learnt by heart is no count.\n"
)


def ex1(count_words: Any, desk: Desk) -> Judgement:
    """`count_words` is step 1; it is killed after its call, and run again; with two notes."""
    rule = "A step whose output was not committed is run again, and stores one output (promise 2)."
    source_of(count_words)
    steps = [FETCH, {"tool": count_words.__name__, "input": {}}]
    trial = partial(try_tool, desk, count_words, steps, "after_effect:1")
    usual, other = side_by_side([trial, partial(trial, notes=OTHER_NOTES)])
    for made, which in (
        (usual, "these notes have"),
        (other, "other notes, of the check's own, have"),
    ):
        if wrong := _miscounted(made, which):
            return broken(wrong, rule, step_rows(made, 1))
    reason = "It was killed after its call, called again, and its output is stored once."
    return held(reason, rule, step_rows(usual, 1))


def _miscounted(trial: Trial, which: str) -> str:
    """What is wrong with the output of step 1, in words; "" for the right one."""
    if not is_sound(trial):
        return raised(trial) or f"The second run: {ending(trial)}"
    found = json.loads(trial.journal.steps().output[1])
    if found is None:
        return "Stored is None: your function returns nothing. A print is no output of a step."
    notes = (trial.folder.path / "input" / "notes.txt").read_text(encoding="utf-8")
    wanted = {"words": len(notes.split())}
    if found == wanted and type(found["words"]) is int:
        return ""
    return f"Stored is {found!s:.200}; {which} {wanted['words']} words, so it must be {wanted}."


STEPS = [
    FETCH,
    {"tool": "summarize", "input": {"from": 0}},
    {"tool": "write_artifact", "input": {"from": 1}},
    {"tool": "fetch", "input": {"path": "plan.json"}},
]
NEW = {"idx": 0, "tool": "fetch", "status": "pending", "attempts": 0}
PLACES = ("before_effect:1", "after_effect:2", "after_commit:1", "after_commit:3")
WHY = {
    "done": "step {} is done, its output is committed, and it is never run again",
    "running": "step {} is running though nothing runs: nobody can know how it ended",
    "pending": "step {} is pending, and no other run will do it",
}


class Killed(NamedTuple):
    """An agent that was killed and run again: the table between, and what the second run did."""

    place: str
    table: list[dict[str, Any]]
    started: list[int]
    rows: list[str]


def ex2(to_do: Any, desk: Desk) -> Judgement:
    """`to_do` reads tables of agents that were really killed; their second run is the answer."""
    rule = "A second run starts each step that is not done, in order, and no other (promise 2)."
    if wrong := _unreadable(ask(to_do, [dict(NEW)])):  # such an answer costs no kill
        return not_judged(wrong, rule)
    agents = side_by_side([partial(_kill, desk, place) for place in PLACES])
    for agent in agents:
        answer = ask(to_do, [dict(row) for row in agent.table])
        if wrong := _unreadable(answer):
            return not_judged(wrong, rule)
        if list(answer) != agent.started:
            return broken(_difference(list(answer), agent), rule, agent.rows)
    reason = f"It says what {len(agents)} agents did, each killed at another place and run again."
    return held(reason, rule, agents[0].rows)


def _unreadable(answer: Any) -> str:
    """Why this cannot be compared; "" for a list of indexes."""
    if isinstance(answer, list | tuple | range) and all(type(n) is int for n in answer):
        return ""
    return f"Your function gives {answer!r:.80}; give a list of indexes, as in [1, 2]."


def _kill(desk: Desk, place: str) -> Killed:
    folder = desk.fresh(place.replace(":", "-"))
    give_plan(folder, STEPS)
    folder.start(f"agent create {TASK} plan.json", {}).finish()
    first = folder.start(f"agent run {TASK}", {"AGENT_CRASH_AT": place}).finish()
    ensure(first.killed, NotReady(f"the agent was not killed at {place}: {first!r}"))
    found = journal(folder).sql("SELECT idx, tool, status, attempts FROM steps ORDER BY idx")
    folder.start(f"agent run {TASK}", {}).finish()
    query = "SELECT seq, step_idx FROM journal WHERE kind = 'step_started' AND run_id = ?"
    starts = journal(folder).sql(query, [RUN_IDS[1]])
    table = [dict(zip(NEW, row, strict=True)) for row in found.astype(object).to_numpy().tolist()]
    return Killed(place, table, [int(idx) for idx in starts.step_idx], _rows(table, starts))


def _rows(table: list[dict[str, Any]], starts: Any) -> list[str]:
    """The table that the first run left, then the events of the second."""
    left = [f"step {r['idx']}  {r['tool']:14}  {r['status']}" for r in table]
    events = [f"seq {r.seq}  step_started of step {r.step_idx}" for r in starts.itertuples()]
    return [*left, *(f"{event}  run {RUN_IDS[1]}" for event in events)]


def _difference(answer: list[int], agent: Killed) -> str:
    """Which step the answer has too many or too few, and why."""
    said = (
        f"Killed at {agent.place}. You say {answer!s:.60}; the second run started {agent.started}"
    )
    status = {row["idx"]: row["status"] for row in agent.table}
    for idx in sorted(set(answer) ^ set(agent.started)):
        why = WHY[status[idx]] if idx in status else "this plan has no step {}"
        return f"{said}: {why.format(idx)}."
    return f"{said}: each once, in the order of the plan."

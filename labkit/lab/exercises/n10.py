"""The durable run: which steps a process found done, and a tool whose replay does no harm."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from labkit.durable import PlaintextPayloadCodec
from labkit.errors import BadInput, LabkitError
from labkit.journal import Journal
from labkit.journal.bounded import LARGEST_LIST, read_text
from labkit.journal.reading import Event
from labkit.lab.checks import Desk, Judgement, ask, broken, held, not_judged
from labkit.lab.folder import Folder
from labkit.lab.handing import TOOLS_FILE, hand_over
from labkit.lab.runs import Trials
from labkit.lab.scenarios.dispatch import TICKETS
from labkit.lab.sweeps import side_by_side
from labkit.lab.tables import Row, list_columns, list_rows, say

__all__ = ["ex1", "ex2"]

# Exercise 1: the steps that the last process of each run found done, in two journals.

FOUND = "A step with a checkpoint is not run again: who comes later finds it done."
COLUMNS = ("run_id", "step")
ROWS_MAX = 8


class Start(NamedTuple):
    """One process: `run` goes on, under this owner, until it dies before that place."""

    run: str
    definition: str
    owner: str
    dies_before: str = ""


SHOWN = (
    Start("pump", "dispatch", "ann", "the result of model-2 is stored"),
    Start("pump", "dispatch", "bob"),
    Start("note", "notice", "ann"),
)
HIDDEN = (
    Start("leak", "notice", "bob", "the attempt of model-1.tool-1 is stored"),
    Start("fire", "dispatch", "eve", "the result of context is stored"),
    Start("fire", "dispatch", "eve", "the attempt of model-1.tool-2 is stored"),
    Start("fire", "dispatch", "eve"),
    Start("leak", "notice", "ann"),
)


def ex1(query: Any, desk: Desk) -> Judgement:
    """`query` lists the steps that the last process of their run found done."""
    if not isinstance(query, str):
        kind = type(query).__name__
        return not_judged(f"This is a {kind}. Give the text of the query, not what it returns.")
    with Trials() as trials:
        made = [partial(_journal, desk, trials, starts) for starts in (SHOWN, HIDDEN)]
        journals = side_by_side(made)
    counts = []
    for journal, where in zip(
        journals, ("", "It is right on one journal. On another: "), strict=True
    ):
        table = ask(_asker(query), journal)
        if isinstance(table, Judgement):
            return table
        events = journal.read()
        wanted = _found_done(events)
        if wrong := _compare(list_rows(table, COLUMNS), wanted, events, where):
            return wrong
        counts.append(len(wanted))
    rows = "{} rows of one journal and {} of another, all of them right.".format(*counts)
    return held(rows, FOUND)


def _journal(desk: Desk, trials: Trials, starts: Sequence[Start]) -> Journal:
    folder = desk.fresh("shown" if starts is SHOWN else "hidden")
    for nth, start in enumerate(starts):
        dies = {"AGENT_DIE_BEFORE": start.dies_before} if start.dies_before else {}
        words, agent = ("go", start.run, start.definition), {"AGENT_OWNER": start.owner, **dies}
        code, said = trials.call(folder.path, nth, *words, **agent)
        if code != (-signal.SIGKILL if dies else 0):
            raise LabkitError(f"process {nth + 1} did what it must not: exit {code}, {said}")
    return Journal(folder.database)


def _asker(query: str) -> Callable[[Journal], pd.DataFrame | Judgement]:
    def give(journal: Journal) -> pd.DataFrame | Judgement:
        try:
            table = journal.sql(query)
        except BadInput as error:
            return not_judged(f"{error}.", FOUND)
        names = list_columns(table)
        if any(names.count(name) != 1 for name in COLUMNS):
            given, asked = ", ".join(names) or "none", ", ".join(COLUMNS)
            return not_judged(f"Its columns are {given}; asked are {asked}.", FOUND)
        return table

    return give


def _found_done(events: Sequence[Event]) -> dict[Row, Event]:
    """Each step that had finished when its run was taken up for the last time."""
    taken = {event.run_id: event.seq for event in events if event.kind == "run_started"}
    return {
        (event.run_id, event.step): event
        for event in events
        if event.kind == "step_finished" and event.seq < taken[event.run_id]
    }


def _compare(
    given: list[Row], wanted: Mapping[Row, Event], events: Sequence[Event], where: str
) -> Judgement | None:
    for row, times in Counter(given).items():
        shown = say(COLUMNS, row)
        about = [e for e in events if (e.run_id, e.step) == row or _takes(e, row[0])]
        if row not in wanted:
            words = f"This row does not belong: {shown}. {_why_not(events, row)}"
            return broken(where + words, FOUND, _lines(about))
        if times > 1:
            return broken(f"{where}This row stands {times} times: {shown}.", FOUND, _lines(about))
    for row, event in wanted.items():
        if row not in given:
            about = [e for e in events if e is event or _takes(e, row[0])]
            words = f"This row is missing: {say(COLUMNS, row)}. Its checkpoint was there when "
            words += "the last process took the run."
            return broken(where + words, FOUND, _lines(about))
    return None


def _why_not(events: Sequence[Event], row: Row) -> str:
    finished = [e for e in events if (e.run_id, e.step, e.kind) == (*row, "step_finished")]
    if not finished:
        return "No step of that name has finished in that run."
    takers = [e for e in events if _takes(e, row[0])]
    if len(takers) == 1:
        return "Only one process has ever had this run, so nobody came later."
    return f"The last process, {takers[-1].owner}, did this step itself."


def _takes(event: Event, run: object) -> bool:
    return event.kind == "run_started" and event.run_id == run


def _lines(events: Sequence[Event]) -> list[str]:
    lines = [
        f"seq {e.seq}  {e.kind}  run {e.run_id}  {e.owner}"
        + (f"  {e.step} attempt {e.attempt}" if e.step else "")
        for e in events
    ]
    return lines if len(lines) <= ROWS_MAX else [*lines[: ROWS_MAX - 1], "..."]


# Exercise 2: a tool that says IDEMPOTENT must be so, by the key.

KEY = "A tool that declares IDEMPOTENT may be called twice with one key: one effect, one answer."
AGENT, TOOL = "tickets", "open_ticket"  # whose model asks for two tickets in one turn
LOST = "the result of model-1.tool-{} is stored"
RUNS = ("monday", "tuesday")
WANTED = {  # by the ticket at which monday was killed: what the model of each run must be told
    1: ("ticket 1; ticket 4", "ticket 2; ticket 3"),
    2: ("ticket 1; ticket 2", "ticket 3; ticket 4"),
}


class Outcome(NamedTuple):
    """Run `monday`, killed after the call for one of its tickets; run `tuesday`; `monday` again.

    A tuesday that came last would let pass a tool that answers with the newest ticket."""

    nth: int
    folder: Folder
    killed: bool
    said: tuple[str, str, str]

    @property
    def tickets(self) -> list[str]:
        path = self.folder.path / TICKETS
        return ((read_text(path, LARGEST_LIST) if path.is_file() else "") or "").splitlines()


def ex2(open_ticket: Any, desk: Desk) -> Judgement:
    """Killed after the call for the first ticket, then for the second; a run comes between."""
    if getattr(open_ticket, "__name__", TOOL) != TOOL:
        return not_judged(
            f"Your function is called {open_ticket.__name__}; an agent asks for {TOOL}."
        )
    folders = {nth: desk.fresh(f"ticket-{nth}") for nth in (1, 2)}
    for folder in folders.values():
        hand_over(open_ticket, folder)
    try:
        with Trials() as trials:
            outcomes = side_by_side(partial(_try, trials, *each) for each in folders.items())
    except TimeoutError as error:
        return not_judged(f"An agent with your tool was killed: {error}.", KEY)
    for outcome in outcomes:
        if wrong := _wrong(outcome):
            return wrong
    rows = [*_attempts(outcome), *(f"tickets.txt  {line}" for line in outcome.tickets)]
    reason = "Killed after either call, run monday has its two tickets, and run tuesday its own."
    return held(reason, KEY, rows)


def _try(trials: Trials, nth: int, folder: Folder) -> Outcome:
    def call(number: int, run: str, **agent: str) -> tuple[int, str]:
        words = ("go", run, AGENT)
        return trials.call(folder.path, number, *words, AGENT_TOOLS=TOOLS_FILE, **agent)

    killed, first = call(0, "monday", AGENT_DIE_BEFORE=LOST.format(nth))
    said = (first, call(1, "tuesday")[1], call(2, "monday")[1])
    return Outcome(nth, folder, killed == -signal.SIGKILL, said)


def _wrong(outcome: Outcome) -> Judgement | None:
    rows = [*_attempts(outcome), *(f"tickets.txt  {line}" for line in outcome.tickets[:6])]
    resumed_first = outcome.said[:0:-1]
    if said := [said.strip() for said in resumed_first if "SUCCEEDED" not in said]:
        how = said[0] or "a process with your tool ended without a word: is there an exit in it?"
        return broken(f"{how.removesuffix('.')}. {_error(outcome)}".strip(), KEY, rows)
    if not outcome.killed:
        return not_judged(f"The first process was not killed: {outcome.said[0].strip()}", KEY, rows)
    killed = f"Run monday was killed after the call for its ticket {outcome.nth}, run tuesday "
    killed += "opened two, and monday was resumed"
    if words := _miscounted(outcome, killed):
        return broken(words, KEY, rows)
    each = zip(RUNS, WANTED[outcome.nth], _outputs(outcome), strict=True)
    for run, wanted, got in each:
        if got != wanted:
            told = f"{killed}. The model of run {run} was told {got!r:.80}, and it must be"
            words = f'{told} "{wanted}": the second call gives the answer of the first.'
            return broken(words, KEY, rows)
    return None


def _miscounted(outcome: Outcome, killed: str) -> str:
    lines = outcome.tickets
    if len(lines) > 4:
        return (
            f"{killed}: {len(lines)} tickets for 4 steps. The second attempt opened one more, "
            f"'{lines[outcome.nth + 2]:.40}'. What is the same in both attempts of a "
            "step, and in no other step?"
        )
    if len(lines) < 4:
        return (
            f"{killed}: {len(lines)} tickets for 4 steps. Two steps took the same line for "
            f"theirs, '{''.join(lines[:1]):.40}': the key names the run and the step, and no other "
            "part of the request does both."
        )
    return ""


def _outputs(outcome: Outcome) -> Iterator[str]:
    codec, journal = PlaintextPayloadCodec(), Journal(outcome.folder.database)
    for output in journal.sql("SELECT output FROM runs ORDER BY seq").output:
        yield json.loads(codec.decode(output)) if output else ""


def _error(outcome: Outcome) -> str:
    """What the first attempt that failed said, as a sentence."""
    codec, journal = PlaintextPayloadCodec(), Journal(outcome.folder.database)
    query = "SELECT error FROM attempts WHERE classification = 'PERMANENT' LIMIT 1"
    errors = [json.loads(codec.decode(error)) for error in journal.sql(query).error]
    return f"The error of its attempt: {errors[0].removesuffix('.')}." if errors else ""


def _attempts(outcome: Outcome) -> list[str]:
    if not outcome.folder.database.exists():
        return []
    query = """
        SELECT seq, kind, run_id, step, attempt FROM journal
        WHERE run_id = 'monday' AND step = ? AND kind LIKE 'step%' ORDER BY seq"""
    step = f"model-1.tool-{outcome.nth}"
    rows = Journal(outcome.folder.database).sql(query, [step]).itertuples(index=False)
    return [f"seq {r.seq}  {r.kind}  run {r.run_id}  {r.step} attempt {r.attempt}" for r in rows]

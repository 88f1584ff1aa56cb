"""Start here: is this machine ready, and what is left of an agent that is killed?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labkit.journal.fold import KINDS
from labkit.lab import doctor
from labkit.lab.checks import Desk, Judgement, ask, broken, held, not_judged
from labkit.lab.doctor import MISSING, OK, WARN, Row
from labkit.lab.evidence import journal
from labkit.lab.folder import Folder

__all__ = ["ex1", "ex2"]

READY = "A machine is ready when no row says missing, and a check must be able to say no."
WRITTEN = "An event is in the journal once what it says has happened, and not before."

NO_PACKAGE = "labkit-that-does-not-exist"
FINE = Row(OK, "some-package", "1.0, as needed")
WARNED = Row(WARN, "some-program", "not found; only one test needs it", "install it, or go on")

BECAUSE = {
    OK: "none of them is missing:",
    WARN: "a warning stops nobody:",
    MISSING: "one of them is missing:",
}
# Why an event that a learner expects at the end is not there.
TOO_EARLY = {
    "step_finished": "Step 1 was killed, so it never finished.",
    "step_recovered": "The next run writes that; the run that was killed cannot.",
    "step_error": "A tool that raises is an error; a process that is gone raises nothing.",
}


def ex1(is_ready: Any, desk: Desk) -> Judgement:
    """`is_ready` says no to a missing row, yes to a warning, and what is true of this machine."""
    absent = doctor.check_package(NO_PACKAGE)
    asked = ([FINE], FINE), ([FINE, WARNED], WARNED), ([FINE, absent, WARNED], absent)
    for rows, decides in asked:
        if verdict := _answer(is_ready, rows, decides):
            return verdict
    if missing := [row for row in doctor.rows() if row.state == MISSING]:
        reason = (
            "Your function is right, and it must say no to this machine: mend these, try again."
        )
        return broken(reason, READY, _lines(missing))
    return _kill_one(desk)


def ex2(kinds: Any, desk: Desk) -> Judgement:
    """`kinds` is what the journal of an agent holds that was killed in step 1."""
    if not (isinstance(kinds, list | tuple) and all(isinstance(kind, str) for kind in kinds)):
        return not_judged('Write a list of kinds, as in ["task_created", "run_started"].', WRITTEN)
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        return _unknown(unknown[0])
    folder = _created(desk)
    ended = folder.start("agent run notes", {"AGENT_CRASH_AT": "before_effect:1"}).finish()
    if not ended.killed:
        return not_judged(f"No agent was killed: {ended!r}. {ended.output.strip()}", WRITTEN)
    seen, rows = journal(folder).events().kind.tolist(), _events(folder)
    if list(kinds) == seen:
        return held("The agent was killed in step 1, and its journal is your list.", WRITTEN, rows)
    n = next((n for n, (a, b) in enumerate(zip(kinds, seen, strict=False)) if a != b), None)
    n = min(len(kinds), len(seen)) if n is None else n
    return broken(_difference(list(kinds), seen, n), WRITTEN, rows[: n + 1])


def _answer(is_ready: Any, rows: Sequence[Row], decides: Row) -> Judgement | None:
    """A verdict on a wrong answer about these rows, with the row that decides."""
    said, ready = ask(is_ready, list(rows)), decides.state != MISSING
    if not isinstance(said, bool):
        kind = type(said).__name__
        return not_judged(
            f"Your function returned a value of type {kind}, not True or False.", READY
        )
    if said == ready:
        return None
    many = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
    reason = f"Your function was given {many} and returned {said}, and {BECAUSE[decides.state]}"
    return broken(reason, READY, _lines([decides]))


def _kill_one(desk: Desk) -> Judgement:
    """What every notebook needs of a machine: a kill that is delivered, a journal that is left."""
    folder = _created(desk)
    agent = folder.start("agent run notes", {"AGENT_STEP_DELAY": "60"})
    agent.wait_for("step_started", 0)
    ended = agent.kill()
    if not ended.killed:
        return broken(f"An agent that was to be killed here ended otherwise: {ended!r}.", READY)
    reason = (
        "Your function can say no, and nothing is missing here. The check started an agent and "
        f"killed it in step 0. It was {ended!r}; its journal is left:"
    )
    return held(reason, READY, _events(folder))


def _created(desk: Desk) -> Folder:
    folder = desk.fresh()
    folder.start("agent create notes plan.json", {}).finish()
    return folder


def _events(folder: Folder) -> list[str]:
    """The journal as lines of evidence."""
    rows = journal(folder).sql("SELECT seq, kind, ifnull('  step ' || step_idx, '') FROM journal")
    return [f"seq {seq}  {kind}{step}" for seq, kind, step in rows.itertuples(index=False)]


def _lines(rows: Sequence[Row]) -> list[str]:
    return [str(row).splitlines()[0] for row in rows]


def _unknown(kind: str) -> Judgement:
    """A slip of the pen is no answer; an event for the kill is one, and a wrong one."""
    seen = f"No event is called {kind[:40]!r}"
    if "kill" in kind.lower():
        why = "a killed process writes nothing, so no event says that it was killed"
        return broken(f"{seen}; {why}.", WRITTEN)
    return not_judged(f"{seen}; there are {', '.join(KINDS)}.", WRITTEN)


def _difference(kinds: list[str], seen: list[str], n: int) -> str:
    """Where the list and the journal part, and what a learner may have thought there."""
    if n == len(kinds):
        return f"Your list ends after {n} events, and the journal goes on with {seen[n]}."
    if n == len(seen):
        why = TOO_EARLY.get(kinds[n], "No line of the agent ran after the kill.")
        return f"The journal ends after {n} events, and your list goes on with {kinds[n]}. {why}"
    return f"Event {n + 1} of the journal is {seen[n]}; your list has {kinds[n]} there."

"""Did the message go out? An application's answer to a run that waits, and a repaired recovery."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from labkit.errors import LabkitError
from labkit.journal import Journal
from labkit.lab.checks import Desk, Judgement, ask, broken, held, not_judged
from labkit.lab.folder import fresh_folder
from labkit.lab.handing import TOOLS_FILE
from labkit.lab.runs import AT_ONCE, Message, Trials, messages
from labkit.lab.scenarios.dispatch import DATABASE, OUTBOX, RESOLUTIONS, SENT

__all__ = ["ex1", "ex2"]

STEP = "model-1.tool-1"
CALLED, STORED = "notify is called", f"the result of {STEP} is stored"
LONG_NAMES = {"RETRY_STEP": "retry", "CONFIRM_STEP": "confirm", "REJECT_STEP": "reject",
              "FAIL_RUN": "fail", "CANCEL_RUN": "cancel"}  # fmt: skip


# 1: the answer to a run that waits.

STEPS = {"notice": STEP, "dispatch": "model-2.tool-1"}  # which one sends the message
# Another step of the same run that tells Kim something: its message is no evidence for this one.
TELLS = f"""
def open_ticket(request):
    with open({OUTBOX!r}, "a") as outbox:
        outbox.write(f"{{request.idempotency_key}}  {{request.attempt_id}}  To Kim: A ticket.\\n")
    return "the ticket is open"
"""


class Waiting(NamedTuple):
    """A run that waits, in words how it came to that, and what can be seen of it."""

    folder: Path
    how: str
    processes: int
    seen: list[Message]
    definition: str = "notice"

    @property
    def step(self) -> str:
        return STEPS[self.definition]

    @property
    def key(self) -> str:
        return f"pump:{self.step}"


def ex1(answer: Any, desk: Desk) -> Judgement:
    """`answer(run, outbox)` is asked about runs that were really killed, and is obeyed."""
    rule = "Kim has the message of each run exactly once, and the run says that Kim was told."
    if wrong := _no_answer(ask(answer, {"run_id": "pump", "waiting_step_id": STEP}, [])):
        return not_judged(wrong, rule)  # it costs no kill
    with Trials() as trials, ThreadPoolExecutor(AT_ONCE) as pool:
        every = list(pool.map(lambda make: make(trials), MAKERS))
        for waiting in every:
            run = {"run_id": "pump", "waiting_step_id": waiting.step}
            said = ask(answer, run, [message._asdict() for message in waiting.seen])
            if wrong := _no_answer(said):
                return not_judged(wrong, rule)
            if wrong := _obey(trials, waiting, LONG_NAMES.get(str(said), str(said))):
                return broken(wrong, rule, _outbox_rows(waiting))
        rows = [row for waiting in every for row in _outbox_rows(waiting)]
    reason = "Five runs that waited, each for another reason, got their message out once."
    return held(reason, rule, rows)


def _no_answer(said: Any) -> str:
    if isinstance(said, str) and LONG_NAMES.get(str(said), str(said)) in RESOLUTIONS:
        return ""
    return f"Your function returns {said!r:.60}; use one of {', '.join(RESOLUTIONS)}."


def _obey(trials: Trials, waiting: Waiting, word: str) -> str:
    """What is wrong once the answer has been given; "" where nothing is."""
    _, said = trials.call(waiting.folder, waiting.processes, "resolve", "pump", word)
    times = sum(message.key == waiting.key for message in messages(waiting.folder))
    run = f"Run pump {waiting.how}. You answer {word}"
    if times > 1:
        return f"{run}: Kim has its message {times} times. One of them was in the outbox before."
    if times == 0:
        told = " though the run says that Kim was told" if SENT in said else ""
        return f"{run}: Kim never gets its message{told}. None in the outbox had its key."
    if SENT not in said:
        return f"{run}: Kim has the message, and the run says: {said.strip().partition(' is ')[2]}."
    return ""


def _sent(trials: Trials) -> Waiting:
    folder = _folder(trials, "sent")
    trials.die(folder, "notice", AGENT_DIE_BEFORE=STORED)
    return _wait(trials, folder, "was killed after notify was called", 1)


def _nothing_sent(trials: Trials) -> Waiting:
    folder = _folder(trials, "empty")
    trials.die(folder, "notice", AGENT_DIE_BEFORE=CALLED)
    return _wait(trials, folder, "was killed before notify was called; the outbox is empty", 1)


def _not_sent(trials: Trials) -> Waiting:
    """In its outbox is a message, of another run, whose name begins as this one's."""
    folder = _folder(trials, "not-sent")
    trials.call(folder, 0, "go", "pump-2")
    how = "was killed before notify was called; the message in the outbox is of run pump-2"
    trials.die(folder, "notice", AGENT_DIE_BEFORE=CALLED)
    return _wait(trials, folder, how, 2)


def _not_sent_by_this_step(trials: Trials) -> Waiting:
    """In its outbox is a message of the same run, which an earlier step of it has sent."""
    folder = _folder(trials, "other-step")
    (folder / TOOLS_FILE).write_text(TELLS, encoding="utf-8")
    tells = {"AGENT_TOOLS": TOOLS_FILE}
    trials.die(folder, "dispatch", AGENT_DIE_BEFORE=CALLED, **tells)
    how = "was killed before notify was called; the message in the outbox is of another step"
    return _wait(trials, folder, how, 1, "dispatch")


def _sent_by_a_retry(trials: Trials) -> Waiting:
    """Nothing went out at the first attempt; the retry was killed in its turn."""
    folder = _folder(trials, "retried")
    trials.die(folder, "notice", AGENT_DIE_BEFORE=CALLED)
    trials.call(folder, 1, "go", "pump")
    trials.call(folder, 2, "resolve", "pump", "retry", AGENT_DIE_BEFORE=STORED)
    how = "was answered with a retry, which was killed after notify was called"
    return _wait(trials, folder, how, 3)


MAKERS = (_sent, _sent_by_a_retry, _nothing_sent, _not_sent, _not_sent_by_this_step)


def _wait(
    trials: Trials, folder: Path, how: str, processes: int, definition: str = "notice"
) -> Waiting:
    code, said = trials.call(folder, processes, "go", "pump", definition)
    if code != 4:
        raise LabkitError(f"run pump was to wait, and: {said.strip()}")
    return Waiting(folder, how, processes + 1, messages(folder), definition)


def _outbox_rows(waiting: Waiting) -> list[str]:
    """Its outbox now. Each line names the folder: the same key may stand in several of them."""
    lines = [f"{m.key}  {m.attempt}" for m in messages(waiting.folder)] or ["no message"]
    return [f"{waiting.folder.name:10}  {line}" for line in lines]


# 2: what may follow, by what is stored.


class Left(NamedTuple):
    """What a killed process has left of the step: the rows, and the messages outside."""

    place: str
    step: dict[str, Any] | None
    attempts: list[dict[str, Any]]
    sent: int

    @property
    def wanted(self) -> str:
        if self.step and self.step["checkpoint"]:
            return "reuse"
        return "wait" if self.attempts else "call"

    @property
    def rows(self) -> list[str]:
        step = self.step or {"status": "not stored", "checkpoint": None}
        attempts = [
            "  ".join([f"attempt {each['number']}", each["status"], each["classification"] or ""])
            for each in self.attempts
        ]
        first = f"step {STEP}  {step['status']}  checkpoint {step['checkpoint'] or 'none'}"
        return [
            first,
            *map(str.rstrip, attempts),
            f"outbox  {self.sent} message{'' if self.sent == 1 else 's'}",
        ]


PLACES = (
    f"{STORED}, commit 3", f"{STORED}, commit 2", STORED, CALLED,
    STORED, f"the attempt of {STEP} is stored", "the attempt of model-2 is stored",
)  # fmt: skip
# After the second kill at STORED a recovery has come by: it has ended the attempt as UNCERTAIN. The
# other class that could be repeated, TRANSIENT, is a tool's own word, and no kill leaves it.
MARKED = (False, False, False, False, True, False, False)
# No store of today says so. One of tomorrow may, and a recovery must not take that for "call it".
UNHEARD_OF = Left(
    "by a newer runtime", {"status": "PAUSED", "checkpoint": None},
    [{"number": 1, "status": "PAUSED", "classification": None}], 1,
)  # fmt: skip


def ex2(follow: Any, desk: Desk) -> Judgement:
    """`follow(step, attempts)` reads what processes with the published order have left."""
    rule = "A message is called for only where nothing is stored of it; what is not known waits."
    if wrong := _unlike(ask(follow, None, [])):  # such an answer costs no kill
        return not_judged(wrong, rule)
    with Trials("three commits") as trials, ThreadPoolExecutor(AT_ONCE) as pool:
        every = [*pool.map(partial(_leave, trials), PLACES, MARKED), UNHEARD_OF]
    for left in every:
        step, attempts = left.step and dict(left.step), [dict(each) for each in left.attempts]
        answer = ask(follow, step, attempts)
        if wrong := _unlike(answer):
            return not_judged(wrong, rule)
        if answer != left.wanted:
            return broken(_say_why(left, answer), rule, left.rows)
    reason = (
        "Seven real kills and a row from tomorrow: nothing twice, and no question without need."
    )
    return held(reason, rule, every[0].rows)


def _unlike(answer: Any) -> str:
    if isinstance(answer, str) and answer in ("call", "reuse", "wait"):
        return ""
    return f'Your function gives {answer!r:.60}; give "call", "reuse" or "wait".'


def _leave(trials: Trials, place: str, marked: bool) -> Left:
    name = f"{place} marked" if marked else place
    folder = _folder(trials, name.replace(" ", "-").replace(",", ""))
    trials.die(folder, "notice", AGENT_DIE_BEFORE=place)
    if marked and (ended := trials.call(folder, 1, "go", "pump"))[0] != 4:
        raise LabkitError(f"a recovery was to mark the attempt, and: {ended[1].strip()}")
    journal = Journal(folder / DATABASE)
    sql = "SELECT status, checkpoint_attempt_id AS checkpoint FROM steps WHERE step_id = ?"
    steps = journal.sql(sql, [STEP])
    tried = journal.sql(
        "SELECT number, status, classification FROM attempts WHERE step_id = ?", [STEP]
    )
    rows = [_plain(row) for row in steps.to_dict("records")]
    attempts = [_plain(row) for row in tried.to_dict("records")]
    where = f"before {place}" + ("; then a recovery has ended the attempt" if marked else "")
    return Left(where, rows[0] if rows else None, attempts, len(messages(folder)))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v if isinstance(v, str | int) else None for k, v in row.items()}


def _say_why(left: Left, answer: str) -> str:
    said = f"Killed {left.place}. You say {answer}"
    if left is UNHEARD_OF:
        return (
            f"A newer runtime left a step that has the status PAUSED. You say {answer}: who knows?"
        )
    if answer == "call" and left.sent:
        return f"{said}, and Kim has the message already: it goes out twice."
    if answer == "call":
        return f"{said}. Nothing went out here, but these rows are those of a kill after the call."
    if answer == "reuse":
        return f"{said}, and there is no checkpoint: the result of the tool is nowhere."
    if left.wanted == "call":
        return f"{said}, and no attempt is stored: the tool was never called, nobody need be asked."
    return f"{said}, and the checkpoint is there: the store itself proves that it went out."


def _folder(trials: Trials, name: str) -> Path:
    return fresh_folder(trials.root, name, "pump").path

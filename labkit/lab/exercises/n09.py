"""A model in the loop: what a kill costs, and a tool that keeps what it has bought."""

from __future__ import annotations

import copy
import json
from functools import partial
from itertools import chain
from numbers import Integral
from pathlib import PurePath
from typing import Any, NamedTuple

from labkit.errors import BadInput
from labkit.lab.bills import pay
from labkit.lab.checks import Desk, Judgement, ask, broken, held, not_judged
from labkit.lab.evidence import files, journal
from labkit.lab.folder import Folder
from labkit.lab.handing import TOOLS_FILE, hand_over
from labkit.lab.models import Model
from labkit.lab.process import NotReady, Process, Result
from labkit.lab.scenarios.model import answer_to, subject
from labkit.lab.sweeps import give_plan, side_by_side

__all__ = ["ex1", "ex2"]

LIMIT_S = 5.0  # for one run; it takes a tenth of a second


def _fetch(day: str) -> dict[str, Any]:
    return {"tool": "fetch", "input": {"path": f"input/{day}.txt"}}


def _with(tool: str, source: int) -> dict[str, Any]:
    return {"tool": tool, "input": {"from": source}}


# Neither is the notebook's: model steps side by side, and fetches between two of them. Each model
# step has a text of its own, so that no two calls look like one answer bought twice.
TWO_DAYS = [
    _fetch("monday"),
    _fetch("wednesday"),
    _with("summarize", 0),
    _with("summarize", 1),
    _with("write_artifact", 3),
]
THREE_DAYS = [
    _fetch("friday"),
    _with("summarize", 0),
    _fetch("tuesday"),
    _fetch("thursday"),
    _with("summarize", 2),
    _with("summarize", 3),
    _with("write_artifact", 5),
]
KILLS = (  # for each plan, where it is killed
    (TWO_DAYS, ("after_commit:2", "after_effect:3")),
    (THREE_DAYS, ("after_effect:2", "before_effect:4")),
)


class Paid(NamedTuple):
    """What two real runs were paid for one kill, and which calls those were."""

    steps: list[dict[str, Any]]
    place: str
    calls: int
    asked: list[str]


def ex1(paid: Any, desk: Desk) -> Judgement:
    """`paid(point, idx, steps)` is compared with real kills of two plans at a fresh model."""
    rule = "What was committed is never bought again; what was not, is."
    said = {}
    for steps, places in KILLS:
        for place in places:
            point, _, idx = place.partition(":")
            said[place, len(steps)] = ask(paid, point, int(idx), copy.deepcopy(steps))
    if odd := [value for value in said.values() if not _is_number(value)]:
        return not_judged(f"Your function returns {odd[0]!r}; it must return a whole number.", rule)
    made = side_by_side(partial(_pay, desk, steps, places) for steps, places in KILLS)
    every = list(chain.from_iterable(made))
    for one in every:
        answer = said[one.place, len(one.steps)]
        if answer != one.calls:
            return broken(_say_why(one, answer), rule, _call_rows(one))
    kills = [f"{one.place} of {len(one.steps)} steps  {one.calls} calls paid" for one in every]
    return held("Two plans, four real kills, the calls counted at the model.", rule, kills)


def _pay(desk: Desk, steps: list[dict[str, Any]], places: tuple[str, ...]) -> list[Paid]:
    name = f"plan-of-{len(steps)}"
    with Model(desk.fresh(f"{name}-model").path) as model:
        made = []
        for place in places:
            folder = desk.fresh(f"{name}-{place}".replace(":", "-").replace("_", "-"))
            folder.unprinted = model.environ()
            give_plan(folder, steps)
            before = model.calls()
            calls = pay(folder, model, place)
            made.append(Paid(steps, place, calls, model.prompts()[before:]))
        return made


def _is_number(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _say_why(one: Paid, answer: int) -> str:
    needed = len(_model_steps(one))
    plan = f"{len(one.steps)} steps, {needed} of them model calls"
    why = _too_many(one) if answer > one.calls else _too_few(one, answer)
    return (
        f"For {one.place} in a plan of {plan}, your function says {answer}; the model was "
        f"paid {one.calls} times. {why}"
    )


def _too_many(one: Paid) -> str:
    """Which call is counted and was never made."""
    point, _, idx = one.place.partition(":")
    if (tool := one.steps[int(idx)]["tool"]) != "summarize":
        return f"Step {idx} is {tool}: it is run again, and it does not ask the model."
    return {
        "before_effect": "The agent died before that call: nothing was bought, nothing is lost.",
        "after_commit": "The answer was committed: the second run does not ask for it again.",
        "after_effect": f"Only the answer of step {idx} was lost: no other is bought twice.",
    }[point]


def _too_few(one: Paid, answer: int) -> str:
    """Which call was made and is not counted."""
    if answer >= len(_model_steps(one)):
        return "The answer was there and not committed: the second run buys it again."
    steps = " and ".join(map(str, _model_steps(one)))
    return (
        f"Steps {steps} each need an answer, killed or not, and both runs together buy it: those "
        "that the first run had committed, and those that were still to come."
    )


def _model_steps(one: Paid) -> list[int]:
    return [idx for idx, step in enumerate(one.steps) if step["tool"] == "summarize"]


def _call_rows(one: Paid) -> list[str]:
    """Each call with the step that made it; its text names the day, and each day has one step."""
    rows, seen = [], set()
    for number, prompt in enumerate(one.asked, start=1):
        text = subject(prompt)
        idx = next(idx for idx in _model_steps(one) if text.lower().startswith(_day(one, idx)))
        rows.append(f"call {number}  step {idx}{' again' if idx in seen else ''}  {text}")
        seen.add(idx)
    return rows


def _day(one: Paid, idx: int) -> str:
    source = one.steps[one.steps[idx]["input"]["from"]]
    return PurePath(source["input"]["path"]).stem


QUESTIONS = {
    "notes": ["Which pump stopped?", "When did it stop?", "Who found out?"],
    "more": ["What was ordered?", "Who pays for it?"],
}
KEPT = (
    "An answer that the tool has in its hand is kept, under the step's key, before the next call."
)


def ex2(tool: Any, desk: Desk) -> Judgement:
    """`tool` buys three answers in one step; it is killed while the second call is open."""
    folder = desk.fresh()
    options = hand_over(tool, folder)
    with Model(desk.fresh("model").path) as model:
        folder.unprinted = model.environ()
        return _Buyer(tool.__name__, folder, options, model).judge()


class _Buyer:
    """A tool at work in one folder, and the model that it asks."""

    def __init__(self, tool: str, folder: Folder, options: str, model: Model) -> None:
        self.tool, self.folder, self.options, self.model = tool, folder, options, model

    def judge(self) -> Judgement:
        before = set(self._files())
        if rejected := self._kill_in_second_call():
            return rejected
        kept = sorted(set(self._files()) - before)
        for look in (self._resume, partial(self._judge_first, kept), self._judge_other_task):
            if rejected := look():
                return rejected
        return held(
            "Killed while the second call was open: the first answer was bought once, the second "
            "twice, since nobody had its answer. Killed after the last answer: none again. Not "
            "tried here: a kill in the middle of a write. What is written under its final name "
            "can then be half an answer; a rename cannot (notebook 06).",
            KEPT,
            self._rows("notes"),
        )

    def _kill_in_second_call(self) -> Judgement | None:
        self._create("notes")
        self.model.hold(2)
        process = self._start("notes")
        try:
            self.model.wait_for_call(process, LIMIT_S)
        except NotReady:
            return self._no_second_call(process)
        process.kill()
        self.model.release()
        return None

    def _no_second_call(self, process: Process) -> Judgement:
        calls = self.model.calls()
        if process.alive:
            self.folder.close()
            seen = f"After {LIMIT_S:g} s your tool had made {_times(calls, 'call')}"
            return not_judged(f"{seen} and had not returned. It was killed.", KEPT)
        ended = process.finish()
        if ended.code:
            return broken(f"The first run: {ended!r}. {_last_line(ended)}", KEPT)
        return broken(
            f"There were {len(QUESTIONS['notes'])} questions, and your tool made "
            f"{_times(calls, 'call')}. It returned {self._answers('notes')}. "
            + ("Is each answer kept under a name of its own?" if calls else "It must ask."),
            KEPT,
        )

    def _resume(self) -> Judgement | None:
        ended = self._run("notes")
        if ended.code:
            return broken(f"The second run: {ended!r}. {_last_line(ended)}", KEPT)
        return None

    def _judge_first(self, kept: list[str]) -> Judgement | None:
        counts = self._counts("notes")
        if counts[0] > 1:
            seen = f"Your tool had made these files: {', '.join(kept)}." if kept else ""
            return broken(
                f"The first answer had arrived when the agent was killed, and it was bought "
                f"{counts[0]} times. {seen or 'Nothing in the folder kept it.'}",
                KEPT,
                self._rows("notes"),
            )
        return self._compare("notes")

    def _judge_other_task(self) -> Judgement | None:
        """Another task in the same folder, killed with every answer bought and none committed."""
        self._create("more")
        self._start("more", AGENT_CRASH_AT="after_effect:0").finish(LIMIT_S)
        ended = self._run("more")
        if ended.code:
            return broken(f"A second task: {ended!r}. {_last_line(ended)}", KEPT)
        if self._answers("more")[:2] == self._answers("notes")[:2]:
            return broken(
                "A second task in this folder asked other questions and was given the answers of "
                "the first. A name needs the key in it, idem_key: it says which task and step.",
                KEPT,
            )
        if max(self._counts("more")) > 1:
            return broken(
                "Killed when it had all its answers, before the commit, your tool bought them "
                "again. What is kept may go only after the commit, and no tool runs then.",
                KEPT,
                self._rows("more"),
            )
        return self._compare("more")

    def _compare(self, task: str) -> Judgement | None:
        right, found = self._said(task), self._answers(task)
        if found == right:
            return None
        for number, (wanted, count) in enumerate(zip(right, self._counts(task), strict=True), 1):
            got = found[number - 1] if number <= len(found) else "nothing"
            if got != wanted:
                bought = f"bought {_times(count, 'time')}" if count else "never asked"
                return broken(
                    f"Question {number} was {bought}, and your tool returns {got!r} for it; the "
                    f"model said {wanted!r}.",
                    "What is kept is the whole answer, and nothing before the answer is there.",
                    self._rows(task),
                )
        return broken(f"Your tool returns {len(found)} answers to {len(right)} questions.", KEPT)

    def _answers(self, task: str) -> list[Any]:
        steps = journal(self.folder).sql("SELECT output FROM steps WHERE task_id = ?", [task])
        if steps.output.isna()[0]:  # it left its process by a door that no agent sees
            raise BadInput("the step has no output, since its tool ended the process")
        output = json.loads(steps.output[0])
        answers = output.get("answers") if isinstance(output, dict) else None
        if not isinstance(answers, list):
            raise BadInput(f'the step returned {output!r}; it must be {{"answers": [...]}}')
        return answers

    def _said(self, task: str) -> list[str]:
        """What the model said to each question, whatever words the tool put around it."""
        asked = [
            [prompt for prompt in self.model.prompts() if each in prompt]
            for each in QUESTIONS[task]
        ]
        return [answer_to(prompts[0]) if prompts else "nothing" for prompts in asked]

    def _counts(self, task: str) -> list[int]:
        prompts = self.model.prompts()
        return [sum(question in prompt for prompt in prompts) for question in QUESTIONS[task]]

    def _rows(self, task: str) -> list[str]:
        counts = self._counts(task)
        return [
            f"question {number}  bought {_times(count, 'time')}"
            for number, count in enumerate(counts, start=1)
        ]

    def _files(self) -> list[str]:
        return [name for name in files(self.folder) if name not in (TOOLS_FILE, "state.db")]

    def _create(self, task: str) -> None:
        give_plan(self.folder, [{"tool": self.tool, "input": {"questions": QUESTIONS[task]}}])
        self.folder.start(f"agent {self.options} create {task} plan.json", {}).finish()

    def _run(self, task: str) -> Result:
        return self._start(task).finish(LIMIT_S)

    def _start(self, task: str, **agent: str) -> Process:
        return self.folder.start(f"agent {self.options} run {task}", agent)


def _times(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _last_line(result: Result) -> str:
    return (result.output.strip().splitlines() or [""])[-1]

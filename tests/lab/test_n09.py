"""Odd answers to the exercises of notebook 09: a verdict in words for each, and never a crash."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labkit import lab
from labkit.lab.checks import Judgement
from labkit.lab.solutions import read_answers

CALL = """
def ask(input, ctx, idem_key):
    import json, os, urllib.request
    def call(prompt):
        asked = {"model": "m", "prompt": prompt, "stream": False}
        url = os.environ["OLLAMA_URL"] + "/api/generate"
        with urllib.request.urlopen(url, json.dumps(asked).encode()) as reply:
            return json.load(reply)["response"]
"""
ODD_TOOLS = {
    "none": ("ask = None", "not judged", "no function"),
    "never asks": ("def ask(i, c, k): return {'answers': []}", "broken", "made 0 calls"),
    "raises": ("def ask(i, c, k): return 1 / 0", "broken", "ZeroDivisionError"),
    "ends the process": (
        "def ask(i, c, k):\n    import os\n    os._exit(0)",
        "not judged",
        "ended the process",
    ),
    "all in one": (
        CALL + "    return {'answers': [call(' '.join(input['questions']))]}",
        "broken",
        "3 questions, and your tool made 1 call",
    ),
    "other questions": (
        CALL + "    return {'answers': [call(each) for each in 'abc']}",
        "broken",
        "Question 1 was never asked",
    ),
    "no answers": (
        read_answers("09.ex2").solution.replace('{"answers": answers}', "answers"),
        "not judged",
        'must be {"answers": [...]}',
    ),
}
ODD_NUMBERS = {
    "none": ("paid = None", "not judged", "no function"),
    "text": ("def paid(p, i, s): return '5'", "not judged", "'5'; it must return a whole number"),
    "a truth": ("def paid(p, i, s): return True", "not judged", "a whole number"),
    "raises": ("def paid(p, i, s): return s[99]", "broken", "IndexError"),
    "spoils the plan": ("def paid(p, i, s): s.clear(); return 3", "broken", "says 3"),
}


@pytest.fixture(autouse=True)
def _begun(home: Path) -> Iterator[None]:
    lab.begin("09")
    yield
    lab.end()


def judge(exercise: str, name: str, source: str) -> Judgement:
    file = f"<{exercise} {hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    cell: dict[str, Any] = {}
    exec(compile(source, file, "exec"), cell)
    return lab.check(exercise, cell[name])


@pytest.mark.sampled
@pytest.mark.parametrize(("source", "verdict", "says"), ODD_NUMBERS.values(), ids=ODD_NUMBERS)
def test_an_odd_number_of_calls(source: str, verdict: str, says: str) -> None:
    judgement = judge("09.ex1", "paid", source)
    assert (judgement.verdict, says in judgement.reason) == (verdict, True), judgement.reason


@pytest.mark.sampled
@pytest.mark.parametrize(("source", "verdict", "says"), ODD_TOOLS.values(), ids=ODD_TOOLS)
def test_an_odd_tool(source: str, verdict: str, says: str) -> None:
    judgement = judge("09.ex2", "ask", source)
    assert (judgement.verdict, says in judgement.reason) == (verdict, True), judgement.reason


def test_a_tool_that_never_returns_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labkit.lab.exercises.n09.LIMIT_S", 0.5)
    judgement = judge("09.ex2", "ask", "def ask(i, c, k):\n    while True: pass")
    assert (judgement.verdict, "had not returned" in judgement.reason) == ("not judged", True)


GOOD_TOOLS = {
    "published": CALL
    + """
    from labkit.files import publish_once
    answers = []
    for number, question in enumerate(input["questions"]):
        name = f"{idem_key}-{number}"
        if not os.path.exists(f"kept/{name}"):
            publish_once("kept", name, call(question).encode())
        answers.append(open(f"kept/{name}").read())
    return {"answers": answers}
""",
    "one list in one file, replaced": CALL
    + """
    name = f"{idem_key}.json"
    answers = json.load(open(name)) if os.path.exists(name) else []
    for question in input["questions"][len(answers):]:
        answers.append(call(question))
        with open(name + ".new", "w") as file:
            json.dump(answers, file)
        os.replace(name + ".new", name)
    return {"answers": answers}
""",
    "words of its own around a question": CALL
    + """
    import sqlite3
    db = sqlite3.connect("mine.db", isolation_level=None)
    db.execute("CREATE TABLE IF NOT EXISTS kept(key, question, answer)")
    answers = []
    for question in input["questions"]:
        select = "SELECT answer FROM kept WHERE key = ? AND question = ?"
        row = db.execute(select, [idem_key, question]).fetchone()
        if row is None:
            row = [call(f"Answer in one line.\\n{question}")]
            db.execute("INSERT INTO kept VALUES (?, ?, ?)", [idem_key, question, row[0]])
        answers.append(row[0])
    return {"answers": answers}
""",
}


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(source, id=name, marks=[] if name == "published" else pytest.mark.proof)
        for name, source in GOOD_TOOLS.items()
    ],
)
def test_another_good_tool_holds(source: str) -> None:
    judgement = judge("09.ex2", "ask", source)
    assert judgement.verdict == "held", judgement.reason


def test_another_good_count_holds() -> None:
    source = """
import numpy
def paid(point, idx, steps):
    asks = [step["tool"] == "summarize" for step in steps]
    return numpy.sum(asks) + (asks[idx] if point == "after_effect" else 0)
"""
    assert judge("09.ex1", "paid", source).verdict == "held"


@pytest.mark.proof
def test_no_model_is_left_by_a_check() -> None:
    """Each check has models of its own, and the notebook's is not asked."""
    model = lab.model()
    assert judge("09.ex2", "ask", read_answers("09.ex2").solution).verdict == "held"
    assert judge("09.ex1", "paid", read_answers("09.ex1").solution).verdict == "held"
    assert model.calls() == 0
    assert lab.run("agent create notes plan.json").code == 0
    assert lab.run("agent run notes", AGENT_LLM="ollama").code == 0
    assert model.calls() == 5

"""`lab.check` prints and returns a verdict on anything that a learner hands it; it never raises."""

from __future__ import annotations

import io
import json
import linecache
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labkit import lab
from labkit.errors import StorageBusy, UsageError
from labkit.lab import checks, content, progress, sweeps, verbs
from labkit.lab.checks import Desk, Judgement
from labkit.lab.content import Exercise

EXERCISE = Exercise("05.ex9", "repair", 5, "answer", "Ask nothing.", ("one", "two", "three"))


@pytest.fixture
def judged(begun: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Judgement]:
    """Judges an answer by the given check, as if it were an exercise of notebook 05."""

    def judge(answer: object, check: Callable[[Any, Desk], Judgement]) -> Judgement:
        module = type("module", (), {"ex9": staticmethod(check)})
        monkeypatch.setattr(checks, "import_module", lambda name: module)
        monkeypatch.setattr(content, "exercise", lambda exercise_id: EXERCISE)
        return lab.check("05.ex9", answer)

    return judge


def returned(function: Any, desk: Desk) -> Judgement:
    return checks.held(f"It returned {checks.ask(function)!r}.", "It returns.")


def calls_itself() -> object:
    return calls_itself()


def raises() -> object:
    raise LookupError("no such step")


def leaves() -> object:
    raise SystemExit(3)


def never_ends() -> object:
    while True:
        pass


class Hostile:
    """Whatever a check does with it goes wrong."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"no {name}")


@pytest.mark.parametrize(
    ("answer", "verdict", "reason"),
    [
        (lambda: 7, "held", "It returned 7."),
        (lambda: None, "not judged", "returns nothing"),
        (raises, "broken", "LookupError: no such step"),
        (leaves, "broken", "SystemExit"),
        (calls_itself, "broken", "RecursionError"),
        (7, "not judged", "7 is no function"),
        (..., "not judged", 'The "..." is still there'),
        ("", "not judged", "empty"),
        ([], "not judged", "empty"),
        (lambda needed: needed, "broken", "missing 1 required positional argument"),
    ],
)
def test_what_a_function_does_is_told(
    answer: object, verdict: str, reason: str, judged: Callable[..., Judgement]
) -> None:
    judgement = judged(answer, returned)
    assert judgement.verdict == verdict
    assert reason in judgement.reason


def test_the_line_that_raised_is_shown(judged: Callable[..., Judgement]) -> None:
    (row,) = judged(raises, returned).rows
    assert row.endswith('raise LookupError("no such step")')


def test_a_loop_without_an_end_is_stopped(
    judged: Callable[..., Judgement], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LIMIT_S", 0.05)
    assert "had not ended after 0.05 s" in judged(never_ends, returned).reason
    assert judged(lambda: 7, returned).verdict == "held"  # and the next check has its own time


def test_no_time_limit_outside_the_main_thread(judged: Callable[..., Judgement]) -> None:
    verdicts: list[str] = []
    thread = threading.Thread(target=lambda: verdicts.append(judged(lambda: 7, returned).verdict))
    thread.start()
    thread.join()
    assert verdicts == ["held"]


def swallows_everything() -> object:
    while True:
        with suppress(BaseException):
            time.sleep(0.01)


def test_a_loop_that_catches_the_stop_is_stopped_too(
    judged: Callable[..., Judgement], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LIMIT_S", 0.05)
    monkeypatch.setattr(checks, "AGAIN_S", 0.05)
    trace = sys.gettrace()
    assert "had not ended" in judged(swallows_everything, returned).reason
    time.sleep(0.15)  # nothing is left that would raise here
    assert sys.gettrace() is trace
    assert judged(lambda: 1, returned).verdict == "held"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.int64(3), "3"),
        (np.bool_(True), "True"),
        ([np.int64(3), 1], "[3, 1]"),
        ((np.float64(0.5),), "(0.5,)"),
        (np.array([1, 2]), "[1, 2]"),
        ({"a": np.int64(2)}, "{'a': 2}"),
    ],
)
def test_a_number_of_pandas_is_a_number(
    value: object, plain: str, judged: Callable[..., Judgement]
) -> None:
    assert judged(lambda: value, returned).reason == f"It returned {plain}."
    given = judged(value, lambda answer, desk: checks.held(f"Given {answer!r}."))
    assert given.reason == f"Given {plain}."


@pytest.mark.parametrize("many", [range(10**20), [0] * 100_001, dict.fromkeys(range(100_001))])
def test_a_value_that_nobody_can_look_through_is_not_judged(
    many: object, judged: Callable[..., Judgement]
) -> None:
    assert "more than 100000 parts" in judged(lambda: many, returned).reason
    assert "more than 100000 parts" in judged(many, returned).reason


def test_a_fork_of_a_function_does_not_go_on_here(
    judged: Callable[..., Judgement], tmp_path: Path
) -> None:
    judges = tmp_path / "judges"

    def judge(answer: Any, desk: Desk) -> Judgement:
        checks.ask(answer)
        with judges.open("a") as file:
            file.write("one\n")
        return checks.held("once")

    children = []

    def forks() -> int:
        children.append(os.fork())
        return 1

    judged(forks, judge)
    os.waitpid(children[0], 0)
    assert judges.read_text() == "one\n"


def test_a_function_that_goes_elsewhere_takes_nobody_along(
    judged: Callable[..., Judgement], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def goes_elsewhere() -> int:
        gone = tmp_path / "gone"
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()
        sys.stdout = sys.stderr = io.StringIO()
        return 1

    here = os.getcwd()
    judged(goes_elsewhere, returned)
    assert os.getcwd() == here
    assert "It returned 1." in capsys.readouterr().out


class Leaving:
    """Python itself does not expect that these leave."""

    def __eq__(self, other: object) -> bool:
        raise SystemExit

    def __repr__(self) -> str:
        raise SystemExit

    __hash__ = None  # type: ignore[assignment]


def test_an_answer_that_leaves_when_it_is_looked_at(judged: Callable[..., Judgement]) -> None:
    def compare(answer: Any, desk: Desk) -> Judgement:
        return checks.held(f"{answer == 1}")

    for answer in (Leaving(), [Leaving()]):
        assert "SystemExit" in judged(answer, lambda a, desk: compare(repr(a), desk)).reason


@pytest.mark.parametrize("error", [UsageError("use it so"), StorageBusy("it stayed busy")])
def test_a_check_that_cannot_be_made_is_not_judged(
    error: BaseException, judged: Callable[..., Judgement]
) -> None:
    def fails(answer: Any, desk: Desk) -> Judgement:
        raise error

    judgement = judged(7, fails)
    assert judgement.verdict == "not judged"
    assert str(error) in judgement.reason


@pytest.mark.parametrize(
    "make",
    [Hostile, object, lambda: {"a": 1}, lambda: "\ud800"],
    ids=["hostile", "object", "dict", "surrogate"],
)
def test_an_answer_that_no_check_thought_of(
    make: Callable[[], object],
    judged: Callable[..., Judgement],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def looks(answer: Any, desk: Desk) -> Judgement:
        return checks.held(f"{answer.columns}")

    assert judged(make(), looks).verdict == "not judged"
    assert "cannot read this answer" in capsys.readouterr().out


def test_a_learner_may_interrupt(judged: Callable[..., Judgement]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judged(interrupted, returned)


SLEEPS = """def publish(input, ctx, idem_key):
    import time

    time.sleep(1000)
"""


@pytest.mark.proof
def test_an_interrupt_ends_the_agents_of_a_check_at_once(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "LIMIT_S", 60)
    linecache.cache["<sleeps>"] = (len(SLEEPS), None, SLEEPS.splitlines(keepends=True), "<sleeps>")
    cell: dict[str, Any] = {}
    exec(compile(SLEEPS, "<sleeps>", "exec"), cell)
    folders = verbs.current_notebook().folders

    def interrupt() -> None:
        while not any(p.typed.endswith(" run notes") for f in folders for p in f.processes):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        lab.check("05.ex2", cell["publish"])
    assert time.monotonic() - began < 30
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(10)
    assert not [process for folder in folders for process in folder.processes if process.alive]


def test_the_verdict_is_printed_and_returned(
    judged: Callable[..., Judgement], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ("seq 4  step_started  run aaaaaaa1",)
    judgement = judged(7, lambda *_: Judgement("broken", "It happened twice. " * 9, "Once.", rows))
    printed = capsys.readouterr().out
    assert repr(judgement) == "broken"
    assert printed.startswith("05.ex9  broken\nrule    Once.\nseen    It happened twice.")
    assert printed.endswith("        seq 4  step_started  run aaaaaaa1\n")
    assert max(map(len, printed.splitlines())) <= 80


def test_text_that_is_shown_is_only_text(
    judged: Callable[..., Judgement], capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b[31mred\ud800\u202e"
    judged(7, lambda *_: Judgement("broken", evil, evil, (evil,)))
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert printed.isascii()
    assert printed.count("red") == 3


def test_before_begin_nothing_is_judged(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judgement = lab.check("02.ex1", raises)
    assert judgement.verdict == "not judged"
    assert 'run the first cell: lab.begin("...")' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("exercise_id", "reason"),
    [
        ("02.ex1", "belongs to notebook 02 and 05 is open here"),
        ("05.nope", "there is no exercise '05.nope'"),
        (5, "there is no exercise 5"),
    ],
)
def test_an_exercise_of_elsewhere_is_not_judged(exercise_id: Any, reason: str, begun: Path) -> None:
    assert reason in lab.check(exercise_id, raises).reason


def test_tries_are_kept_and_what_held_stays_held(
    judged: Callable[..., Judgement], begun: Path
) -> None:
    judged(raises, returned)
    judged(lambda: 7, returned)
    judged(raises, returned)
    judged(..., returned)  # nobody has tried
    entry = progress.checks()["05.ex9"]
    assert entry["held"] is True
    assert entry["tries"] == 3
    assert entry["verdict"] == "broken"
    assert entry["answer"].startswith("def raises() -> object:")


def test_a_verdict_that_cannot_be_kept_is_given_all_the_same(
    judged: Callable[..., Judgement], begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (begun / "progress.json").write_text(json.dumps([1]), encoding="utf-8")
    assert judged(lambda: 7, returned).verdict == "held"
    assert "The verdict was not kept: " in capsys.readouterr().out
    assert json.loads((begun / "progress.json").read_text(encoding="utf-8")) == [1]


def test_the_end_counts_what_held(
    begun: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        content, "exercises", lambda number: [EXERCISE, EXERCISE._replace(id="05.ex8")]
    )
    verbs._open[-1].held.add("05.ex9")
    lab.end()
    assert "Exercises: 1 of 2 held." in capsys.readouterr().out


def test_after_the_end_an_exercise_can_still_be_checked(
    judged: Callable[..., Judgement], begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.end()
    assert judged(lambda: 7, returned).verdict == "held"
    assert progress.checks()["05.ex9"]["held"] is True
    with pytest.raises(lab.NotReady):
        lab.run("agent status notes")
    lab.begin("05")


def test_the_end_counts_what_had_held_before(
    judged: Callable[..., Judgement],
    begun: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged(lambda: 7, returned)
    monkeypatch.setattr(content, "exercises", lambda number: [EXERCISE])
    lab.begin("05")  # as after a reset
    lab.end()
    assert "Exercises: 1 of 1 held." in capsys.readouterr().out
    lab.begin("05")


def test_hints_come_one_by_one_and_the_last_shows_a_solution(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.begin("02")
    capsys.readouterr()
    for number in (1, 2, 3, 3):
        lab.hint("02.ex1")
        printed = capsys.readouterr().out
        assert printed.startswith(f"02.ex1, hint {number} of 3\n")
        assert ("def count_words" in printed) == (number == 3)
    lab.end()

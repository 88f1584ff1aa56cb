"""A learner's tool is killed around its call and in it; what stands in the way is told."""

from __future__ import annotations

import linecache
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from labkit import lab
from labkit.errors import StorageFault
from labkit.lab import content, sweeps
from labkit.lab.checks import Desk
from labkit.lab.exercises import n05
from labkit.lab.folder import Folder, fresh_folder
from labkit.lab.handing import NotSelfContained
from labkit.lab.places import originals
from labkit.lab.trials import Trial

TEXT = "the whole text"
STEPS = [{"tool": "tool", "input": {"text": TEXT}}]

RETURNS = "    return {}\n"
IN_TWO_LINES = (
    "    import os\n    os.makedirs('artifacts', exist_ok=True)\n"
    "    with open('artifacts/' + key, 'w') as file:\n        file.write(input['text'])\n"
    "    return {}\n"
)
IN_ONE_LINE = (
    "    from pathlib import Path\n    Path('artifacts').mkdir(exist_ok=True)\n"
    "    Path('artifacts', key).write_text(input['text'])\n    return {}\n"
)
IN_A_FUNCTION = (
    "    import os\n    def put(text):\n        os.makedirs('artifacts', exist_ok=True)\n"
    "        with open('artifacts/' + key, 'w') as file:\n            file.write(text)\n"
    "    put(input['text'])\n    return {}\n"
)


def typed(body: str) -> Any:
    """A tool as a notebook's cell defines it."""
    source = f"def tool(input, ctx, key):\n{body}"
    file = f"<cell {abs(hash(source))}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    cell: dict[str, Any] = {}
    exec(compile(source, file, "exec"), cell)
    return cell["tool"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(content.exercise("05.ex2"), lambda name: fresh_folder(tmp_path, name))


def try_it(desk: Desk, body: str, crash_at: str | None = "after_effect:0") -> Trial:
    return sweeps.try_tool(desk, typed(body), STEPS, crash_at)


def test_a_tool_is_killed_and_run_again(desk: Desk) -> None:
    trial = try_it(desk, RETURNS)
    assert trial.first.killed
    assert sweeps.is_sound(trial)
    assert sweeps.step_rows(trial, 0) == [
        "seq 3  step_started  run aaaaaaa1  attempt 1",
        "seq 4  step_recovered  run bbbbbbb2  attempt 1",
        "seq 6  step_started  run bbbbbbb2  attempt 2",
        "seq 7  step_finished  run bbbbbbb2  attempt 2",
    ]


def test_each_trial_has_a_folder_of_its_own(desk: Desk) -> None:
    folders = {try_it(desk, RETURNS).folder.path.name for _ in range(2)}
    assert folders == {"check-ex2-after_effect-0", "check-ex2-after_effect-0-2"}


def test_notes_of_the_check_take_the_place_of_the_usual_ones(desk: Desk) -> None:
    steps = [sweeps.FETCH, *STEPS]
    body = "    return ctx[0]['text']\n"
    usual = sweeps.try_tool(desk, typed(body), steps, None)
    other = sweeps.try_tool(desk, typed(body), steps, None, notes="two words")
    assert "pump" in usual.journal.steps().output[1]
    assert other.journal.steps().output[1] == '"two words"'


def test_a_plan_that_cannot_be_written_is_a_storage_fault(tmp_path: Path) -> None:
    with pytest.raises(StorageFault, match=r"cannot write plan\.json"):
        sweeps.give_plan(Folder(tmp_path / "gone"), STEPS)


def test_a_tool_that_cannot_be_handed_over_starts_nothing(desk: Desk) -> None:
    with pytest.raises(NotSelfContained, match="tool uses os from outside"):
        try_it(desk, "    os.getcwd()\n")


@pytest.mark.parametrize(
    ("body", "crash_at", "ending"),
    [
        (RETURNS, "after_effect:7", "not killed at after_effect:7: exit 64"),  # no such step
        ("    import os\n    os._exit(0)\n", None, "exit 0, and the task is not done."),
        ("    return {1}\n", "before_effect:0", "is of type set; build it of dict"),
        ("    raise ValueError('no')\n", "before_effect:0", "ValueError: no; mend it"),
    ],
)
def test_what_is_not_sound_says_how_it_ended(
    desk: Desk, body: str, crash_at: str | None, ending: str
) -> None:
    trial = try_it(desk, body, crash_at)
    assert not sweeps.is_sound(trial)
    assert ending in sweeps.ending(trial)


def test_a_broken_law_is_not_sound_and_is_named(desk: Desk) -> None:
    trial = try_it(desk, RETURNS)
    laws = [v._replace(verdict="broken", reason="so") if v.law == 5 else v for v in trial.verdicts]
    spoiled = trial._replace(verdicts=tuple(laws))
    assert not sweeps.is_sound(spoiled)
    assert sweeps.is_sound(spoiled, laws=(1, 2, 3, 4, 6))
    assert sweeps.ending(spoiled) == "law 5 is broken: so."


def test_a_tool_without_an_end_is_stopped(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "LIMIT_S", 0.6)
    with pytest.raises(sweeps.Unending, match=r"had not ended after 0\.6 s and was killed"):
        try_it(desk, "    while True:\n        pass\n", None)


@pytest.mark.parametrize("body", [IN_TWO_LINES, IN_A_FUNCTION])
def test_a_tool_is_killed_when_its_file_is_begun(desk: Desk, body: str) -> None:
    trial = sweeps.cut_tool(desk, typed(body), STEPS, TEXT)
    assert trial.first.killed
    assert sweeps.is_sound(trial), "the second run is left alone"
    assert (trial.folder.artifacts / "notes-0").read_text() == TEXT
    assert trial.journal.steps().attempts[0] == 2


@pytest.mark.parametrize("body", [IN_ONE_LINE, RETURNS])
def test_a_tool_without_such_a_moment_is_not_killed(desk: Desk, body: str) -> None:
    trial = sweeps.cut_tool(desk, typed(body), STEPS, TEXT)
    assert (trial.first.code, trial.journal.steps().attempts[0]) == (0, 1)


def test_side_by_side_keeps_the_order_and_makes_two_at_a_time() -> None:
    together = threading.Barrier(2, timeout=10)

    def meet(number: int) -> Callable[[], int]:
        return lambda: (together.wait(), number)[1]

    assert sweeps.side_by_side(map(meet, range(4))) == [0, 1, 2, 3]


def test_the_first_that_raises_ends_what_has_not_begun() -> None:
    begun = []

    def fail() -> NoReturn:
        raise ValueError("first")

    def later() -> None:
        begun.append(1)

    with pytest.raises(ValueError, match="first"):
        sweeps.side_by_side([fail, threading.Event().set, *[later] * 9])
    assert len(begun) < 9


def test_notebook_05_shows_the_plan_that_its_exercise_kills() -> None:
    text = (originals() / content.notebook("05").file).read_text(encoding="utf-8")
    for idx, step in enumerate(n05.STEPS):
        assert f"| {idx} | `{step['tool']}` |" in text
    assert f"`{n05.MORE[0]}`" in text


# Answers of another kind than the solution, and as good.
OTHER_ANSWERS = {
    "a ledger with the keys in it": (
        "05.ex2",
        "publish",
        """def publish(input, ctx, idem_key):
    import os

    os.makedirs("artifacts", exist_ok=True)
    with open("artifacts/all.txt", "a+") as file:
        file.seek(0)
        if idem_key not in file.read():
            file.write(f"{idem_key} {input['text']}\\n")
    return {"deduplicated": "perhaps"}
""",
    ),
    "a temporary file, renamed": (
        "05.ex2",
        "publish",
        """def publish(given, outputs, key):
    import os, tempfile

    os.makedirs("artifacts/of/mine", exist_ok=True)
    number, name = tempfile.mkstemp(dir="artifacts")
    with open(number, "w") as file:
        file.write(given["text"])
    os.replace(name, f"artifacts/of/mine/{key}")
    return name
""",
    ),
    "a tuple": ("05.ex1", "places", 'places = ("after_effect:5", "after_effect:3")\n'),
    "what comes after the last done": (
        "02.ex2",
        "left",
        """def left(steps):
    done = sum(step["status"] == "done" for step in steps)
    return range(done, len(steps))
""",
    ),
}


IN_THE_PROOF = {"a temporary file, renamed", "a tuple", "what comes after the last done"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.proof if name in IN_THE_PROOF else [])
        for name in OTHER_ANSWERS
    ],
)
def test_another_good_answer_holds_too(
    name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exercise, called, source = OTHER_ANSWERS[name]
    file = f"<answer {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    cell: dict[str, Any] = {}
    exec(compile(source, file, "exec"), cell)
    lab.begin(exercise[:2])
    assert lab.check(exercise, cell[called]).verdict == "held", capsys.readouterr().out

"""Agents broken on purpose: each must be killed by the case named for it, and only so."""

from __future__ import annotations

import ast
import shutil
from collections import Counter
from pathlib import Path

import pytest

from labkit.chaos import tracing
from labkit.chaos.matrix import GATE, Matrix, mutants_command, run_matrix
from labkit.chaos.mutants import PACKAGE, RIGHT, Mutant, count, plant, read_mutants
from labkit.chaos.mutants.cases import CASES, NEED_STRACE
from labkit.chaos.suite import SUITE, Agent, Case, run_suite, select, suite_command
from labkit.chaos.verdict import BROKEN, HELD, UNKNOWN, Verdict
from labkit.errors import BadInput, UsageError
from tests.restart.kit import needs_strace

MUTANTS = read_mutants()
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
CASE_NAMES = [case.name for case in CASES]
A_FEW = [BY_NAME[name] for name in ("running is done", "no lock", "late serialisation")]
EACH = pytest.mark.parametrize("mutant", MUTANTS, ids=BY_NAME)

# It does what the right agent does: nothing can kill it.
SAME = Mutant("same", "nothing", 1, "labkit/crashpoints.py", "import re\n", "import re \n")
# Its crash points kill nothing: an injector that does nothing.
BLUNT = Mutant(
    "blunt", "no kill", 1, "labkit/crashpoints.py", "os.kill(os.getpid(), signal.SIGKILL)", "pass"
)
FALLS_OVER = Mutant("falls over", "an error", 2, "labkit/restart/agent.py", "import re\n", "oops\n")
LATE_FALL = Mutant(  # it falls over only where a step is recovered
    "late fall", "an error", 2, "labkit/restart/store.py",
    '"step_recovered": ("pending", "")', '"step_recovered": 1 / 1',
)  # fmt: skip


# The data.


def test_there_are_at_least_thirteen_and_each_promise_is_in_danger() -> None:
    assert len(MUTANTS) >= 13
    assert len(BY_NAME) == len(MUTANTS)
    assert {mutant.promise for mutant in MUTANTS} == {1, 2, 3, 4, 5}


def test_the_suite_has_its_thirteen_cases() -> None:
    assert len(SUITE) == 13
    assert max(Counter(CASE_NAMES).values()) == 1
    assert SUITE[0].name == GATE


@EACH
def test_its_old_text_stands_once(mutant: Mutant) -> None:
    """An edit of the agent must not make a mutant vanish."""
    assert count(mutant) == 1
    assert mutant.old != mutant.new


@EACH
def test_it_names_cases_that_there_are(mutant: Mutant) -> None:
    named = [mutant.case, *mutant.also, *mutant.unsaid]
    assert max(Counter(named).values()) == 1
    assert set(named) <= set(CASE_NAMES) - {GATE}
    assert mutant.wrong
    assert "\n" not in mutant.wrong


@EACH
def test_it_is_one_small_difference(mutant: Mutant, tmp_path: Path) -> None:
    planted = plant(mutant, tmp_path)
    differ = [
        path.relative_to(planted).as_posix()
        for path in planted.rglob("*.py")
        if path.read_bytes() != (PACKAGE.parent / path.relative_to(planted)).read_bytes()
    ]
    assert differ == [mutant.file]
    ast.parse((planted / mutant.file).read_text("utf-8"))


@pytest.mark.parametrize("old", ["import ", "no such text"])
def test_a_mutant_whose_old_text_is_not_there_once_is_refused(tmp_path: Path, old: str) -> None:
    with pytest.raises(BadInput, match="same: its old text stands"):
        plant(SAME._replace(old=old), tmp_path)


# The matrix, without a process.


def matrix(mutant: Mutant, **outcomes: str) -> Matrix:
    cases = (CASES[0], *select(CASES, ["second runner", "control"]))
    cells = {
        (name, case.name): Verdict("suite", case.name, outcome, "why", True, "replay")
        for name, row in ((RIGHT.name, {}), (mutant.name, outcomes))
        for case in cases
        if (outcome := row.get(case.name.replace(" ", "_"), HELD))
    }
    return Matrix((RIGHT, mutant), cases, cells)


NAMED = SAME._replace(case="second runner")


def test_a_mutant_that_its_case_kills() -> None:
    seen = matrix(NAMED, second_runner=BROKEN)
    assert seen.killed(NAMED)
    assert seen.problems() == []
    assert seen.exit_code == 0


@pytest.mark.parametrize(
    ("outcomes", "code", "words"),
    [
        ({}, 1, "but by nothing"),
        ({"control": BROKEN}, 1, "but only by control"),
        ({"second_runner": UNKNOWN}, 2, "but by nothing"),
        ({"second_runner": BROKEN, "unharmed": UNKNOWN}, 2, "but only by second runner"),
        ({"second_runner": BROKEN, "unharmed": BROKEN}, 1, "but only by second runner, unharmed"),
        ({"second_runner": ""}, 1, "but by nothing"),
    ],
)
def test_a_mutant_that_is_not_killed_fails(outcomes: dict[str, str], code: int, words: str) -> None:
    seen = matrix(NAMED, **outcomes)
    assert not seen.killed(NAMED)
    assert words in seen.problems()[0]
    assert seen.exit_code == code


def test_a_case_that_must_stay_green_and_does_not() -> None:
    seen = matrix(NAMED, second_runner=BROKEN, control=BROKEN)
    assert seen.killed(NAMED)
    assert seen.problems() == ["same, control: broken, not held: why", "    replay"]
    assert seen.exit_code == 1
    foretold = matrix(NAMED._replace(also=("control",)), second_runner=BROKEN, control=BROKEN)
    assert foretold.problems() == []
    unsaid = NAMED._replace(unsaid=("control",))
    assert matrix(unsaid, second_runner=BROKEN, control=BROKEN).problems() == []
    assert matrix(unsaid, second_runner=BROKEN).problems() == []


def test_the_right_agent_must_be_held_and_something_be_tried() -> None:
    seen = matrix(NAMED, second_runner=BROKEN)
    cell = (RIGHT.name, "control")
    broken = seen._replace(cells={**seen.cells, cell: seen.cells[cell]._replace(outcome=BROKEN)})
    assert broken.problems()[0] == "right agent, control: broken, not held: why"
    assert broken.exit_code == 1
    assert Matrix((RIGHT,), CASES, {}).exit_code == 2


def test_table_text_and_picture_say_the_same() -> None:
    seen = matrix(NAMED, second_runner=BROKEN, control="")
    frame = seen.frame()
    assert list(frame.index) == ["right agent", "same"]
    assert frame.loc["same"].tolist() == [HELD, BROKEN, ""]
    assert seen.text().splitlines()[:3] == [
        "             a b c", "right agent  . . .", "same         . X"
    ]  # fmt: skip
    assert max(map(len, seen.text().splitlines())) <= 84
    assert len(seen.verdicts()) == 5
    picture = seen.draw()
    assert picture.table.equals(frame)
    assert "1 mutant, 1 killed by the case named in advance" in repr(picture)
    assert "right agent held in all; same broken in second runner." in picture.summary
    assert picture.summary in picture._repr_html_()


# Real agents.


def test_a_few_mutants_are_killed_by_their_cases() -> None:
    cases = select(CASES, [GATE, *(mutant.case for mutant in A_FEW)])
    seen = run_matrix(A_FEW, cases, only_named=True)
    assert seen.problems() == []
    assert seen.exit_code == 0
    assert len(seen.cells) == 4 + 2 * len(A_FEW)
    assert set(seen.frame().loc["right agent"]) == {HELD}


@pytest.mark.proof
def test_what_is_no_kill() -> None:
    """Nothing wrong, an injector that does nothing, an agent that falls over: no case is broken."""
    cases = select(CASES, [GATE, "before_effect:1", "control"])
    strange = [m._replace(case="before_effect:1") for m in (SAME, BLUNT, FALLS_OVER, LATE_FALL)]
    seen = run_matrix(strange, cases)
    assert seen.frame().to_numpy().tolist() == [
        [HELD, HELD, HELD],
        [HELD, HELD, HELD],
        [HELD, UNKNOWN, UNKNOWN],
        [UNKNOWN, UNKNOWN, UNKNOWN],
        [HELD, UNKNOWN, UNKNOWN],
    ]
    assert not any(seen.killed(mutant) for mutant in strange)
    assert "killed nothing" in seen.cells["blunt", "before_effect:1"].reason


def test_each_cell_has_a_line_that_tries_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--only", "late serialisation", "--case", "a set"]
    assert mutants_command(line) == 1
    out = capsys.readouterr().out
    assert "broken: serialisation a set: promise 4: the effect happened 3 times" in out
    assert "labkit chaos mutants --only 'late serialisation' --case 'a set'" in out
    assert mutants_command(["--only", RIGHT.name, "--case", "a set"]) == 0


def test_without_strace_a_cell_is_unknown_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracing, "STRACE", ("no-such-program",))
    assert mutants_command(["--only", "plain write", "--case", "publishing"]) == 2
    assert f"unknown: syscalls publishing: {tracing.NEEDS_STRACE}" in capsys.readouterr().out


def test_the_command_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants_command(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(MUTANTS)
    with pytest.raises(UsageError, match="no mutant 'x'; there are right agent, two"):
        mutants_command(["--only", "x"])
    with pytest.raises(UsageError, match="no case 'x'; there are unharmed, before"):
        mutants_command(["--case", "x"])


def test_a_package_that_is_not_there_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert suite_command(["--agent", "no_such_package", "--case", GATE]) == 2
    out = capsys.readouterr().out
    assert "1 planned, 0 delivered: 0 held, 0 broken, 1 unknown" in out
    assert "No module named no_such_package" in out


def test_the_suite_judges_a_package_of_a_learner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(PACKAGE / "restart", mine, ignore=shutil.ignore_patterns("__pycache__"))
    for path in mine.glob("*.py"):
        path.write_text(path.read_text("utf-8").replace("labkit.restart", "mine"), "utf-8")
    argv = ["--agent", "mine", "--path", str(tmp_path), "--case", "after_effect:2"]
    assert suite_command(argv) == 0
    store = mine / "store.py"
    recovery = BY_NAME["silent recovery"]
    store.write_text(store.read_text("utf-8").replace(recovery.old, recovery.new), "utf-8")
    assert suite_command(argv) == 1
    out = capsys.readouterr().out
    assert "law 3 broken" in out
    assert "1 planned, 1 delivered: 0 held, 1 broken, 0 unknown" in out
    assert f"python -m labkit.chaos.suite --agent mine --path {tmp_path} --case" in out


# All of it.


def can_be_tried() -> list[Case]:
    return [case for case in CASES if case.name not in NEED_STRACE]


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_the_right_agent_passes_the_suite() -> None:
    report = run_suite(Agent())
    assert str(report) == "13 planned, 13 delivered: 13 held, 0 broken, 0 unknown"
    assert report.exit_code == 0


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_every_case_over_every_mutant() -> None:
    """All that needs no strace."""
    seen = run_matrix([m for m in MUTANTS if m.case not in NEED_STRACE], can_be_tried())
    assert "\n".join(seen.problems()) == ""


@needs_strace
@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", select(CASES, sorted(NEED_STRACE)), ids=lambda case: case.name)
def test_every_mutant_under_strace(case: Case) -> None:
    """The right agent, and each mutant as it is foretold."""
    seen = run_matrix(MUTANTS, [CASES[0], case])
    wrong = [line for line in seen.problems() if "is not killed by" not in line]
    assert "\n".join(wrong) == ""
    named = [mutant for mutant in MUTANTS if mutant.case == case.name]
    assert named
    assert all(map(seen.killed, named))

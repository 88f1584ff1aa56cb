"""Durable runs broken on purpose: each must be killed by the case named for it, and only so."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from labkit.chaos.matrix import GATE, SYSTEMS, Matrix, mutants_command, run_matrix
from labkit.chaos.mutants import PACKAGE, RIGHT, Mutant, count, plant, read_mutants
from labkit.chaos.mutants.durable_cases import DURABLE_CASES
from labkit.chaos.suite import Case, select
from labkit.chaos.verdict import BROKEN, HELD, UNKNOWN

MUTANTS = read_mutants("durable")
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
CASE_NAMES = [case.name for case in DURABLE_CASES]
EACH = pytest.mark.parametrize("mutant", MUTANTS, ids=BY_NAME)
# The four that the contract names, and the controls of what is computed from the store.
FOUR = {"three commits", "failure apart", "confirm apart", "no epoch"}
CONTROLS = {"never waits", "always waits"}

# What does what the right one does, what falls over at a recovery, and whose kills kill nothing.
SAME = Mutant("same", "nothing", 1, "labkit/crashpoints.py", "import re\n", "import re \n", "calls")
FALLS_OVER = Mutant(
    "falls over", "an error", 2, "labkit/durable/recovery.py",
    "row = _ROWS", "assert last is not Last.CRASHED; row = _ROWS", "calls",
)  # fmt: skip
BLUNT = Mutant(
    "blunt", "no kill", 1, "labkit/crashpoints.py", "os.kill(os.getpid(), signal.SIGKILL)", "pass",
    "calls",
)  # fmt: skip


def try_named(*mutants: Mutant) -> Matrix:
    """Over each its unharmed run and the case named for it; over the right one all of these."""
    cases = select(DURABLE_CASES, dict.fromkeys([GATE, *(mutant.case for mutant in mutants)]))
    return run_matrix(mutants, cases, only_named=True, system="durable")


# The data.


def test_all_that_are_due_are_there() -> None:
    assert set(BY_NAME) >= FOUR | CONTROLS
    assert len(BY_NAME) == len(MUTANTS)
    assert {mutant.promise for mutant in MUTANTS} == {1, 2, 3, 4, 5}
    assert max(Counter(CASE_NAMES).values()) == 1
    assert CASE_NAMES[0] == GATE
    assert set(SYSTEMS) == {"restart", "durable"}


@EACH
def test_each_old_text_stands_once(mutant: Mutant, tmp_path: Path) -> None:
    """An edit of the system must not make a mutant vanish."""
    assert {(edit.file, count(edit)) for edit in mutant.edits} == {
        (edit.file, 1) for edit in mutant.edits
    }
    planted = plant(mutant, tmp_path)
    differ = {
        path.relative_to(planted).as_posix()
        for path in planted.rglob("*.py")
        if path.read_bytes() != (PACKAGE.parent / path.relative_to(planted)).read_bytes()
    }
    assert differ == {edit.file for edit in mutant.edits}
    assert all(file.startswith("labkit/durable/") for file in differ)
    for file in differ:
        ast.parse((planted / file).read_text("utf-8"))


@EACH
def test_it_names_cases_that_there_are(mutant: Mutant) -> None:
    named = [mutant.case, *mutant.also, *mutant.unsaid]
    assert max(Counter(named).values()) == 1
    assert set(named) <= set(CASE_NAMES) - {GATE}
    assert mutant.wrong
    assert "\n" not in mutant.wrong


# Real processes.


def test_the_published_order_of_writes_sends_twice() -> None:
    """Without the gate, which runs all that is unharmed: `make proof` tries that first."""
    mutant = BY_NAME["three commits"]
    seen = run_matrix([mutant], select(DURABLE_CASES, ["start"]), system="durable")
    assert (seen.outcome(RIGHT.name, "start"), seen.outcome(mutant.name, "start")) == (HELD, BROKEN)
    reason = seen.cells["three commits", "start"].reason
    assert "1 to send, sent: r:model-1.tool-1 1 times, r:model-1.tool-1+ 1 times" in reason


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_each_is_killed_by_the_case_named_for_it() -> None:
    seen = try_named(*MUTANTS)
    assert seen.problems() == []
    assert all(map(seen.killed, MUTANTS))
    assert set(seen.frame().loc[RIGHT.name]) == {HELD}


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_a_runtime_that_always_waits_fails_as_one_that_never_does() -> None:
    seen = try_named(*(BY_NAME[name] for name in sorted(CONTROLS)))
    reasons = {name: seen.cells[name, "calls"].reason for name in CONTROLS}
    assert "after kill 1 it waits 1 times, not 0" in reasons["always waits"]
    assert "after kill 1 it waits 0 times, not 1" in reasons["never waits"]


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_an_error_is_no_kill() -> None:
    """Nothing wrong, a recovery that falls over, an injector that does nothing."""
    seen = try_named(SAME, FALLS_OVER, BLUNT)
    outcomes = {name: seen.outcome(name, "calls") for name in ("same", "falls over", "blunt")}
    assert outcomes == {"same": HELD, "falls over": UNKNOWN, "blunt": UNKNOWN}
    assert not any(map(seen.killed, (SAME, FALLS_OVER, BLUNT)))


@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", DURABLE_CASES[1:], ids=CASE_NAMES[1:])
def test_every_mutant_as_it_is_foretold(case: Case) -> None:
    """The matrix, a column at a time: what must be broken is, and all else is held."""
    seen = run_matrix(MUTANTS, [DURABLE_CASES[0], case], system="durable")
    wrong = [line for line in seen.problems() if "is not killed by" not in line]
    assert "\n".join(wrong) == ""


def test_the_command_has_a_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants_command(["--system", "durable", "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in listed] == list(BY_NAME)
    assert mutants_command(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(read_mutants())


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_a_cell_has_a_line_that_tries_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--system", "durable", "--only", "confirm apart", "--case", "confirm"]
    assert mutants_command(argv) == 1
    said = capsys.readouterr().out
    assert "broken: statements confirm: 1 of " in said
    assert "CONFIRM_STEP is neither stored nor is the run still waiting" in said
    again = "labkit chaos mutants --system durable --only 'confirm apart' --case 'confirm'"
    assert again in said
    assert BROKEN in said

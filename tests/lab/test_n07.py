"""Broken agents in a notebook: what is shown of them, their trials, and a learner's own mutant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from labkit import lab
from labkit.chaos.mutants import RIGHT, plant, read_mutants
from labkit.chaos.suite import Agent
from labkit.chaos.tracing import require_strace
from labkit.errors import BadInput, NotFound, UsageError
from labkit.lab import breaking_mutants as breaking
from labkit.lab.checks import Judgement

WIDE = 84


@pytest.fixture(autouse=True)
def _begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    lab.begin("07")


@pytest.mark.parametrize("mutant", read_mutants(), ids=lambda mutant: mutant.name)
def test_a_difference_fits_a_screen_and_shows_what_changes(mutant: Any) -> None:
    lines = breaking.show(mutant).text.splitlines()
    assert max(map(len, lines)) <= WIDE
    assert lines[0] == f"# {mutant.file}"
    assert any(line.startswith("+") for line in lines)


def test_letters_do_not_tell_their_names() -> None:
    text = str(breaking.show_letters())
    assert all(f"# {letter}\n" in text for letter in breaking.LETTERS)
    assert not any(name in text for name in breaking.LETTERS.values())


def test_a_matrix_has_the_right_agent_first_and_a_kill_that_reaches_nobody_is_unknown() -> None:
    matrix = breaking.try_cases([breaking.BLUNT], ["unharmed", "before_effect:2"])
    assert [mutant.name for mutant in matrix.mutants] == [RIGHT.name, "blunt kill"]
    outcomes = [verdict.outcome for verdict in matrix.cells.values()]
    assert outcomes == ["held", "held", "held", "unknown"]


def test_a_trial_is_of_the_mutant_and_the_next_one_of_the_right_agent() -> None:
    lost = breaking.trial(breaking.named("running is done"), "before_effect:2")
    assert (lost.first.killed, lost.second.code, lost.effects) == (True, 0, [])
    assert lab.trial("before_effect:2").judgement == "held"


def test_no_such_mutant_and_no_such_case() -> None:
    with pytest.raises(UsageError, match="no mutant is called 'mine'; there are two transactions"):
        breaking.named("mine")
    with pytest.raises(UsageError, match="no case 'mine'"):
        breaking.try_cases([], ["mine"])
    with pytest.raises(BadInput, match="stands 0 times"):
        breaking.trial(breaking.BLUNT._replace(old="no such text"), "before_effect:2")


def test_a_report_that_is_written_in_place_is_seen_at_a_system_call(tmp_path: Path) -> None:
    try:
        require_strace()
    except NotFound as error:
        pytest.skip(str(error))
    package = plant(breaking.named("plain write"), tmp_path / "package")
    (tmp_path / "trials").mkdir()
    number, harm = breaking.first_broken_publishing(Agent(path=str(package)), tmp_path / "trials")
    assert number > 3
    assert harm
    assert "at the kill a reader finds" in harm.reason
    assert "artifacts" in harm.struck


def judged(exercise_id: str, answer: object) -> Judgement:
    return lab.check(exercise_id, answer)


STORE = "labkit/restart/store.py"


@pytest.mark.parametrize(
    ("mutant", "says"),
    [
        (None, 'a dict with "file"'),
        (("a", "b", "c"), 'a dict with "file"'),
        ({"file": STORE, "old": 1, "new": ""}, "must be texts"),
        ({"file": STORE, "old": "", "new": "x"}, "not found"),
        ({"file": "../etc/passwd", "old": "root", "new": ""}, "is no file of the agent"),
        ({"file": "labkit/crashpoints.py", "old": "os.kill", "new": ""}, "is no file of the agent"),
        ({"file": STORE, "old": "def record", "new": "def record"}, "nothing changes"),
    ],
)
def test_what_is_no_mutant_hears_why(mutant: object, says: str) -> None:
    judgement = judged("07.ex2", mutant)
    assert judgement.verdict == "not judged"
    assert says in judgement.reason


@pytest.mark.parametrize(
    "killers",
    [None, [], 3, "a set", {"A": "a set"}, {"A": [], "B": {}, "C": None}, {1: 2, "B": 1, "C": 1}],
)
def test_what_names_no_case_is_not_judged(killers: object) -> None:
    assert judged("07.ex1", killers).verdict == "not judged"


@pytest.mark.proof
def test_a_case_that_raises_or_never_ends_is_no_crash() -> None:
    def raises(exit_code: int, steps: list[Any], reports: list[str]) -> list[str]:
        raise KeyError(exit_code)

    assert judged("07.ex3", raises).verdict == "broken"
    assert judged("07.ex3", 7).verdict == "not judged"

"""Odd answers to the exercises of notebook 12: a verdict in words for each, and never a crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labkit import lab
from labkit.lab.pausing import pause
from labkit.lab.process import NotReady
from labkit.lab.solutions import read_answers

HELD = "run_id = :run_id AND lease_epoch = :epoch AND version = :version"
ODD_GUARDS: dict[str, tuple[Any, str, str]] = {
    "none": (None, "not judged", "This is a NoneType"),
    "a function": (lambda run: True, "not judged", "This is a function"),
    "empty": ("", "not judged", "Your answer is empty"),
    "with WHERE": (f"WHERE {HELD}", "not judged", "SQLite cannot read it"),
    "a whole update": ("UPDATE runs SET version = 2", "not judged", "SQLite cannot read it"),
    "a name nobody gives": ("run_id = :run", "not judged", ":run. The columns are run_id"),
    "a comment last": (f"{HELD} -- and no more", "broken", "five seconds after the end"),
    "all": ("TRUE", "broken", "changes another run too"),
    "nothing": ("FALSE", "broken", "your guard refuses the write"),
    "endless": (
        "EXISTS (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        " SELECT 1 FROM n WHERE i < 0)",
        "not judged",
        "interrupted",
    ),
    "free is none": (
        f"{HELD} AND (lease_owner IS NULL OR :now < lease_expires_at)",
        "broken",
        "after she gave the lease back: your guard lets the write pass",
    ),
}
GOOD_GUARDS = {
    "with the owner": f"{HELD} AND lease_owner = :owner AND lease_expires_at > :now",
    "by not": f"{HELD} AND NOT (:now >= lease_expires_at)",
    "with a comment": f"{HELD} AND :now < lease_expires_at -- half-open",
    "as a subquery": f"EXISTS (SELECT 1) AND {HELD} AND lease_expires_at - :now > 0",
}
ODD_VERDICTS: dict[str, tuple[Any, str]] = {
    "none": (None, "Keep the table"),
    "a list": (["stored"] * 7, "Keep the table"),
    "one row": ({"ann, 00:00:29": "stored"}, "Keep the table"),
}


@pytest.fixture(autouse=True)
def _begun(home: Path) -> Iterator[None]:
    lab.begin("12")
    yield
    lab.end()


@pytest.mark.parametrize(("guard", "verdict", "says"), ODD_GUARDS.values(), ids=ODD_GUARDS)
def test_an_odd_guard(guard: Any, verdict: str, says: str) -> None:
    judgement = lab.check("12.ex2", guard)
    assert (judgement.verdict, says in judgement.reason) == (verdict, True), judgement.reason


@pytest.mark.parametrize(
    "guard",
    [
        pytest.param(guard, id=name, marks=[] if name == "with the owner" else pytest.mark.proof)
        for name, guard in GOOD_GUARDS.items()
    ],
)
def test_another_good_guard(guard: str) -> None:
    judgement = lab.check("12.ex2", guard)
    assert judgement.verdict == "held", judgement.reason
    assert judgement.rows[-1].startswith("ann, woken: LeaseNotHeldError")


@pytest.mark.parametrize(("verdicts", "says"), ODD_VERDICTS.values(), ids=ODD_VERDICTS)
def test_odd_verdicts(verdicts: Any, says: str) -> None:
    judgement = lab.check("12.ex1", verdicts)
    assert (judgement.verdict, says in judgement.reason) == ("not judged", True)


def test_a_value_that_is_no_word_is_named() -> None:
    cell: dict[str, Any] = {}
    exec(read_answers("12.ex1").solution, cell)
    odd = {**cell["verdicts"], "ann, 00:00:29": ["stored"]}
    assert "['stored'] is none of the three" in lab.check("12.ex1", odd).reason


def test_a_guard_that_knows_the_cases_falls_to_the_real_zombie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last trial is real: without the cases before it, it alone finds the zombie."""
    monkeypatch.setattr("labkit.lab.exercises.n12.CASES", {})
    judgement = lab.check("12.ex2", "run_id = :run_id AND :now < lease_expires_at")
    assert judgement.verdict == "broken"
    assert "A real ann, paused and woken: exit 0: done" in judgement.reason


def test_a_cell_that_runs_twice_says_where_a_fresh_folder_comes_from() -> None:
    lab.run("dispatch go pump")
    late = lab.start("dispatch go pump", AGENT_HOLD="model-1")
    with pytest.raises(NotReady, match=r"run pump is SUCCEEDED.*lab\.begin or lab\.fresh"):
        pause(late)

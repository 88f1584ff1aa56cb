"""What is promised has a test, and each such test has a control that `make controls` turns red."""

import re
from pathlib import Path

import pytest

from tests import controls
from tests.controls import ROOT, Control, End, judge, not_green, read_controls

# The rows of the contract's list of what a careful reader will try, then its other sections.
ROWS = [
    "create killed anywhere",
    "task ids",
    "plans",
    "tool returns",
    "tool raises",
    "killed after the effect of the last allowed attempt",
    "two runners",
    "a forked child outlives the agent",
    "a command outlives the killed agent",
    "database deleted, replaced or truncated",
    "garbage, newer, not ours, read-only, disk full, fsync error",
    "8 processes create at the same moment",
    "stdout in ASCII or cp1252",
    "notes files",
    "clock jumps back",
    "10,000 steps",
    "publishing a file exactly once",
    "the five promises",
    "exit codes",
    "environment",
    "tables, triggers, view, pragmas",
]
CONTROLS = read_controls()


def functions(file: str) -> set[str]:
    source = (ROOT / file).read_text("utf-8")
    return {f"{file}::{name}" for name in re.findall(r"^(?:async )?def (test_\w+)", source, re.M)}


def careful_reader() -> set[str]:
    files = (ROOT / "tests" / "restart").glob("test_careful_reader_*.py")
    return set().union(*(functions(f"tests/restart/{file.name}") for file in files))


def test_every_row_has_a_test_and_a_control() -> None:
    assert {control.row for control in CONTROLS} >= set(ROWS)  # the lab has rows of its own


def test_every_test_of_a_row_has_a_control() -> None:
    controlled = {control.test.partition("[")[0] for control in CONTROLS}
    assert careful_reader() - controlled - NO_CONTROL == set()


# The first is a control itself, of the witness; the second is a longer form of another test.
NO_CONTROL = {
    "tests/restart/test_careful_reader_input.py::test_the_witness_sees_what_the_journal_says",
    "tests/restart/test_careful_reader_storage.py::test_many_flipped_bits_of_a_database",
}


@pytest.mark.parametrize("control", CONTROLS, ids=range(len(CONTROLS)))
def test_a_control_applies_to_the_code_as_it_is(control: Control) -> None:
    """Its test exists, and the line it breaks stands exactly once."""
    assert control.test.partition("[")[0] in functions(control.test.partition("::")[0])
    assert (ROOT / control.file).read_text("utf-8").count(control.old) == 1
    assert control.old != control.new


@pytest.mark.parametrize(
    ("ends", "red"),
    [
        ([("failure", "AssertionError: Ran(code=0)")], True),
        ([("failure", "assert 0 == 74")], True),
        ([("failure", "Failed: DID NOT RAISE")], True),
        ([("passed", ""), ("failure", "assert False")], True),
        ([("passed", "")], False),
        ([("skipped", "strace is missing")], False),
        ([], False),
        ([("error", "ImportError: no such name")], False),
        ([("failure", "NameError: name 'x' is not defined")], False),
        ([("failure", "Failed: Timeout (>60.0s) from pytest-timeout.")], False),
        ([("failure", "assert False"), ("error", "fixture failed")], False),
    ],
)
def test_what_counts_as_red(ends: list[tuple[str, str]], red: bool) -> None:
    result = judge([End("test", *end) for end in ends])
    assert result.red is red
    assert bool(result.why)


@pytest.mark.parametrize(
    ("second", "lines"),
    [
        ("passed", ["UNSTEADY  tests.a.test_b::test_c[1]: failure assert 0"]),
        ("failure", ["NOT GREEN  tests.a.test_b::test_c[1]: failure assert 0"]),
        ("skipped", ["NOT GREEN  tests.a.test_b::test_c[1]: failure assert 0"]),
    ],
)
def test_what_is_not_green_is_asked_again_by_itself_and_told(
    second: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["tests/a/test_b.py::test_c", "tests/a/test_b.py::test_d"]
    asked = []

    def run_tests(folder: Path, *tests: str) -> list[End]:
        asked.append(list(tests))
        how = "failure" if len(asked) == 1 else second
        ends = [End("tests.a.test_b::test_c[1]", how, "assert 0\nmore")]
        return [*ends, End("tests.a.test_b::test_d", "passed", "")][: len(tests)]

    monkeypatch.setattr(controls, "run_tests", run_tests)
    chosen = [Control("row", test, "file", "old", "new") for test in names]
    assert list(not_green(Path(), chosen)) == lines
    assert asked == [names, names[:1]]

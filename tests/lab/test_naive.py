"""The agent without a journal: what it takes on its command line, and what it says of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.lab.folder import Folder, fresh_folder

TAKES_STEPS = """
def take_steps(steps, call):
    done = {}
    for step in steps:
        done[step["idx"]] = call(step, done)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return fresh_folder(tmp_path, "naive")


def naive(folder: Folder, arguments: str, tools: str = TAKES_STEPS) -> tuple[int, str]:
    (folder.path / "tools.py").write_text(tools, encoding="utf-8")
    result = folder.start(f"naive {arguments}", {}).finish()
    return result.code, result.output


def test_a_function_of_a_file_takes_the_steps(folder: Folder) -> None:
    of_its_own = naive(folder, "plan.json")
    assert naive(folder, "plan.json --tools tools.py") == of_its_own
    assert of_its_own[0] == 0
    assert of_its_own[1].endswith("step 2: write_artifact was called\nthe plan is done\n")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("", 64, "give the file of the plan"),
        ("plan.json tools.py", 64, "'tools.py' is not --tools FILE"),
        ("missing.json", 66, "missing.json: No such file"),
        ("tools.py", 65, "is not JSON"),
        ("plan.json --tools missing.py", 66, "no file missing.py"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    folder: Folder, arguments: str, code: int, says: str
) -> None:
    ended, output = naive(folder, arguments)
    assert ended == code
    assert output.startswith("naive: ")
    assert says in output
    assert output.count("\n") == 1


@pytest.mark.parametrize(
    ("tools", "says"),
    [
        ("import os", "tools.py defines 0 functions"),
        (
            "def take_steps(steps, call):\n    1 / 0",
            "ZeroDivisionError: division by zero, in: 1 / 0",
        ),
        ("def take_steps(steps, call):\n    call(steps[1], [{}])", "step 0 gave no text"),
    ],
)
def test_a_function_that_cannot_take_the_steps_is_one_line(
    folder: Folder, tools: str, says: str
) -> None:
    code, output = naive(folder, "plan.json --tools tools.py", tools)
    assert code > 0
    assert says in output.splitlines()[-1]
    assert "the plan is done" not in output

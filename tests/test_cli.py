"""The command `labkit`: what it says, what it returns, and how little it imports."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit import cli
from tests.conftest import RunAgent


def test_help_names_every_command(run_labkit: RunAgent) -> None:
    ran = run_labkit("--help")
    assert ran.code == 0
    assert all(f"  {name} " in ran.out for name in cli.COMMANDS)


@pytest.mark.parametrize("args", [(), ("nonsense",), ("--version",)], ids=str)
def test_an_unknown_command_is_one_line_and_64(run_labkit: RunAgent, args: tuple[str, ...]) -> None:
    ran = run_labkit(*args)
    assert ran.code == 64
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert all(name in ran.err for name in cli.COMMANDS)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_leads_to_a_function_of_argv(command: str) -> None:
    module, function, _ = cli.COMMANDS[command]
    inspect.signature(getattr(importlib.import_module(module), function)).bind([])


def test_the_agent_answers_under_the_name_that_was_typed(run_labkit: RunAgent) -> None:
    ran = run_labkit("agent", "status", "nobody")
    assert ran.code == 66
    assert ran.err.startswith("labkit agent: ")


@pytest.mark.parametrize("args", [["--help"], ["demo", "--help"]], ids=str)
def test_a_reader_that_has_left_is_met_quietly(folder: Path, args: list[str]) -> None:
    """As in `labkit demo | head -n 1`, without the race: nobody reads from the start."""
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "labkit", *args]
    with os.fdopen(writing, "wb") as pipe:
        ran = subprocess.run(argv, cwd=folder, stdout=pipe, stderr=subprocess.PIPE, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_an_error_is_one_line_in_any_terminal(run_labkit: RunAgent) -> None:
    ran = run_labkit("doctor", "--п\nq", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert (ran.code, ran.err) == (64, "labkit doctor: doctor takes no argument, not '--п\\nq'\n")


def test_choosing_a_command_imports_none_of_the_others(run_labkit: RunAgent) -> None:
    run_labkit("agent", "create", "t", "plan.json")
    ran = run_labkit("agent", "status", "t", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert json.loads(ran.out)["task"] == "t"
    assert "labkit.restart" in ran.err
    assert not [name for name in ("labkit.lab", "labkit.journal", "pandas") if name in ran.err]

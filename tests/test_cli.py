"""The command `labkit`: what it says, what it returns, and how little it imports."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from labkit import __version__, cli
from tests.conftest import RunAgent


def test_help_names_every_command(run_labkit: RunAgent) -> None:
    ran = run_labkit("--help")
    assert ran.code == 0
    assert all(f"  {name} " in ran.out for name in cli.COMMANDS)


@pytest.mark.parametrize("args", [(), ("nonsense",), ("--verbose",)], ids=str)
def test_an_unknown_command_is_one_line_and_64(run_labkit: RunAgent, args: tuple[str, ...]) -> None:
    ran = run_labkit(*args)
    assert ran.code == 64
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert all(name in ran.err for name in cli.COMMANDS)


def test_the_version_is_that_of_the_package(run_labkit: RunAgent) -> None:
    assert run_labkit("--version") == (0, f"labkit {__version__}\n", "")


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


# Each command with a mistake of its kind, and the code that it must keep in every terminal.
MISTAKES = [
    (["agent", "run", "nobody"], 66),
    (["demo", "now"], 64),
    (["doctor", "now"], 64),
    (["journal", "story", "nothing.db", "t"], 66),
    (["open", "77"], 66),
    (["progress", "now"], 64),
    (["reset"], 64),
    (["runs", "show", "nobody"], 66),
    (["nonsense"], 64),
]


def open_unreadable(how: str) -> BinaryIO:
    if how == "full":
        if not os.path.exists("/dev/full"):
            pytest.skip("no /dev/full here")
        return open("/dev/full", "wb")
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "wb")


@pytest.mark.parametrize("stderr", ["no reader", "closed", "full"])
@pytest.mark.parametrize(("args", "code"), MISTAKES, ids=str)
def test_the_exit_code_stands_where_nobody_reads(
    args: list[str], code: int, stderr: str, folder: Path
) -> None:
    """A closed standard error must not send the complaint to where the data goes, either."""
    argv = [sys.executable, "-m", "labkit", *args]
    if stderr == "closed":
        argv = ["sh", "-c", f"{shlex.join(argv)} 2>&-"]
    with open_unreadable(stderr) as unread:
        ran = subprocess.run(argv, cwd=folder, stdout=subprocess.PIPE, stderr=unread, check=False)
    assert (ran.returncode, ran.stdout) == (code, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["doctor"],
        ["journal", "--help"],
        ["open", "--help"],
        ["progress"],
        ["runs", "--help"],
    ],
    ids=str,
)
def test_a_full_disk_is_one_line_and_74(args: list[str], folder: Path) -> None:
    argv = [sys.executable, "-m", "labkit", *args]
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(argv, cwd=folder, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ran.returncode, ran.stderr.count(b"\n")) == (74, 1)
    assert b"No space left" in ran.stderr


@pytest.mark.parametrize("args", [["doctor", "--help"], ["journal", "story", "state.db", "t"]])
def test_a_closed_output_is_no_error(args: list[str], run_labkit: RunAgent, folder: Path) -> None:
    run_labkit("agent", "create", "t", "plan.json")
    line = f"{shlex.join([sys.executable, '-m', 'labkit', *args])} >&-"
    ran = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, check=False)
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

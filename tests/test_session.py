"""What conftest.py of the checkout promises for every session, seen failing on purpose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import run_python

CONFTEST = Path(__file__).parents[1] / "conftest.py"

LEAVES_A_CHILD = """\
import os, pathlib, subprocess, sys
def test_it():
    os.environ["LABKIT_SESSION"] = "another"
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    child.returncode = 0  # so that Popen itself does not complain of it
    pathlib.Path("pid").write_text(str(child.pid))
"""
LOOKS_AROUND = """\
import os
def test_it():
    assert [name for name in os.environ if name.startswith("AGENT_")] == []
    assert os.environ["LABKIT_HOME"] != "mine"
"""


MARKS_OF_WORKERS = """
import os, pathlib, pytest
@pytest.mark.parametrize("number", range(8))
def test_a_mark(number):
    pathlib.Path(os.environ["PYTEST_XDIST_WORKER"]).write_text(os.environ["LABKIT_TESTS"])
"""
TWO_WORKERS = ("-p", "xdist.plugin", "-n", "2")
QUICK = ("-p", "tests.quick_imports")


def run_pytest(folder: Path, test: str, *words: str) -> subprocess.CompletedProcess[str]:
    text = CONFTEST.read_text("utf-8")
    (folder / "conftest.py").write_text(text.replace("PATIENCE_S = 5.0", "PATIENCE_S = 0.1"))
    (folder / "test_inner.py").write_text(test)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env={
            **os.environ,
            "AGENT_CRASH_AT": "after_effect:0",
            "LABKIT_HOME": "mine",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # only conftest.py is looked at here
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_callers_settings_reach_no_test(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, LOOKS_AROUND)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_a_process_left_alive_turns_the_session_red_and_is_ended(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, LEAVES_A_CHILD)
    assert "1 passed" in ran.stdout
    assert "left alive by a test: " in ran.stdout
    assert ran.returncode == 1
    assert has_ended((tmp_path / "pid").read_text())


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_what_a_worker_leaves_alive_is_found_and_no_worker_finds_the_others(tmp_path: Path) -> None:
    inner = LOOKS_AROUND.replace("test_it", "test_around") + LEAVES_A_CHILD + MARKS_OF_WORKERS
    ran = run_pytest(tmp_path, inner, *TWO_WORKERS)
    assert "10 passed" in ran.stdout
    assert "left alive by a test: " in ran.stdout
    assert ran.returncode == 1
    assert has_ended((tmp_path / "pid").read_text())
    first, second = ((tmp_path / name).read_text() for name in ("gw0", "gw1"))
    assert first.removesuffix("-gw0") == second.removesuffix("-gw1")
    assert first != second


def has_ended(pid: str) -> bool:
    """Gone, or waiting to be reaped by whoever adopted it: then it has no command line any more."""
    try:
        return not Path("/proc", pid, "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.proof
def test_of_a_sampled_test_one_case_is_for_every_day_and_the_others_are_proof() -> None:
    test = "tests/restart/test_environment.py::test_64_a_bad_value"
    cases = [
        run_python(
            "-m", "pytest", *QUICK, "-q", "--collect-only", "-m", mark, test, cwd=CONFTEST.parent
        ).out.count(test)
        for mark in ("", "not proof", "proof")
    ]
    assert cases[0] > 2
    assert cases[1:] == [1, cases[0] - 1]

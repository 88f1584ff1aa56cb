"""The demo, in a real process: it kills, resumes, prints the same each time and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.lab import demo
from tests.conftest import RunAgent


def test_the_demo_kills_and_resumes_and_says_the_same_twice(
    run_labkit: RunAgent, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    # A setting in the caller's shell must not reach the demo's agent.
    env = {"TMPDIR": str(temporary), "AGENT_CRASH_AT": "before_effect:0"}
    first, second = run_labkit("demo", env=env), run_labkit("demo", env=env)
    assert first == second
    assert (first.code, first.err) == (0, "")
    for said in ("[killed by SIGKILL]", "[exit 0: done]", "running   1", "deduplicated", "R "):
        assert said in first.out
    assert str(temporary) not in first.out
    assert os.listdir(temporary) == []


def test_the_demo_fits_a_terminal_of_80_columns(run_labkit: RunAgent) -> None:
    lines = run_labkit("demo").out.splitlines()
    assert sum(line.startswith("run ") for line in lines) == 3  # one run, then two
    assert [line for line in lines if len(line) > 80] == []


def test_the_demo_says_so_when_a_promise_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The control: a crash point that is never reached leaves nothing to resume."""
    monkeypatch.setattr(demo, "CRASH_AT", "after_effect:99")
    assert demo.main([]) == 1
    assert "not what the agent promises" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_closed_terminal_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    argv = [sys.executable, "-u", "-m", "labkit", "demo"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        argv, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as demo_process:
        assert demo_process.stdout is not None
        demo_process.stdout.readline()
        demo_process.send_signal(number)
        _, said = demo_process.communicate()
    assert (demo_process.returncode, said) == (130, "labkit demo: interrupted\n")
    assert os.listdir(tmp_path) == []


def test_an_argument_is_refused_in_one_line(run_labkit: RunAgent) -> None:
    ran = run_labkit("demo", "now")
    assert (ran.code, ran.err) == (64, "labkit demo: demo takes no argument, not 'now'\n")

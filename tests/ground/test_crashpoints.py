"""A crash point kills exactly there, and a typo is no crash that was survived."""

import subprocess
import sys

import pytest

from labkit.crashpoints import CrashPoints
from labkit.errors import UsageError

NAMES = ("before", "after")
SCRIPT = """
import atexit, sys
from labkit.crashpoints import CrashPoints
atexit.register(print, "clean-up")
points = CrashPoints(("before", "after"), sys.argv[1])
try:
    for idx in range(12):
        for point in ("before", "after"):
            print(point, idx, flush=True)
            points.reach(point, idx)
finally:
    print("finally")
"""


@pytest.mark.parametrize("asked", ["before:0", "after:3", "before:11"])
def test_it_dies_there_and_runs_no_clean_up(asked: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, asked], capture_output=True, text=True)
    assert done.returncode == -9
    assert done.stdout.splitlines()[-1] == asked.replace(":", " ")


@pytest.mark.parametrize("asked", ["", "after:12"])
def test_elsewhere_it_lives(asked: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, asked], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-2:] == ["finally", "clean-up"]


@pytest.mark.parametrize(
    "asked", ["before", "before:", ":0", "Before:0", "before:x", "before:-1", "before:0 ", "b.*:1"]
)
def test_a_value_that_names_no_point(asked: str) -> None:
    with pytest.raises(UsageError, match="before or after"):
        CrashPoints(NAMES, asked)

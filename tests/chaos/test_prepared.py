"""A setup runs once where a copy of what it left is the same, and each time where it is not."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from labkit.chaos.points import FastWorkshop
from labkit.chaos.scenario import Scenario, Workshop

SETUP = """
echo once >> "$WITNESS"; echo x >> ../../ran
echo word > kept; ln -s kept link; mkdir -p a/b
"""
OTHER = {  # a copy would lead back to the first trial, or cannot be made
    "names its folder": 'echo "at $PWD" > a/b/config',
    "links to its folder": 'ln -s "$PWD/kept" a/b/absolute',
    "has a pipe": "mkfifo a/b/pipe",
}


def scenario(more: str = "") -> Scenario:
    return Scenario(["cat", "link"], ["sh", "-c", SETUP + more], files=["kept", "link"])


def require_the_same_thrice(made: Workshop) -> None:
    for _ in range(3):
        with made.open() as trial:
            assert (trial.folder / "link").is_symlink()
            assert (trial.folder / "link").read_text() == "word\n"
            assert trial.call(trial.scenario.run).code == 0
            assert made.judge(trial) == ("held", "")  # the effect of the setup is there


def test_what_the_setup_left_is_copied(tmp_path: Path) -> None:
    require_the_same_thrice(Workshop(scenario(), tmp_path))
    assert (tmp_path / "ran").read_text() == "x\n"


def test_a_fast_workshop_copies_it_too(tmp_path: Path) -> None:
    with FastWorkshop(scenario(), tmp_path) as made:
        require_the_same_thrice(made)
    assert (tmp_path / "ran").read_text() == "x\n"


@pytest.mark.parametrize("more", OTHER.values(), ids=OTHER.keys())
def test_a_setup_that_is_not_the_same_elsewhere_is_repeated(more: str, tmp_path: Path) -> None:
    made = Workshop(scenario(more), tmp_path)
    with made.open() as trial:
        if (config := trial.folder / "a/b/config").exists():
            assert config.read_text() == f"at {trial.folder}\n"
    assert (tmp_path / "ran").read_text() == "x\nx\n"


def test_a_copy_has_the_modes_and_times_too(tmp_path: Path) -> None:
    made = Workshop(
        scenario("chmod 750 kept; chmod 700 a/b; touch -d @1000000000 kept a"), tmp_path
    )
    with made.open() as trial:
        seen = {name: (trial.folder / name).stat() for name in ("kept", "a", "a/b")}
    assert [stat.S_IMODE(seen[name].st_mode) for name in ("kept", "a/b")] == [0o750, 0o700]
    assert [seen[name].st_mtime for name in ("kept", "a")] == [1e9, 1e9]
    assert (tmp_path / "ran").read_text() == "x\n"

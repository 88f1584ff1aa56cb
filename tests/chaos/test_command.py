"""`labkit chaos` on a program that never heard of labkit, and on the lab's own agent."""

from __future__ import annotations

import csv
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from labkit import cli
from tests.conftest import Ran, run_python

needs_strace = pytest.mark.skipif(
    not shutil.which("strace"), reason="needs strace; on Debian and Ubuntu: apt-get install strace"
)
# Three steps in a shell. `mv` makes each step whole; the effect has a key and is looked for first.
CAREFUL = """
for step in one two three; do
  test -e "$step" && continue
  echo "$step" > "$step.tmp"
  grep -qs "^$step$" "$WITNESS" || echo "$step" >> "$WITNESS"
  mv "$step.tmp" "$step"
done
"""
NAIVE = CAREFUL.replace('grep -qs "^$step$" "$WITNESS" || ', "")
CHECK = "test -e one && test -e two && test -e three"


def chaos(*words: str, cwd: Path) -> Ran:
    return run_python("-m", "labkit", "chaos", *words, cwd=cwd)


def program(text: str, folder: Path) -> list[str]:
    (folder / "material").mkdir()
    (folder / "material" / "steps.sh").write_text(text, encoding="utf-8")
    check = shlex.join(["sh", "-c", CHECK])
    return ["--material", "material", "--run", "sh steps.sh", "--check", check]


@needs_strace
def test_a_shell_script_that_looks_first_is_held(tmp_path: Path) -> None:
    ran = chaos("sweep", "--how", "syscalls", *program(CAREFUL, tmp_path), cwd=tmp_path)
    assert ran.out.endswith(" held, 0 broken, 0 unknown\n"), ran
    assert ran.code == 0
    assert not ran.out.startswith("0 planned")


@pytest.mark.proof
@needs_strace
def test_one_that_does_not_is_broken_and_can_be_replayed(tmp_path: Path) -> None:
    words = program(NAIVE, tmp_path)
    ran = chaos("sweep", "--how", "syscalls", "--csv", "trials.csv", *words, cwd=tmp_path)
    assert ran.code == 1, ran
    assert "happened 2 times, unharmed 1" in ran.out
    text = (tmp_path / "trials.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    broken = next(row for row in rows if row["outcome"] == "broken")
    assert broken["replay"].startswith("labkit chaos replay ")
    again = chaos(*shlex.split(broken["replay"])[2:], cwd=tmp_path)
    assert again.code == 1
    *_, where, how_to_remove = again.out.splitlines()
    kept = Path(where.partition("what the trial left is in ")[2])
    assert (kept / "steps.sh").exists()
    root = kept.parents[1]
    assert root.name.startswith("labkit-chaos-")
    assert how_to_remove.endswith(f"; to remove all of it: rm -r {root}")
    shutil.rmtree(root)


def test_the_agent_is_what_is_meant_without_a_program(tmp_path: Path) -> None:
    ran = chaos("sweep", cwd=tmp_path)
    assert (ran.code, ran.out) == (0, "9 planned, 9 delivered: 9 held, 0 broken, 0 unknown\n"), ran
    assert list(tmp_path.iterdir()) == []


@pytest.mark.proof
@needs_strace
def test_two_kills(tmp_path: Path) -> None:
    ran = chaos("twice", "--number", "4", cwd=tmp_path)
    assert (ran.code, ran.out) == (0, "4 planned, 4 delivered: 4 held, 0 broken, 0 unknown\n"), ran


def test_a_program_that_declares_no_point_shows_nothing(tmp_path: Path) -> None:
    ran = chaos("sweep", "--run", f"{shlex.quote(sys.executable)} -c pass", cwd=tmp_path)
    assert ran.code == 2
    assert "no injury was delivered, so this sweep proves nothing" in ran.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nope"], "there is no `labkit chaos nope`"),
        (["sweep", "--how", "nope"], "invalid choice: 'nope'"),
        (["sweep", "--every", "0"], "'0' is no number from 1 on"),
        (["sweep", "--check", "true"], "--run says which program is to be broken"),
        (["sweep", "--run", "no-such-program"], "cannot start no-such-program"),
        (["sweep", "--run", "sh '"], "close the quote"),
        (["sweep", "--run", "true", "--material", "no"], "there is no such folder"),
        (["sweep", "--run", "true", "--setup", "false"], "the setup exits 1"),
        (["sweep", "--run", "true", "--check", "false"], "not even the unharmed run holds"),
        (["replay", "nope:1", "--how", "statements"], "no nope:1; there are statement:1 to"),
        (["replay", "x", "--how", "random"], "a kill by chance is named like this: seed:3"),
        (["replay", "x"], "required: --how"),
    ],
)
def test_what_is_wrong_is_one_line(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """In this process: to start the command takes longer than all it does here."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["chaos", *words]) in (64, 66)
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert says in said.err


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_names_every_command(words: list[str], tmp_path: Path) -> None:
    ran = chaos(*words, cwd=tmp_path)
    assert ran.code == 0
    for command in ("sweep", "twice", "faults", "powerloss", "replay", "mutants", "examples"):
        assert f"  {command} " in ran.out

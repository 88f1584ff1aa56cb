"""What somebody put where an agent's effects are looked for holds up nobody who looks there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from labkit import lab
from labkit.errors import BadInput, StorageFault
from labkit.journal.bounded import LARGEST, LARGEST_LIST
from labkit.lab import cells, evidence, grid, progress, runs, verbs, windows
from labkit.lab.exercises import n05
from labkit.lab.exercises.published import artifacts_of
from labkit.lab.scenarios import dispatch
from tests.journal.test_bounded import at_most, sparse


@pytest.fixture
def folder(begun: Path) -> Path:
    return verbs.current_folder().path


@pytest.mark.parametrize("name", [dispatch.OUTBOX, dispatch.CALLS])
def test_a_pipe_in_the_place_of_a_witness_is_one_line(name: str, folder: Path) -> None:
    os.mkfifo(folder / name)
    read = {dispatch.OUTBOX: runs.outbox, dispatch.CALLS: windows.calls}[name]
    with at_most(5), pytest.raises(BadInput, match=rf"{name} cannot be read: .*; move it away"):
        read()
    (folder / name).unlink()
    sparse(folder / name, LARGEST_LIST + 1)
    with pytest.raises(BadInput, match=r"more than 2 MB; move it away"):
        read()


def test_a_pipe_among_the_tickets_of_a_trial_is_one_line(folder: Path) -> None:
    bench = cells.DurableBench(verbs.current_notebook(), grid.AGENTS["durable"], "dispatch", False)
    os.mkfifo(folder / dispatch.TICKETS)
    with at_most(5), pytest.raises(BadInput, match="no regular file"):
        bench._effects(verbs.current_folder())
    bench.close()


@pytest.mark.parametrize(
    ("name", "size", "said"),
    [("large.md", LARGEST + 1, "64 MB"), ("report.log", LARGEST_LIST + 1, "2 MB")],
)
def test_a_report_that_is_too_large_is_one_line(
    name: str, size: int, said: str, folder: Path
) -> None:
    (folder / "artifacts").mkdir()
    sparse(folder / "artifacts" / name, size)
    line = rf"{name} cannot be read: it has more than {said}; move it away"
    for read in (lab.reports, lab.witness):
        with pytest.raises(BadInput, match=line):
            read()
    sparse(folder / "artifacts" / name, size - 1)
    lab.reports()


def test_many_reports_are_as_much_as_one(folder: Path) -> None:
    (folder / "artifacts").mkdir()
    for number in range(3):
        sparse(folder / "artifacts" / f"{number}.md", LARGEST // 2)
    with pytest.raises(BadInput, match="artifacts have more than 64 MB together; move some"):
        lab.reports()
    (folder / "artifacts" / "1.md").unlink()
    assert len(lab.reports()) == 2


def test_what_is_no_file_is_no_report(folder: Path) -> None:
    (folder / "artifacts").mkdir()
    os.mkfifo(folder / "artifacts" / "pipe.md")
    (folder / "artifacts" / "zero.md").symlink_to("/dev/zero")
    with at_most(5):
        assert evidence.find_reports(verbs.current_folder()) == []


def test_a_large_file_is_not_shown(folder: Path) -> None:
    sparse(folder / "notes.txt", LARGEST_LIST + 1)
    with pytest.raises(BadInput, match=r"notes\.txt cannot be read: .*; move it away"):
        lab.show_file("notes.txt")


def test_a_plan_that_is_too_large_or_no_file_is_one_line(folder: Path) -> None:
    sparse(folder / "large.json", LARGEST + 1)
    os.mkfifo(folder / "pipe.json")
    for name in ("large.json", "pipe.json"):
        with at_most(5), pytest.raises(BadInput, match=rf"{name} cannot be read"):
            grid.places("restart", name, folder)


@pytest.mark.parametrize("name", ["input/odd.txt", "odd.json"])
def test_trials_get_no_copy_of_what_has_no_end(name: str, folder: Path) -> None:
    """A full disk would be the end of it."""
    odd = folder / name
    odd.symlink_to(folder / "plan.json")
    plan = "odd.json" if name == "odd.json" else "plan.json"
    [place, *_] = grid.places("restart", plan, folder)
    assert [each.word for each in cells.run("restart", plan, places=[place])] == ["held"]
    sweep = cells.Sweep("restart", plan, places=[place])  # a plan was one when it was chosen
    sweep.close()
    odd.unlink()
    sparse(folder / "large", LARGEST + 1)
    for end in (str(folder / "large"), "/dev/zero"):  # in this order: the second fills a disk
        odd.symlink_to(end)
        with at_most(5), pytest.raises(StorageFault, match=r"no regular file|more than 64 MB"):
            sweep._bench._make("trial")
        odd.unlink()


def test_checks_read_no_more_than_that_either(folder: Path) -> None:
    trial = lab.trial(None)
    sparse(trial.folder.artifacts / "large.md", LARGEST + 1)
    with pytest.raises(BadInput, match="more than 64 MB"):
        artifacts_of(trial)
    with pytest.raises(BadInput, match="more than 64 MB"):
        n05._count(trial.folder, "text")


def test_what_has_no_end_is_no_progress_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a FIFO would wait for ever, /dev/zero would fill the memory."""
    pipe, endless = tmp_path / "pipe.json", tmp_path / "endless.json"
    os.mkfifo(pipe)
    endless.symlink_to("/dev/zero")
    for odd in (pipe, endless):
        with pytest.raises(BadInput, match="it is no regular file; move it aside and go on"):
            progress.merge(odd)
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    progress.path().parent.mkdir(parents=True)
    os.mkfifo(progress.path())
    with pytest.raises(BadInput, match="it is no regular file; move it aside and go on"):
        progress.record_prediction("q", "a")

"""The grid names every place of a step, each kills there, and it says after which a run waits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from labkit import lab
from labkit.errors import BadInput, NotFound, UsageError
from labkit.lab import runs, verbs
from labkit.lab.grid import AGENTS, WINDOWS, agent_called, every_place, places
from labkit.lab.trials import POINTS


@pytest.fixture(autouse=True)
def folder(home: Path) -> Path:
    lab.begin("20")
    return verbs.current_folder().path


def test_three_points_for_each_step_of_a_plan(folder: Path) -> None:
    found = places("restart", "plan.json", folder)
    assert [place.at for place in found] == [f"{p}:{idx}" for p in POINTS for idx in range(3)]
    assert {place.row for place in found} == set(POINTS)
    assert {place.column for place in found} == {"step 0", "step 1", "step 2"}
    assert not any(place.waits for place in found)


def test_a_plan_of_one_step_has_three_places(folder: Path) -> None:
    one = '{"goal": "g", "steps": [{"tool": "fetch", "input": {"path": "input/notes.txt"}}]}'
    (folder / "one.json").write_text(one, encoding="utf-8")
    assert [place.at for place in places("restart", "one.json", folder)] == [
        f"{point}:0" for point in POINTS
    ]


def test_three_windows_for_each_step_of_a_run(folder: Path) -> None:
    found = places("durable", "notice", folder)
    assert [place.row for place in found] == [window for window in WINDOWS for _ in range(3)]
    steps = {"model-1": (2, 3, 4), "model-1.tool-1": (5, 6, 7), "model-2": (8, 9, 10)}
    for step, numbers in steps.items():
        assert [p.at for p in found if p.column == step] == [f"boundary:{n}" for n in numbers]


def test_a_run_waits_after_exactly_the_kills_that_the_grid_says(folder: Path) -> None:
    """Real kills, at each boundary of a run, and a second process each."""
    kills = runs.sweep("notice")
    every = every_place("durable", "notice", folder)
    assert {place.at for place in every} == {f"boundary:{kill.boundary}" for kill in kills}
    waiting = {f"boundary:{kill.boundary}" for kill in kills if kill.ends == "WAITING"}
    assert {place.at for place in every if place.waits} == waiting
    assert len(waiting) == 2


def test_a_mutant_that_commits_more_often_has_more_places(folder: Path) -> None:
    ours = every_place("durable", "notice", folder)
    published = every_place("durable", "notice", folder, "three commits")
    more = {place.row for place in published} - {place.row for place in ours}
    assert more == {"before commit 2 of its result", "before commit 3 of its result"}


def test_each_agent_knows_what_it_finds_in_a_folder(folder: Path) -> None:
    assert AGENTS["restart"].plans(folder) == ["plan.json", "quiet.json"]
    assert AGENTS["durable"].plans(folder) == ["notice", "dispatch"]
    os.mkfifo(folder / "pipe.json")  # an agent that reads it waits for ever
    (folder / "folder.json").mkdir()
    assert AGENTS["restart"].plans(folder) == ["plan.json", "quiet.json"]
    (folder / "input" / "on-call.txt").unlink()
    assert AGENTS["durable"].plans(folder) == []


def test_what_is_not_there_is_said(folder: Path) -> None:
    with pytest.raises(UsageError, match="no agent is called 'langchain'; there are restart"):
        agent_called("langchain")
    with pytest.raises(NotFound, match=r"no plan 'other\.json'"):
        places("restart", "other.json", folder)
    with pytest.raises(UsageError, match="no definition is called 'other'"):
        places("durable", "other", folder)
    (folder / "bad.json").write_text("{", encoding="utf-8")
    with pytest.raises(BadInput):
        places("restart", "bad.json", folder)

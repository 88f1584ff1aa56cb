"""The restart suite: the same thirteen cases for every learner.

The real command in a real process; every kill is a SIGKILL; the witness lies outside.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.restart.kit import (
    SUMMARY,
    WAIT,
    WITNESSED_PLAN,
    WITNESSED_TOOLS,
    Desk,
    ended,
    kill,
    read_line,
    refused,
    tell,
)

POINTS = ("before_effect", "after_effect", "after_commit")
# What the journal says last when the process is dead, and how often the killed step is called.
AT_THE_KILL = {
    "before_effect": ("step_started", 1),
    "after_effect": ("step_started", 2),
    "after_commit": ("step_finished", 1),
}
ONE_FILE = {"t-2.md": SUMMARY}


@pytest.fixture(scope="module")
def created(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `create` has ended: made once, copied for each case."""
    desk = Desk(tmp_path_factory.mktemp("created"))
    desk.tools(WITNESSED_TOOLS)
    desk.create(WITNESSED_PLAN)
    return desk.folder


@pytest.fixture
def agent(created: Path, tmp_path: Path) -> Iterator[Desk]:
    # Nobody has the database open here, so plain copies of it and of its -wal are safe.
    shutil.copytree(created, tmp_path / "desk")
    desk = Desk(tmp_path / "desk")
    yield desk
    desk.end_all()


def require_finished(agent: Desk, runs: int) -> None:
    """The five promises, after a task that any number of kills interrupted."""
    assert agent.statuses() == ["done"] * 4
    assert agent.published() == ONE_FILE
    agent.require_balanced()
    kinds = agent.kinds()
    assert kinds.count("run_started") == runs
    assert kinds.count("step_finished") == 3
    assert kinds[-1] == "task_done"


def test_without_a_crash(agent: Desk) -> None:
    assert agent.run("run", "t").code == 0
    assert agent.kinds() == [
        "task_created", "run_started", *["step_started", "step_finished"] * 3, "task_done"
    ]  # fmt: skip
    require_finished(agent, runs=1)
    assert agent.calls() == {"t-0": 1, "t-1": 1, "t-2": 1}


@pytest.mark.parametrize("idx", range(3))
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_crash_point(agent: Desk, point: str, idx: int) -> None:
    agent.crash(f"{point}:{idx}")
    last, calls = AT_THE_KILL[point]
    committed = point == "after_commit"
    assert agent.kinds()[-1] == last
    assert agent.statuses()[1 + idx] == ("done" if committed else "running")
    before = agent.rows("SELECT output FROM steps WHERE status = 'done' ORDER BY idx")
    assert len(before) == idx + committed

    assert agent.run("run", "t").code == 0

    require_finished(agent, runs=2)
    assert agent.rows("SELECT output FROM steps ORDER BY idx")[: len(before)] == before
    assert agent.calls() == {"t-0": 1, "t-1": 1, "t-2": 1, f"t-{idx}": calls}
    assert agent.kinds().count("step_recovered") == (0 if committed else 1)
    assert agent.data("run_started") == [
        {"recovered": []},
        {"recovered": [] if committed else [idx]},
    ]


def test_killed_from_outside_while_a_step_sleeps(agent: Desk) -> None:
    sleeper = agent.start("run", "t", env={"AGENT_STEP_DELAY": "600"})
    agent.wait_for_row("SELECT seq FROM events WHERE kind = 'step_started'")
    kill(sleeper)
    assert agent.statuses() == ["running", "running", "pending", "pending"]
    assert agent.calls() == {}

    assert agent.run("run", "t").code == 0

    require_finished(agent, runs=2)
    assert agent.calls() == {"t-0": 1, "t-1": 1, "t-2": 1}


def test_a_second_runner_is_refused(desk: Desk) -> None:
    go = desk.pipe("go")
    desk.tools(WITNESSED_TOOLS + WAIT)
    steps = [*WITNESSED_PLAN["steps"], {"tool": "wait", "input": {}}]
    desk.create({"goal": "One runner", "steps": steps})
    first = desk.start("run", "t")
    assert read_line(first) == "waiting"
    before = desk.kinds()

    refused(desk.run("run", "t"), 3, "another process")

    assert desk.kinds() == before
    tell(go)
    assert ended(first).code == 0
    assert desk.calls() == {"t-0": 1, "t-1": 1, "t-2": 1}
    assert desk.published() == ONE_FILE
    assert desk.kinds().count("run_started") == 1


def test_negative_control_shows_the_duplicate(agent: Desk) -> None:
    """If this stops failing, the crash points no longer reach the dangerous window: all is void."""
    unsafe = {"AGENT_UNSAFE_EFFECTS": "1"}
    assert agent.run("run", "t", env={**unsafe, "AGENT_CRASH_AT": "after_effect:2"}).code == -9
    assert agent.published() == {"report.log": f"{SUMMARY}\n---\n"}

    assert agent.run("run", "t", env=unsafe).code == 0

    assert agent.published() == {"report.log": f"{SUMMARY}\n---\n" * 2}
    assert agent.calls() == {"t-0": 1, "t-1": 1, "t-2": 2}
    assert agent.statuses() == ["done"] * 4  # the agent itself saw nothing wrong

"""SIGKILL before system calls of `create` and of `run`, once and twice: a sample in every test run,
all in the proof; and agents broken on purpose, without which a green sweep would mean nothing.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from labkit.chaos import syscalls
from labkit.chaos.kill import Injury, sweep
from labkit.chaos.scenario import Workshop
from labkit.chaos.verdict import Report, add
from tests.conftest import new_root
from tests.promises import ROOT, Looked, create_scenario, run_scenario
from tests.restart.kit import needs_strace

pytestmark = needs_strace


@pytest.fixture(scope="module")
def root(compiled: Path) -> Iterator[Path]:
    with new_root(compiled) as path:
        yield path


@pytest.fixture(scope="module")
def agents(root: Path) -> list[Workshop]:
    """`create` is harmed, and `run` is."""
    return [Workshop(create_scenario(), root), Workshop(run_scenario(), root)]


def once(workshop: Workshop, every: int = 1) -> Report:
    return sweep(workshop, [[Looked(kill)] for kill in syscalls.plan(workshop)[::every]])


def twice(workshop: Workshop, pairs: int) -> Report:
    plan: list[Sequence[Injury]] = [
        [*kills[:-1], Looked(kills[-1])] for kills in syscalls.twice(workshop, pairs)
    ]
    return sweep(workshop, plan)


def test_a_sample_of_the_kills(agents: list[Workshop]) -> None:
    report = add(once(agent, every=31) for agent in agents)
    assert report.exit_code == 0, str(report)
    assert report.delivered >= 4


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_every_kill(agents: list[Workshop]) -> None:
    report = add(once(agent) for agent in agents)
    assert report.exit_code == 0, str(report)
    assert report.delivered >= 100
    struck = {verdict.address.split(":")[0] for verdict in report.verdicts}
    assert {"openat", "write", "pwrite64", "fsync", "fdatasync", "ftruncate"} <= struck
    assert {"link", "unlink", "mkdir"} <= {call.removesuffix("at") for call in struck}


@pytest.mark.proof
def test_a_sample_of_second_kills(agents: list[Workshop]) -> None:
    report = add(twice(agent, pairs=3) for agent in agents)
    assert report.exit_code == 0, str(report)
    assert report.delivered == 6


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_a_second_kill_in_the_run_that_recovers(agents: list[Workshop]) -> None:
    report = twice(agents[1], pairs=300)
    assert report.exit_code == 0, str(report)
    assert report.delivered == 300


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_a_second_kill_in_the_create_that_goes_on(agents: list[Workshop]) -> None:
    report = twice(agents[0], pairs=100)
    assert report.exit_code == 0, str(report)
    assert report.delivered == 100


class BrokenAgent(NamedTuple):
    """An agent that runs well until it is killed: what is appended to a file of a copy."""

    file: str
    code: str
    where: str  # of the kills that can show it
    reason: str


PLAIN_WRITE = """
def publish_once(folder, name, content):
    _make_folders(folder)
    try:
        with open(os.path.join(folder, name), "xb") as file:
            file.write(content)
    except FileExistsError:
        return True
    return False
"""
EXECUTE = """
execute = Database.execute

def broken(self, sql, *values):
    {}
    return execute(self, sql, *values)

Database.execute = broken
"""
SPLIT = 'if "INTO events" in sql: execute(self, "COMMIT"), execute(self, "BEGIN IMMEDIATE")'
SILENT = 'if "step_recovered" in values: return 1'
FORGETFUL = """if "run_started" in values:
        execute(self, "UPDATE steps SET status = 'pending' WHERE status = 'done'")"""
BROKEN = {
    "artifact by plain write": BrokenAgent("files.py", PLAIN_WRITE, "artifacts/", "promise 4: "),
    "temporary files stay": BrokenAgent(
        "files.py", "def remove_orphans(*args): ...", r"artifacts/.*\.tmp", r"promise 4: .*\.tmp"
    ),
    "state and journal in two transactions": BrokenAgent(
        "database.py", EXECUTE.format(SPLIT), "fdatasync", "law [3-6] "
    ),
    "recovery is not journaled": BrokenAgent(
        "database.py", EXECUTE.format(SILENT), "fdatasync", "law 3 "
    ),
    "committed steps run again": BrokenAgent(
        "database.py", EXECUTE.format(FORGETFUL), "fdatasync", "law 2 "
    ),
}


@pytest.mark.proof
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_agent_is_seen(broken: BrokenAgent, root: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "labkit", tmp_path / "labkit", ignore=shutil.ignore_patterns("*.pyc"))
    with (tmp_path / "labkit" / broken.file).open("a", encoding="utf-8") as end:
        end.write("\n\n" + broken.code)
    agent = Workshop(run_scenario(tmp_path), root)  # raises if it fails unharmed
    calls = syscalls.plan(agent)
    kills = [k for k in calls if re.search(broken.where, f"{k.call.name} {k.call.path}")]
    middle = kills[len(kills) // 3 :][:3]  # neither the first commit nor the last shows everything
    report = sweep(agent, [[Looked(kill)] for kill in middle])
    assert report.count("unknown") == 0, str(report)
    seen = [v for v in report.verdicts if v.outcome == "broken"]
    assert any(re.search(broken.reason, verdict.reason) for verdict in seen), str(report)

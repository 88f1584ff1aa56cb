"""Kills before system calls: a sample in every test run, all in the proof; and the controls,
without which a green sweep would mean nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import sweep
from tests.sweep import ROOT, Kill, Report, Sweep

with_strace = pytest.mark.skipif(not shutil.which("strace"), reason=sweep.NEEDS_STRACE)


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="labkit-sweep-", dir=sweep.scratch()) as path:
        yield Path(path)


@pytest.fixture(scope="module")
def agent(root: Path) -> Sweep:
    return Sweep(root)


@with_strace
def test_a_sample_of_the_kills(agent: Sweep) -> None:
    report = agent.run(agent.once(every=8))
    assert report.exit_code == 0, str(report)
    assert report.delivered >= 12


@with_strace
@pytest.mark.proof
@pytest.mark.timeout(600)
def test_every_kill(agent: Sweep) -> None:
    report = agent.run(agent.once())
    assert report.exit_code == 0, str(report)
    assert report.delivered >= 100
    struck = {verdict.kills[0].call for verdict in report.verdicts}
    assert {"openat", "write", "pwrite64", "fsync", "fdatasync", "ftruncate"} <= struck
    assert {"link", "unlink", "mkdir"} <= {call.removesuffix("at") for call in struck}


@with_strace
@pytest.mark.proof
@pytest.mark.timeout(600)
def test_a_second_kill_in_the_run_that_recovers(agent: Sweep) -> None:
    report = agent.run(agent.twice(every=9))
    assert report.exit_code == 0, str(report)
    assert report.delivered >= 40


@with_strace
def test_an_injector_that_does_nothing_is_red(root: Path) -> None:
    idle = Sweep(root, strace=["--seccomp-bpf"])
    report = idle.run(idle.once(every=50))
    assert report.exit_code == 2
    assert report.delivered == report.count("held") == 0
    assert report.count("unknown") == len(report.verdicts) >= 2
    assert "error: no kill was delivered" in str(report)


@with_strace
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"path": "elsewhere"}, "not at elsewhere"),
        ({"ordinal": 10_000}, "was not killed, its status is 0"),
        ({"call": "truncate"}, "was not killed, its status is 0"),
    ],
)
def test_a_kill_that_is_not_as_recorded_is_unknown(
    agent: Sweep, change: dict[str, str | int], why: str
) -> None:
    kill = agent.record("create")[5]._replace(**change)  # type: ignore[arg-type]
    verdict = agent.try_kills((kill,))
    assert verdict.outcome == "unknown"
    assert why in verdict.reason


def test_an_empty_sweep_is_red() -> None:
    assert Report(()).exit_code == 2
    assert "proves nothing" in str(Report(()))


class Broken(NamedTuple):
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
    "artifact by plain write": Broken("files.py", PLAIN_WRITE, "artifacts/", "promise 4: "),
    "temporary files stay": Broken(
        "files.py", "def remove_orphans(*args): ...", r"artifacts/.*\.tmp", r"promise 4: .*\.tmp"
    ),
    "state and journal in two transactions": Broken(
        "database.py", EXECUTE.format(SPLIT), "fdatasync", "law [3-6] "
    ),
    "recovery is not journaled": Broken(
        "database.py", EXECUTE.format(SILENT), "fdatasync", "law 3 "
    ),
    "committed steps run again": Broken(
        "database.py", EXECUTE.format(FORGETFUL), "fdatasync", "law 2 "
    ),
}


@with_strace
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_agent_is_seen(broken: Broken, root: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "labkit", tmp_path / "labkit", ignore=shutil.ignore_patterns("*.pyc"))
    file = tmp_path / "labkit" / broken.file
    with file.open("a", encoding="utf-8") as end:
        end.write("\n\n" + broken.code)
    agent = Sweep(root, package=tmp_path)  # raises if it fails unharmed
    kills = [k for k in agent.record("run") if re.search(broken.where, f"{k.call} {k.path}")]
    middle = kills[len(kills) // 3 :][:4]  # neither the first commit nor the last shows everything
    report = agent.run([(kill,) for kill in middle])
    assert report.count("unknown") == 0, str(report)
    seen = [v for v in report.verdicts if v.outcome == "broken"]
    assert any(re.search(broken.reason, verdict.reason) for verdict in seen), str(report)


@with_strace
def test_the_line_that_reproduces_it(agent: Sweep) -> None:
    (kill,) = [k for k in agent.record("run") if k.call.startswith("link")]
    assert sweep.find_kills(agent, str(kill)) == (kill,)
    verdict = agent.try_kills((kill,))
    assert str(verdict).endswith(f"\n    python tests/sweep.py replay '{kill}'")


def test_a_machine_without_strace_is_told_so(tmp_path: Path) -> None:
    argv = [sys.executable, str(ROOT / "tests" / "sweep.py")]
    env = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"sweep: {sweep.NEEDS_STRACE}\n")


def test_a_trace_is_read_by_path() -> None:
    """Calls outside the folder and opens for reading count as ordinals, and are no kills."""
    lines = """\
7 openat(AT_FDCWD</w>, "/lib/x.py", O_RDONLY|O_CLOEXEC) = 3</lib/x.py>
7 openat(AT_FDCWD</w/agent>, "state.db", O_RDWR|O_CREAT, 0666) = 3</w/agent/state.db>
7 write(1</dev/null>, "a", 1) = 1
7 write(3</w/agent/.t-2.md.0123abcd.tmp>, "a", 1) = ?
7 +++ killed by SIGKILL +++
"""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace")
        trace.write_text(lines, "utf-8")
        assert list(sweep.read_trace(trace, Path("/w/agent"), "run")) == [
            Kill("run", "openat", 2, "state.db"),
            Kill("run", "write", 2, ".t-2.md.*.tmp"),
        ]

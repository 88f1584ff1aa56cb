"""Points, SQL statements, kills from outside and a pause: held by the agent, by others not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit.chaos.examples.restart import creating, restart
from labkit.chaos.forkserver import ForkServer, module_of
from labkit.chaos.kill import sweep, try_injuries
from labkit.chaos.points import FastWorkshop, Pause, Point, Random, Statement, points, statements
from labkit.chaos.scenario import Scenario, Trial
from labkit.errors import UsageError
from tests.conftest import new_root


@pytest.fixture
def root(compiled: Path) -> Iterator[Path]:
    with new_root(compiled) as path:
        yield path


def test_all_nine_points_are_found_by_ordinal_and_held(root: Path) -> None:
    with FastWorkshop(restart(), root) as workshop:
        report = sweep(workshop, [[point] for point in points(workshop)])
    assert report.planned == report.delivered == report.count("held") == 9
    assert report.exit_code == 0


def test_the_agent_without_keys_is_broken_at_one_point(root: Path) -> None:
    with FastWorkshop(restart(unsafe=True), root) as workshop:
        report = sweep(workshop, [[point] for point in points(workshop)])
    broken = [verdict for verdict in report.verdicts if verdict.outcome == "broken"]
    assert [verdict.address for verdict in broken] == ["after_effect:2"]
    assert "effect t-2 happened 2 times" in broken[0].reason
    assert report.exit_code == 1


def test_a_scenario_sees_the_folder_after_each_injury(root: Path) -> None:
    seen: list[bool] = []
    scenario = restart()._replace(
        at_injury=lambda folder: seen.append((folder / "state.db").exists())
    )
    with FastWorkshop(scenario, root) as workshop:
        verdict = try_injuries(workshop, [Point("before_effect:0"), Point("after_effect:1")])
    assert (verdict.outcome, seen) == ("held", [True, True])


@pytest.mark.proof
def test_all_pairs_of_points(root: Path) -> None:
    """A second kill during recovery; where the first leaves nothing to reach, it is undelivered."""
    with FastWorkshop(restart(), root) as workshop:
        every = points(workshop)
        report = sweep(workshop, [[a, b] for a in every[::4] for b in every[2::3]])
    assert report.count("broken") == 0
    assert report.delivered > 0
    for verdict in report.verdicts:
        assert verdict.outcome == "held" or "killed nothing" in verdict.reason


@pytest.mark.parametrize("scenario", [restart(), creating()], ids=["run", "create"])
def test_every_statement_is_a_place_to_die(scenario: Scenario, root: Path) -> None:
    with FastWorkshop(scenario, root) as workshop:
        plan = statements(workshop)
        assert len(plan) > 25
        assert plan[-1].sql == "the end of the process"
        report = sweep(workshop, [[statement] for statement in plan[::9]])
    assert report.delivered == report.count("held") == len(plan[::9])


@pytest.mark.proof
@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", [restart(), creating()], ids=["run", "create"])
def test_all_statements(scenario: Scenario, root: Path) -> None:
    with FastWorkshop(scenario, root) as workshop:
        report = sweep(workshop, [[statement] for statement in statements(workshop)])
    assert report.exit_code == 0, str(report)


def test_a_statement_that_is_not_the_recorded_one_is_unknown(root: Path) -> None:
    with FastWorkshop(restart(), root) as workshop:
        verdict = try_injuries(workshop, [Statement(3, "SELECT something else")])
    assert verdict.outcome == "unknown"
    assert not verdict.delivered


def test_a_kill_that_comes_too_late_is_unknown(root: Path) -> None:
    with FastWorkshop(restart(), root) as workshop:
        assert try_injuries(workshop, [Random(1, 0.0)]).outcome == "held"
        late = sweep(workshop, [[Point("after_effect:7")]])
    assert late.count("unknown") == 1
    assert late.exit_code == 2
    assert "no injury was delivered" in str(late)


def until_started(trial: Trial) -> None:
    """From outside: the -wal is read with plain calls, since this process has it not open."""
    wal = trial.folder / "state.db-wal"
    while not (wal.exists() and b"step_started" in wal.read_bytes()):
        pass


def delete_lock(trial: Trial) -> None:
    (trial.folder / "state.db.lock").unlink()


def slow() -> Scenario:
    return restart()._replace(environ={**restart().environ, "AGENT_STEP_DELAY": "0.3"})


def test_a_run_that_hangs_is_no_kill_delivered(root: Path, tmp_path: Path) -> None:
    """It has to be killed in the end, by the kit, and that is not the kill that was planned."""
    hangs = "import os\nwhile os.environ.get('AGENT_CRASH_AT'): pass\n"
    (tmp_path / "hangs.py").write_text(hangs, encoding="utf-8")
    environ = {"PYTHONPATH": str(tmp_path)}
    scenario = Scenario([sys.executable, "-m", "hangs"], environ=environ, timeout_s=1.0)
    with FastWorkshop(scenario, root) as workshop:
        verdict = try_injuries(workshop, [Point("after_effect:0")])
    assert (verdict.outcome, verdict.delivered) == ("unknown", False)
    assert "had not ended after 1 s" in verdict.reason


def test_a_paused_writer_that_wakes_up_is_refused(root: Path) -> None:
    with FastWorkshop(slow(), root) as workshop:
        verdict = try_injuries(workshop, [Pause(until_started, delete_lock)])
    assert (verdict.outcome, verdict.delivered) == ("held", True), verdict


@pytest.mark.proof
def test_where_nobody_takes_over_the_pause_shows_nothing(root: Path) -> None:
    """With its lock in place the second runner is refused, and the first goes on alone."""
    with FastWorkshop(slow(), root) as workshop:
        verdict = try_injuries(workshop, [Pause(until_started, lambda trial: None)])
    assert verdict.outcome == "unknown"
    assert "nobody took over" in verdict.reason


def test_a_late_writer_that_is_not_refused_is_broken(root: Path) -> None:
    forever = "import time; open('begun', 'w').close(); time.sleep(0.5)"
    scenario = Scenario(run=[sys.executable, "-c", forever])

    def begun(trial: Trial) -> None:
        while not (trial.folder / "begun").exists():
            pass

    with FastWorkshop(scenario, root) as workshop:
        verdict = try_injuries(workshop, [Pause(begun, lambda trial: None)])
    assert verdict.outcome == "broken"
    assert "not refused" in verdict.reason


def test_not_even_the_unharmed_run_holds(root: Path) -> None:
    scenario = Scenario(run=[sys.executable, "-c", "pass"], check=[sys.executable, "-c", "exit(1)"])
    with pytest.raises(UsageError, match="not even the unharmed run holds"):
        FastWorkshop(scenario, root)


def test_a_forked_program_is_a_process_like_any_other(tmp_path: Path) -> None:
    source = "import os, sys; print(os.getcwd(), sys.argv[1:], os.environ['MARK'])"
    (tmp_path / "program.py").write_text(source, encoding="utf-8")
    environ = {"MARK": "m", "PYTHONPATH": str(tmp_path)}
    with ForkServer(environ) as server:
        code, said = server.call(["program", "a"], tmp_path, environ, 10)
        assert (code, said) == (0, f"{tmp_path} ['a'] m\n")
        (tmp_path / "program.py").write_text("raise SystemExit(3)", encoding="utf-8")
        assert server.call(["program"], tmp_path, environ, 10)[0] == 3
        (tmp_path / "program.py").write_text("while True: pass", encoding="utf-8")
        with pytest.raises(TimeoutError):
            server.call(["program"], tmp_path, environ, 0.2)
        (tmp_path / "program.py").write_text("print(1); raise ValueError('x')", encoding="utf-8")
        code, said = server.call(["program"], tmp_path, environ, 10)
        assert code == 1
        assert said.startswith("Traceback")
        assert said.endswith("ValueError: x\n1\n")


def test_a_fork_is_not_slowed_down_by_what_programs_do_not_need(tmp_path: Path) -> None:
    """Each of the two doubles the time of a fork. What an agent needs is there, not yet run."""
    source = "import sys; print(*sorted({'random', 'sqlite3', 'threading'} & set(sys.modules)))"
    (tmp_path / "program.py").write_text(source, encoding="utf-8")
    environ = {"PYTHONPATH": str(tmp_path)}
    with ForkServer(environ) as server:
        assert server.call(["program"], tmp_path, environ, 10) == (0, "sqlite3\n")


def test_each_forked_program_has_its_own_environment(tmp_path: Path) -> None:
    source = "import os; print(sorted(k for k in os.environ if k.startswith('MARK')))"
    (tmp_path / "program.py").write_text(source, encoding="utf-8")
    environ = {"PYTHONPATH": str(tmp_path)}
    with ForkServer(environ) as server:
        for names in (["MARK_1", "MARK_2"], ["MARK_2"], []):
            given = {**environ, **dict.fromkeys(names, "x")}
            assert server.call(["program"], tmp_path, given, 10) == (0, f"{names}\n")


def test_an_agent_is_imported_where_its_trial_is(root: Path) -> None:
    """Its code is read before, in the helper; the folder that it looks at is the trial's."""
    with FastWorkshop(restart(), root) as workshop, workshop.open() as one:
        asked = [sys.executable, "-m", "labkit.restart", "run", "t"]
        with workshop.open() as other:
            for trial, folder in ((one, "here"), (other, "there")):
                assert trial.call(asked, AGENT_ARTIFACTS=folder).code == 0
                assert [p.name for p in trial.folder.glob("*here")] == [folder]


def test_only_modules_of_this_python_are_forked() -> None:
    assert module_of([sys.executable, "-m", "labkit", "agent"]) == ["labkit", "agent"]
    assert module_of([sys.executable, "program.py"]) is None
    assert module_of(["python3", "-m", "labkit"]) is None

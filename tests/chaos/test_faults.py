"""Storage that fails at any call: what a program may do then, what it may not, and what counts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit.chaos import faults
from labkit.chaos.kill import sweep, try_injuries
from labkit.chaos.scenario import Scenario, Workshop
from labkit.chaos.verdict import Report, Verdict, add
from labkit.errors import UsageError
from tests.conftest import new_root
from tests.promises import create_scenario, run_scenario
from tests.restart.kit import needs_strace

pytestmark = needs_strace


@pytest.fixture(scope="module")
def root(compiled: Path) -> Iterator[Path]:
    with new_root(compiled) as path:
        yield path


@pytest.fixture(scope="module")
def agents(root: Path) -> list[Workshop]:
    """`create` fails, and `run` does."""
    return [Workshop(create_scenario(), root), Workshop(run_scenario(), root)]


def fail(workshop: Workshop, error: str, every: int = 1) -> Report:
    return sweep(workshop, [[fault] for fault in faults.plan(workshop, [error])[::every]])


def test_a_sample_of_faults(agents: list[Workshop]) -> None:
    plans = [(agent, [[fault] for fault in faults.plan(agent)[::193]]) for agent in agents]
    report = add(sweep(agent, plan) for agent, plan in plans)
    assert report.exit_code == 0, str(report)
    assert report.delivered >= 4


@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("error", [*faults.ERRORS, "EDQUOT"])
def test_every_fault(agents: list[Workshop], error: str) -> None:
    report = add(fail(agent, error) for agent in agents)
    assert report.exit_code == 0, str(report)
    assert report.delivered >= 200


def shell(root: Path, program: str, clean: tuple[int, ...] = ()) -> Workshop:
    """A program that copies `text` to `result`."""
    material = {"text": "text"}
    argv = ["sh", "-c", program]
    scenario = Scenario(argv, files=["result"], material=material, clean_exits=clean)
    return Workshop(scenario, root)


def fault_of(workshop: Workshop, path: str, name: str = "openat", plus: str = "") -> Verdict:
    """The verdict on EIO for the first such call on the path."""
    for fault in faults.plan(workshop, ["EIO"]):
        if (fault.call.name, fault.call.path, "+" * fault.onward) == (name, path, plus):
            return try_injuries(workshop, [fault])
    raise LookupError(path)


BAD = {  # what it does, and why that is broken
    "exits 0 without its file": ("cp text result 2>/dev/null; true", "it exits 0, yet result is"),
    "is killed by a signal": ("cp text result || kill -ABRT $$", "killed by signal 6"),
    "exits with another code": ("cp text result 2>/dev/null || exit 9", "it exits 9, not 74"),
    "says too much": ("cp text result || { echo sorry; exit 74; }", "it says 2 lines, not one"),
    "marks as done what is not": (
        "test -e done || { touch done; cp text result || exit 74; }",
        "result is gone",
    ),
}


@pytest.mark.parametrize(("program", "why"), BAD.values(), ids=BAD.keys())
def test_a_program_that_is_broken_by_a_fault(root: Path, program: str, why: str) -> None:
    verdict = fault_of(shell(root, program, clean=(74,)), "result")
    assert (verdict.outcome, verdict.delivered) == ("broken", True), verdict
    assert why in verdict.reason


TRACEBACK = "open('result', 'w').write(open('text').read())"


def test_a_traceback_is_broken_where_clean_exits_are_promised(root: Path) -> None:
    argv = [sys.executable, "-c", TRACEBACK]
    scenario = Scenario(argv, files=["result"], material={"text": "text"})
    assert fault_of(Workshop(scenario, root), "result").outcome == "held"
    verdict = fault_of(Workshop(scenario._replace(clean_exits=(1,)), root), "result")
    assert verdict.outcome == "broken"
    assert "EIO: it exits 1 with a traceback: Traceback" in verdict.reason


def test_once_and_from_then_on(root: Path) -> None:
    """A second try succeeds against a fault that strikes once."""
    code = "cat text > result || cat text > result || exit 74"
    for plus, calls in (("", 1), ("+", 2)):
        workshop = shell(root, f"{{ {code}; }} 2>/dev/null", clean=(74,))
        found = [f for f in faults.plan(workshop, ["ENOSPC"]) if "+" * f.onward == plus]
        with workshop.open() as trial:
            found[0].strike(trial)
            trace = (trial.root / "trace").read_text()
            assert trace.count("ENOSPC") == trace.count("(INJECTED)") == calls
            assert (trial.folder / "result").exists() == (calls == 1)
        assert try_injuries(workshop, [found[0]]).outcome == "held"


SAYS = """
import sys
try:
    open("result", "w").write("x")
except OSError as error:
    import html.parser
    sys.exit(f"the disk: {error.strerror}")
"""


def test_libraries_and_the_terminal_do_not_fail(root: Path) -> None:
    """From the first `openat` of the folder on: that of a module is none, and a line is said."""
    scenario = Scenario([sys.executable, "-c", SAYS], files=["result"], clean_exits=(1,))
    workshop = Workshop(scenario, root)
    for fault in faults.plan(workshop, ["ENOSPC"]):
        verdict = try_injuries(workshop, [fault])
        assert verdict.outcome == "held", verdict


IDLE = """#!/bin/sh
for word; do
    shift
    case "$word" in inject=*) word=signal=kill;; esac
    set -- "$@" "$word"
done
exec strace "$@"
"""


def test_a_fault_that_is_not_injected_is_unknown(root: Path, tmp_path: Path) -> None:
    """An injector that does nothing, a call that there is not, and another path."""
    idle = tmp_path / "idle"
    idle.write_text(IDLE)
    idle.chmod(0o755)
    workshop = shell(root, "cp text result")
    fault = faults.plan(workshop, ["EIO"])[0]
    tampered = [
        fault._replace(tracer=[str(idle)]),
        fault._replace(nth=10_000),
        fault._replace(call=fault.call._replace(path="elsewhere")),
    ]
    report = sweep(workshop, [[each] for each in tampered])
    assert (report.delivered, report.count("unknown"), report.exit_code) == (0, 3, 2), str(report)
    reasons = [verdict.reason for verdict in report.verdicts]
    assert ["not injected" in reason for reason in reasons] == [True, True, False]
    assert "struck" in reasons[2]


def test_a_fault_is_found_by_its_address(root: Path) -> None:
    workshop = shell(root, "cat text > result")
    plan = faults.plan(workshop, ["EIO"])
    call = plan[0].call.address
    assert [fault.address for fault in plan[:2]] == [f"{call}=EIO", f"{call}+=EIO"]
    for fault in plan:
        assert faults.find(workshop, fault.address).address == fault.address
    for wrong in ("openat:3", "openat:3=EWHAT", "link:3=EIO"):
        with pytest.raises(UsageError):
            faults.find(workshop, wrong)

"""What every store says of many runs, of its journal, and what a fault leaves of one write."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from labkit.durable import (
    FakeClock,
    IllegalRunTransitionError,
    InMemoryRunStore,
    RunResolution,
    RunStatus,
    StepAttempt,
    StoreError,
)
from labkit.durable.records import Change, Failed, Hold, Receipt, RunFilter
from tests.durable.stores import (  # noqa: F401
    BROKEN,
    CANCEL,
    CONFIRM,
    FACTORIES,
    FAIL,
    GO,
    REJECT,
    RETRY,
    TOOL,
    TTL,
    WAITS,
    Bench,
    Factory,
    Fault,
    a_bench,
    a_fault,
)  # fmt: skip

JOURNAL = ["seq", "ts", "task_id", "run_id", "owner", "kind", "step_idx", "step", "attempt", "data"]


# --- many runs


def test_runs_are_listed_by_age_page_by_page(bench: Bench) -> None:
    names = ["z", "a", "m", "b", "y"]
    for name in names:
        bench.create(name)
    assert bench.ids() == names
    assert bench.ids(limit=2) == ["z", "a"]
    pages, after = [], None
    while page := bench.ids(limit=2, after=after):
        pages.append(page)
        after = page[-1]
    assert pages == [["z", "a"], ["m", "b"], ["y"]]


def test_each_filter_of_a_list_by_itself_and_together(bench: Bench) -> None:
    for status in RunStatus:
        bench.reach(status, f"{status}")
    for status in RunStatus:
        assert bench.ids(status=status) == [status]
    bench.create("of sales", definition_id="sales")
    assert bench.ids(definition_id="sales") == ["of sales"]
    assert bench.ids(definition_id="support") == [*RunStatus]
    assert bench.ids(definition_id="sales", status=RunStatus.CREATED) == ["of sales"]
    assert bench.ids(definition_id="sales", status=RunStatus.FAILED) == []
    assert bench.ids(definition_id="nobody's") == []


def test_an_expired_lease_is_one_of_a_running_run(bench: Bench) -> None:
    bench.create("created")
    bench.wait("waiting")
    bench.start("held")
    bench.release(bench.start("left"))
    bench.clock.advance(1)
    bench.start("held longer")
    assert bench.ids(lease="expired") == ["left"]
    bench.clock.advance(TTL - timedelta(seconds=1, microseconds=1))
    assert bench.ids(lease="expired") == ["left"]
    bench.clock.advance(timedelta(microseconds=1))
    assert bench.ids(lease="expired") == ["held", "left"]
    assert bench.ids(lease="expired", limit=1, after="held") == ["left"]
    assert bench.ids(lease="expired", definition_id="sales") == []


def test_a_listed_run_is_its_metadata(bench: Bench) -> None:
    bench.wait()
    [listed] = bench.do(bench.store.list_runs(RunFilter()))
    run = bench.run()
    assert vars(listed) == {name: vars(run)[name] for name in vars(listed)}
    assert not {"input", "history", "snapshot", "output"} & set(vars(listed))


# --- the journal


def a_whole_life(bench: Bench) -> None:
    """Each kind of event once, in two runs."""
    hold = bench.start("one")
    bench.fail(hold, bench.begin(hold), BROKEN)
    bench.succeed(hold, bench.begin(hold))
    bench.clock.advance(1.5)
    bench.fail(hold, bench.begin(hold, TOOL), change=WAITS, recovered=True)
    bench.resolve(replace(REJECT, actor="carol"), "one", "bob")
    bench.change(Hold("one", 2, 4), Change(RunStatus.SUCCEEDED, output="done"))
    for name, end in [("two", "FAILED"), ("three", "REJECTED"), ("four", "CANCELLED")]:
        hold = bench.start(name)
        bench.cancel(name, actor=None) if name == "four" else None
        bench.change(hold, Change(RunStatus(end), error_code="CODE" if name == "two" else None))


EVENTS = [
    ("one", None, "task_created", None, None, None),
    ("one", "ann#1", "run_started", None, None, None),
    ("one", "ann#1", "step_started", 0, "model-1", 1),
    ("one", "ann#1", "step_error", 0, "model-1", 1),
    ("one", "ann#1", "step_started", 0, "model-1", 2),
    ("one", "ann#1", "step_finished", 0, "model-1", 2),
    ("one", "ann#1", "step_started", 1, "model-1.tool-1", 1),
    ("one", "ann#1", "step_recovered", 1, "model-1.tool-1", 1),
    ("one", "ann#1", "run_waiting", 1, "model-1.tool-1", None),
    ("one", "bob#2", "run_started", None, None, None),
    ("one", "bob#2", "run_resolved", 1, "model-1.tool-1", None),
    ("one", "bob#2", "step_started", 1, "model-1.tool-1", 2),
    ("one", "bob#2", "step_finished", 1, "model-1.tool-1", 2),
    ("one", "bob#2", "task_done", None, None, None),
    ("two", None, "task_created", None, None, None),
    ("two", "ann#1", "run_started", None, None, None),
    ("two", "ann#1", "task_failed", None, None, None),
    ("three", None, "task_created", None, None, None),
    ("three", "ann#1", "run_started", None, None, None),
    ("three", "ann#1", "task_rejected", None, None, None),
    ("four", None, "task_created", None, None, None),
    ("four", "ann#1", "run_started", None, None, None),
    ("four", None, "cancel_requested", None, None, None),
    ("four", "ann#1", "task_cancelled", None, None, None),
]


def test_every_change_is_in_the_journal(bench: Bench) -> None:
    a_whole_life(bench)
    rows = bench.journal()
    columns = ("run_id", "owner", "kind", "step_idx", "step", "attempt")
    assert [tuple(row[name] for name in columns) for row in rows] == EVENTS
    assert all(list(row) == JOURNAL and row["task_id"] == row["run_id"] for row in rows)
    assert all(isinstance(json.loads(row["data"]), dict) for row in rows)
    assert [row["seq"] for row in rows] == sorted({row["seq"] for row in rows})
    start = FakeClock().now().timestamp()
    assert {row["ts"] - start for row in rows} == {0, 1.5}


def test_the_journal_is_read_from_where_one_left_off(bench: Bench) -> None:
    a_whole_life(bench)
    rows = bench.journal()
    assert bench.journal("two") == [row for row in rows if row["run_id"] == "two"]
    assert bench.journal(after=rows[7]["seq"]) == rows[8:]
    assert bench.journal("one", after=rows[7]["seq"]) == rows[8:14]
    assert bench.journal(after=rows[-1]["seq"]) == bench.journal("nobody") == []


def test_all_stores_write_the_same_journal(tmp_path: Path) -> None:
    journals = []
    for factory in FACTORIES:
        clock = FakeClock()
        bench = Bench(factory.open(tmp_path, clock), clock)
        a_whole_life(bench)
        journals.append(bench.journal())
        bench.close()
    assert len(journals) > 1
    assert all(journal == journals[0] for journal in journals)


# --- one write is one transaction


def success(bench: Bench) -> Callable[[], Any]:
    hold = bench.start()
    attempt = bench.begin(hold, TOOL)
    return lambda: bench.succeed(hold, attempt)


def failure(bench: Bench) -> Callable[[], Any]:
    hold = bench.start()
    attempt = bench.begin(hold, TOOL)
    ends = Change(RunStatus.FAILED, error_code="BROKEN")
    return lambda: bench.fail(hold, attempt, BROKEN, change=ends)


def normalisation(bench: Bench) -> Callable[[], Any]:
    hold = bench.start()
    attempt = bench.begin(hold, TOOL)
    return lambda: bench.fail(hold, attempt, change=WAITS, recovered=True)


def resolution(answer: RunResolution) -> Callable[[Bench], Callable[[], Any]]:
    def prepare(bench: Bench) -> Callable[[], Any]:
        version = bench.wait()
        return lambda: bench.resolve(answer, version=version)

    return prepare


def creation(bench: Bench) -> Callable[[], Any]:
    return bench.create


def acquisition(bench: Bench) -> Callable[[], Any]:
    bench.create()
    return lambda: bench.acquire(version=1, change=GO)


def renewal(bench: Bench) -> Callable[[], Any]:
    hold = bench.start()
    bench.clock.advance(1)
    return lambda: bench.renew(hold)


def release(bench: Bench) -> Callable[[], Any]:
    hold = bench.start()
    return lambda: bench.release(hold)


def attempt(bench: Bench) -> Callable[[], Any]:
    hold = bench.start()
    return lambda: bench.begin(hold, TOOL, (5, 5))


def transition(bench: Bench) -> Callable[[], Any]:
    hold = bench.start()
    return lambda: bench.change(hold, Change(RunStatus.SUCCEEDED, output="done"))


def request(bench: Bench) -> Callable[[], Any]:
    bench.start()
    return bench.cancel


WRITES = {
    "success": (success, 5),
    "failure": (failure, 6),
    "normalisation": (normalisation, 6),
    "confirm": (resolution(CONFIRM), 10),
    "reject": (resolution(REJECT), 10),
    "retry": (resolution(RETRY), 9),
    "fail": (resolution(FAIL), 8),
    "cancel": (resolution(CANCEL), 8),
    "creation": (creation, 4),
    "acquisition": (acquisition, 6),
    "renewal": (renewal, 4),
    "release": (release, 3),
    "attempt": (attempt, 6),
    "transition": (transition, 5),
    "request": (request, 5),
}


def sweep(bench: Bench, write: Callable[[], Any], fault: Fault) -> int:
    """How many statements the write has. Each fails in turn, BEGIN and COMMIT included.

    It goes on in the same store: at last, with no statement left to fail, all of it is there.
    """
    before = bench.everything()
    for nth in count(1):
        fault.at(nth)
        with suppress(StoreError):
            write()
        delivered = fault.delivered
        fault.at(0)
        if not delivered:
            break
        assert bench.everything() == before, f"statement {nth}"
    assert bench.everything() != before
    return nth - 1


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("factory", FACTORIES, ids=[factory.name for factory in FACTORIES])
def test_a_fault_in_the_middle_leaves_nothing(
    factory: Factory, name: str, tmp_path: Path, fault: Fault
) -> None:
    clock = FakeClock()
    bench = Bench(factory.open(tmp_path, clock), clock)
    prepare, at_least = WRITES[name]
    assert sweep(bench, prepare(bench), fault) >= at_least
    bench.close()


class InTwo(InMemoryRunStore):
    """Stores a failure, and what it makes of the run in a transaction of its own."""

    async def record_failure(
        self,
        hold: Hold,
        attempt: StepAttempt,
        failed: Failed,
        *,
        change: Change | None,
        recovered: bool = False,
    ) -> Receipt:
        ended = {"change": None, "recovered": recovered}
        with suppress(IllegalRunTransitionError):  # ended before: the second half is due
            await super().record_failure(hold, attempt, failed, **ended)
        assert change
        return await self.change_run(hold, change)


@pytest.mark.parametrize("name", ["failure", "normalisation"])
def test_a_write_in_two_halves_is_found(name: str, fault: Fault) -> None:
    """The control, for the groups that the published design leaves in two."""
    clock = FakeClock()
    bench = Bench(InTwo(clock=clock), clock)
    with pytest.raises(AssertionError, match="statement"):
        sweep(bench, WRITES[name][0](bench), fault)
    bench.close()

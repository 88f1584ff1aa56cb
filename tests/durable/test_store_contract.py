"""What every store of runs keeps, refuses and writes down. One suite for each implementation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from labkit.durable import (
    ConversationMessage,
    ConversationRole,
    DuplicateRunError,
    FailureClassification,
    IllegalRunTransitionError,
    LeaseNotHeldError,
    RunNotFoundError,
    RunStatus,
    StaleRunVersionError,
    StepStatus,
    StepType,
)
from labkit.durable.records import TRANSITIONS, Change, Failed, Hold, ModelPurpose, NewStep
from labkit.errors import LabkitError
from tests.durable.stores import (  # noqa: F401
    BROKEN,
    CONFIRM,
    GO,
    MODEL,
    TOOL,
    TTL,
    WAITS,
    Bench,
    a_bench,
)  # fmt: skip

# What the contract says, written down once more: the store's own table must equal it.
TABLE = {
    "CREATED": {"RUNNING", "WAITING", "REJECTED", "FAILED", "CANCELLED"},
    "RUNNING": {"SUCCEEDED", "REJECTED", "FAILED", "WAITING", "CANCELLED"},
    "WAITING": {"RUNNING", "FAILED", "CANCELLED"},
    "SUCCEEDED": set(),
    "REJECTED": set(),
    "FAILED": set(),
    "CANCELLED": set(),
}


def to(status: str) -> Change:
    return WAITS if status == "WAITING" else Change(RunStatus(status))


# --- a run's beginning


def test_a_created_run_is_read_as_it_was_handed_in(bench: Bench) -> None:
    history = (ConversationMessage(ConversationRole.ASSISTANT, "Hello\n\N{WAVING HAND SIGN} é"),)
    run = bench.create(history=history, input='"quoted" \\ \x00 text')
    assert bench.run() == run == bench.inspect().run
    assert (run.status, run.version, run.lease_epoch) == (RunStatus.CREATED, 1, 0)
    assert bench.kinds() == ["task_created"]


def test_an_equal_request_gives_the_stored_run(bench: Bench) -> None:
    first = bench.create()
    bench.clock.advance(60)
    assert bench.create() == first
    hold = bench.acquire(change=GO)
    before = bench.everything()
    assert bench.create().version == hold.version
    assert bench.everything() == before


OTHERS: list[dict[str, Any]] = [
    {"input": "another"},
    {"definition_id": "sales"},
    {"definition_version": "1.1"},
    {"history": (ConversationMessage(ConversationRole.USER, "hi"),)},
]


@pytest.mark.parametrize("other", OTHERS, ids=[next(iter(other)) for other in OTHERS])
def test_the_id_of_another_request_is_refused(bench: Bench, other: dict[str, Any]) -> None:
    bench.create()
    with bench.refused(DuplicateRunError, "r"):
        bench.create(**other)


def test_what_is_not_there_is_not_found(bench: Bench) -> None:
    bench.create("other")
    hold, unknown = Hold("r", 1, 1), bench.begin(bench.acquire("other", change=GO))
    verbs: list[Callable[[], Any]] = [
        bench.run,
        bench.inspect,
        lambda: bench.ids(after="r"),
        lambda: bench.acquire(version=1),
        lambda: bench.renew(hold),
        lambda: bench.begin(hold),
        lambda: bench.succeed(hold, replace(unknown, run_id="r")),
        lambda: bench.fail(hold, replace(unknown, run_id="r")),
        lambda: bench.change(hold, GO),
        lambda: bench.resolve(CONFIRM, version=1),
        bench.cancel,
    ]
    for verb in verbs:
        with bench.refused(RunNotFoundError, "'r'"):
            verb()
    assert bench.journal("r") == []


# --- the lease


def test_every_acquire_begins_a_new_epoch(bench: Bench) -> None:
    bench.create()
    for epoch, owner in enumerate(["ann", "ann", "bob"], start=1):
        hold = bench.acquire(owner=owner)
        run = bench.run()
        assert (run.lease_owner, run.lease_epoch, run.version) == (owner, epoch, 1)
        assert run.lease_expires_at == bench.clock.now() + TTL
        bench.release(hold)
    assert bench.kinds()[1:] == ["run_started"] * 3
    owners = [event["owner"] for event in bench.journal()[1:]]
    assert owners == ["ann#1", "ann#2", "bob#3"]


@pytest.mark.parametrize("owner", ["ann", "bob"])
def test_a_valid_lease_is_nobodys_to_take(bench: Bench, owner: str) -> None:
    """The owner included: a second advance of one runner would dispatch a second time."""
    bench.create()
    bench.acquire(owner="ann")
    bench.clock.advance(TTL - timedelta(microseconds=1))
    with bench.refused(LeaseNotHeldError, "ann"):
        bench.acquire(owner=owner)


def test_who_holds_the_lease_is_told(bench: Bench) -> None:
    bench.start(owner="ann")
    with pytest.raises(LeaseNotHeldError) as caught:
        bench.acquire(owner="bob")
    assert (caught.value.owner, caught.value.expires_at) == ("ann", bench.clock.now() + TTL)


def test_at_its_end_the_old_owner_is_out_and_another_may_enter(bench: Bench) -> None:
    hold = bench.start(owner="ann")
    attempt = bench.begin(hold)
    bench.clock.advance(TTL)
    for verb in writes(bench, hold, attempt):
        with bench.refused(LeaseNotHeldError):
            verb()
    assert bench.acquire(owner="bob") == Hold("r", hold.epoch + 1, hold.version)


def test_a_renewal_counts_from_now_and_is_no_transition(bench: Bench) -> None:
    hold = bench.start()
    bench.clock.advance(TTL / 2)
    renewed = bench.renew(hold)
    assert (renewed.version, renewed.lease_epoch) == (hold.version, hold.epoch)
    assert renewed.lease_expires_at == bench.run().lease_expires_at == bench.clock.now() + TTL
    bench.clock.advance(TTL / 2)
    bench.begin(hold)


def test_a_released_lease_is_free(bench: Bench) -> None:
    hold = bench.start(owner="ann")
    bench.release(hold)
    run = bench.run()
    assert (run.lease_owner, run.lease_expires_at) == (None, None)
    assert (run.status, run.version, run.lease_epoch) == ("RUNNING", hold.version, hold.epoch)
    assert bench.acquire(owner="bob").epoch == hold.epoch + 1


def test_an_expired_lease_may_still_be_released(bench: Bench) -> None:
    hold = bench.start()
    bench.clock.advance(TTL * 2)
    bench.release(hold)
    assert bench.run().lease_owner is None


def test_a_lease_that_was_taken_over_is_not_the_old_owners_to_release(bench: Bench) -> None:
    hold = bench.start(owner="ann")
    bench.clock.advance(TTL)
    bench.acquire(owner="ann")  # even of the same name
    with bench.refused(LeaseNotHeldError, "ann"):
        bench.release(hold)


def writes(bench: Bench, hold: Hold, attempt: Any) -> Iterator[Callable[[], Any]]:
    """Each write under a lease, with the step and the attempt that it would be right for."""
    yield lambda: bench.renew(hold)
    yield lambda: bench.begin(hold, TOOL)
    yield lambda: bench.succeed(hold, attempt)
    yield lambda: bench.fail(hold, attempt)
    yield lambda: bench.fail(hold, attempt, change=WAITS)
    yield lambda: bench.change(hold, to("FAILED"))


def test_a_write_of_another_epoch_is_refused(bench: Bench) -> None:
    hold = bench.start(owner="ann")
    attempt = bench.begin(hold)
    for epoch in (hold.epoch - 1, hold.epoch + 1):
        for verb in writes(bench, hold._replace(epoch=epoch), attempt):
            with bench.refused(LeaseNotHeldError):
                verb()


def test_a_write_after_a_take_over_by_the_same_name_is_refused(bench: Bench) -> None:
    hold = bench.start(owner="ann")
    attempt = bench.begin(hold)
    bench.clock.advance(TTL)
    bench.acquire(owner="ann")
    for verb in writes(bench, hold, attempt):
        with bench.refused(LeaseNotHeldError):
            verb()


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_stale_version_is_reported_before_a_lost_lease(bench: Bench, is_lost: bool) -> None:
    hold = bench.start()
    attempt = bench.begin(hold)
    if is_lost:
        bench.clock.advance(TTL)
    for version in (hold.version - 1, hold.version + 1):
        for verb in writes(bench, hold._replace(version=version), attempt):
            with bench.refused(StaleRunVersionError, str(hold.version)):
                verb()
        with bench.refused(StaleRunVersionError):
            bench.acquire(owner="bob", version=version)
        with bench.refused(StaleRunVersionError):
            bench.cancel(version=version)


# --- transitions


def test_the_table_of_transitions_is_the_contracts() -> None:
    assert {status: TRANSITIONS.get(status, set()) for status in RunStatus} == TABLE


PAIRS = list(product(RunStatus, RunStatus))


@pytest.mark.parametrize(("before", "after"), [p for p in PAIRS if p[1] not in TABLE[p[0]]])
def test_every_other_pair_is_refused(bench: Bench, before: RunStatus, after: RunStatus) -> None:
    hold = bench.reach(before)
    if before.is_terminal:  # there is no lease to be had
        for change in (to(after), None):
            with bench.refused(IllegalRunTransitionError, before):
                bench.acquire(change=change)
        hold = hold._replace(version=bench.version())
        with bench.refused(LeaseNotHeldError):
            bench.change(hold, to(after))
    else:
        with bench.refused(IllegalRunTransitionError, f"{before}.* {after}"):
            bench.change(hold, to(after))


@pytest.mark.parametrize("before", [RunStatus.RUNNING, RunStatus.WAITING])
def test_a_request_to_cancel_makes_no_other_pair_legal(bench: Bench, before: RunStatus) -> None:
    hold = bench.start()
    attempt = bench.begin(hold, TOOL)
    bench.cancel()
    if before is RunStatus.WAITING:
        bench.fail(hold, attempt, change=WAITS)
        hold = bench.acquire()
    for after in set(RunStatus) - TABLE[before]:
        with bench.refused(IllegalRunTransitionError, f"{before}.* {after}"):
            bench.change(hold, to(after))


@pytest.mark.parametrize(("before", "after"), [p for p in PAIRS if p[1] in TABLE[p[0]]])
def test_every_pair_of_the_table_adds_one_to_the_version(
    bench: Bench, before: RunStatus, after: RunStatus
) -> None:
    hold = bench.reach(before)
    events = len(bench.journal())
    assert bench.change(hold, to(after)) == (hold.version + 1, False)
    run = bench.run()
    assert (run.status, run.version, run.lease_epoch) == (after, hold.version + 1, hold.epoch)
    is_on = after is RunStatus.RUNNING
    assert (run.lease_owner is not None) == is_on  # released with everything else
    assert len(bench.journal()) == events + (not is_on)
    kinds = {
        "WAITING": "run_waiting", "SUCCEEDED": "task_done", "REJECTED": "task_rejected",
        "FAILED": "task_failed", "CANCELLED": "task_cancelled", "RUNNING": bench.kinds()[-1],
    }  # fmt: skip
    assert bench.kinds()[-1] == kinds[after]


@pytest.mark.parametrize(("before", "after"), [p for p in PAIRS if p[1] in TABLE[p[0]]])
def test_a_lease_and_its_transition_are_one_write(
    bench: Bench, before: RunStatus, after: RunStatus
) -> None:
    bench.release(bench.reach(before))
    version = bench.version()
    bench.acquire(change=to(after))
    run = bench.run()
    assert (run.status, run.version) == (after, version + 1)
    assert (run.lease_owner is not None) == (after is RunStatus.RUNNING)


def test_a_transition_keeps_what_comes_with_it_and_clears_what_was(bench: Bench) -> None:
    bench.wait()
    run = bench.run()
    assert run.waiting_reason == "UNCERTAIN_NON_IDEMPOTENT"
    assert run.waiting_step_id == TOOL.step_id
    hold = bench.acquire(change=GO)
    run = bench.run()
    assert (run.waiting_reason, run.waiting_step_id) == (None, None)
    bench.change(hold, Change(RunStatus.SUCCEEDED, output="the answer"))
    assert (bench.run().output, bench.run().error_code) == ("the answer", None)
    failed = bench.start("f")
    bench.change(failed, Change(RunStatus.FAILED, error_code="BUDGET"))
    assert (bench.run("f").output, bench.run("f").error_code) == (None, "BUDGET")


def test_a_run_that_ends_leaves_no_step_running(bench: Bench) -> None:
    hold = bench.start()
    bench.succeed(hold, bench.begin(hold))
    bench.fail(hold, bench.begin(hold, TOOL), BROKEN, change=Change(RunStatus.FAILED))
    assert [step.status for step in bench.inspect().steps] == ["SUCCEEDED", "FAILED"]
    assert bench.run().lease_owner is None


# --- steps and attempts


def test_an_attempt_is_stored_before_its_call(bench: Bench) -> None:
    hold = bench.start()
    bench.succeed(hold, bench.begin(hold))
    bench.clock.advance(1)
    attempt = bench.begin(hold, TOOL)
    found = bench.inspect()
    step = found.steps[1]
    assert (step.step_id, step.idx, step.step_type) == (TOOL.step_id, 1, StepType.TOOL)
    assert (step.status, step.name, step.call) == (StepStatus.RUNNING, "send", TOOL.call)
    assert step.effect is TOOL.effect
    assert step.checkpoint_attempt_id is None
    assert found.attempts[1] == attempt
    assert (attempt.attempt_id, attempt.number) == (f"{TOOL.step_id}#1", 1)
    assert (attempt.status, attempt.created_at) == (StepStatus.RUNNING, bench.clock.now())
    assert bench.version() == hold.version


def test_a_success_is_the_checkpoint(bench: Bench) -> None:
    hold = bench.start()
    attempt = bench.begin(hold)
    bench.clock.advance(2)
    assert bench.succeed(hold, attempt, '{"a": "\\u00e9"}') == (hold.version, False)
    found = bench.inspect()
    [step], [done], [checkpoint] = found.steps, found.attempts, found.checkpoints
    assert (step.status, step.checkpoint_attempt_id) == ("SUCCEEDED", attempt.attempt_id)
    assert (done.status, done.output) == ("SUCCEEDED", '{"a": "\\u00e9"}')
    assert (done.created_at, done.finished_at) == (attempt.created_at, bench.clock.now())
    assert (checkpoint.step_id, checkpoint.attempt_id) == (step.step_id, attempt.attempt_id)
    assert (checkpoint.output, checkpoint.created_at) == (done.output, bench.clock.now())


@pytest.mark.parametrize("recovered", [False, True])
@pytest.mark.parametrize("classification", list(FailureClassification))
def test_a_failure_keeps_its_class(
    bench: Bench, classification: FailureClassification, recovered: bool
) -> None:
    hold = bench.start()
    failed = Failed(classification, "E_CODE", "in words")
    bench.fail(hold, bench.begin(hold), failed, recovered=recovered)
    [attempt], [step] = bench.inspect().attempts, bench.inspect().steps
    assert (attempt.status, attempt.classification) == ("FAILED", classification)
    assert (attempt.error_code, attempt.error, attempt.output) == ("E_CODE", "in words", None)
    assert step.status == "RUNNING"  # until its run ends: another attempt may follow
    assert bench.inspect().checkpoints == []
    event = bench.journal()[-1]
    assert event["kind"] == ("step_recovered" if recovered else "step_error")
    assert json.loads(event["data"]) == {"classification": classification, "code": "E_CODE"}
    again = bench.begin(hold)
    assert (again.step_id, again.attempt_id, again.number) == (step.step_id, "model-1#2", 2)


@pytest.mark.parametrize("status", [RunStatus.CREATED, RunStatus.WAITING])
def test_no_attempt_begins_unless_the_run_is_running(bench: Bench, status: RunStatus) -> None:
    hold = bench.reach(status)
    for step in (MODEL, TOOL):
        with bench.refused(IllegalRunTransitionError, status):
            bench.begin(hold, step)


def test_a_run_has_one_open_attempt(bench: Bench) -> None:
    hold = bench.start()
    bench.begin(hold)
    for step in (MODEL, TOOL):
        with bench.refused(IllegalRunTransitionError):
            bench.begin(hold, step)


def test_a_step_that_is_done_is_never_tried_again(bench: Bench) -> None:
    hold = bench.start()
    attempt = bench.begin(hold)
    bench.succeed(hold, attempt, "first")
    with bench.refused(IllegalRunTransitionError):
        bench.begin(hold)
    with bench.refused(IllegalRunTransitionError):
        bench.succeed(hold, attempt, "second")
    with bench.refused(IllegalRunTransitionError):
        bench.fail(hold, attempt)


def test_an_attempt_that_failed_has_ended(bench: Bench) -> None:
    hold = bench.start()
    attempt = bench.begin(hold)
    bench.fail(hold, attempt)
    for verb in (lambda: bench.succeed(hold, attempt), lambda: bench.fail(hold, attempt)):
        with bench.refused(IllegalRunTransitionError):
            verb()
    bench.begin(hold)
    with bench.refused(IllegalRunTransitionError):  # the second is open, the first is not
        bench.succeed(hold, attempt)


def test_a_lease_says_nothing_about_another_run(bench: Bench) -> None:
    """Both have an open attempt of the same name."""
    mine, other = bench.start("mine"), bench.begin(bench.start("other"))
    assert bench.begin(mine).attempt_id == other.attempt_id
    for verb in (lambda: bench.succeed(mine, other), lambda: bench.fail(mine, other)):
        before = bench.everything()
        with pytest.raises(LabkitError):
            verb()
        assert bench.everything() == before


def test_two_runs_with_the_same_steps_know_nothing_of_each_other(bench: Bench) -> None:
    one, two = bench.start("one"), bench.start("two")
    first, second = bench.begin(one), bench.begin(two)
    assert first.attempt_id == second.attempt_id
    bench.succeed(one, first, "of one")
    before, of_one = bench.inspect("one"), bench.journal("one")
    bench.fail(two, second)
    bench.succeed(two, bench.begin(two), "of two")
    bench.change(two, to("SUCCEEDED"))
    assert bench.inspect("one") == before
    assert bench.journal("one") == of_one
    assert [each.output for each in bench.inspect("two").checkpoints] == ["of two"]


def test_the_budget_counts_what_is_stored(bench: Bench) -> None:
    """Failed attempts too, tools not; one purpose by itself, and all of them together."""
    hold = bench.start()
    repair = NewStep("repair-1", StepType.MODEL, purpose=ModelPurpose.OUTPUT_REPAIR)
    for limits in [(1, 1), (2, 2)]:
        bench.fail(hold, bench.begin(hold, MODEL, limits))
    bench.fail(hold, bench.begin(hold, TOOL))
    before = bench.everything()
    for step, limits in [(MODEL, (9, 2)), (MODEL, (2, 9)), (repair, (2, 9)), (repair, (9, 0))]:
        attempt, receipt = bench.do(bench.store.begin_attempt(hold, step, limits))
        assert (attempt, receipt) == (None, (hold.version, False))
    assert bench.everything() == before
    assert bench.begin(hold, repair, (3, 1)).model_purpose is ModelPurpose.OUTPUT_REPAIR

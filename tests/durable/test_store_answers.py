"""What every store makes of the application's answers, and of a request to cancel."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from labkit.durable import (
    IllegalRunTransitionError,
    LeaseNotHeldError,
    ResolutionAction,
    ResolutionNotAllowedError,
    RunResolution,
    RunStatus,
    StaleRunVersionError,
)
from labkit.durable.records import Change
from tests.durable.stores import (  # noqa: F401
    BROKEN,
    CANCEL,
    CONFIRM,
    FAIL,
    MODEL,
    REJECT,
    RETRY,
    TOOL,
    WAITS,
    Bench,
    a_bench,
)  # fmt: skip

# --- what the application says


def test_a_resolution_is_stored_with_who_when_and_why(bench: Bench) -> None:
    version = bench.wait()
    bench.clock.advance(5)
    answer = replace(CONFIRM, actor="carol", reason="the carrier has it")
    found = bench.resolve(answer, owner="bob")
    [stored] = found.resolutions
    assert found == bench.inspect()
    assert (stored.action, stored.step_id) == (ResolutionAction.CONFIRM_STEP, TOOL.step_id)
    assert (stored.actor, stored.reason) == ("carol", "the carrier has it")
    assert (stored.version, stored.created_at) == (version, bench.clock.now())
    assert (found.run.lease_owner, found.run.status) == ("bob", RunStatus.RUNNING)
    [event] = [e for e in bench.journal() if e["kind"] == "run_resolved"]
    assert json.loads(event["data"]) == {"action": "CONFIRM_STEP", "actor": "carol"}
    assert (event["owner"], event["step"]) == (f"bob#{found.run.lease_epoch}", TOOL.step_id)


@pytest.mark.parametrize("answer", [CONFIRM, REJECT], ids=["confirm", "reject"])
def test_an_answer_becomes_the_checkpoint(bench: Bench, answer: RunResolution) -> None:
    version = bench.wait()
    found = bench.resolve(answer)
    assert found.run.version == version + 1
    assert [attempt.status for attempt in found.attempts] == ["FAILED", "SUCCEEDED"]
    [checkpoint] = found.checkpoints
    assert checkpoint.attempt_id == f"{TOOL.step_id}#2"
    outcome = {"call_id": "c1", "tool_name": "send", "result": None, "code": None, "message": None}
    if answer is CONFIRM:
        outcome |= {"status": "SUCCESS", "result": "sent"}
    else:
        outcome |= {"status": "REJECTED", "code": "NO", "message": "was not sent"}
    assert json.loads(checkpoint.output) == outcome


def test_a_retry_is_the_next_attempt(bench: Bench) -> None:
    version = bench.wait()
    found = bench.resolve(RETRY)
    assert found.run.version == version + 1
    assert [a.status for a in found.attempts] == ["FAILED", "RUNNING"]
    assert found.checkpoints == []


@pytest.mark.parametrize(("answer", "end"), [(FAIL, "FAILED"), (CANCEL, "CANCELLED")])
@pytest.mark.parametrize("reason", ["UNCERTAIN_NON_IDEMPOTENT", "DEFINITION_UNAVAILABLE"])
def test_an_answer_may_end_the_run(
    bench: Bench, answer: RunResolution, end: str, reason: str
) -> None:
    if reason == "DEFINITION_UNAVAILABLE":
        bench.change(bench.start(), Change(RunStatus.WAITING, waiting_reason=reason))
    else:
        bench.wait()
    version = bench.version()
    found = bench.resolve(answer)
    assert (found.run.status, found.run.version) == (end, version + 1)
    assert (found.run.lease_owner, found.run.waiting_reason) == (None, None)
    assert found.checkpoints == []
    assert all(step.status == "FAILED" for step in found.steps)


OTHER_STEP = {"waiting_step_id": "model-9.tool-1"}
NO_ANSWERS = [
    replace(CONFIRM, **OTHER_STEP), replace(REJECT, **OTHER_STEP), replace(RETRY, **OTHER_STEP),
    replace(FAIL, **OTHER_STEP), replace(CANCEL, **OTHER_STEP),
    replace(RETRY, waiting_step_id=None),
    replace(CONFIRM, result=None), replace(REJECT, code=None), replace(REJECT, message=None),
    RunResolution(ResolutionAction.CONTINUE_RUN, waiting_step_id=TOOL.step_id),
]  # fmt: skip


@pytest.mark.parametrize("answer", NO_ANSWERS)
def test_what_is_no_answer_is_refused(bench: Bench, answer: RunResolution) -> None:
    bench.wait()
    with bench.refused(ResolutionNotAllowedError):
        bench.resolve(answer)


@pytest.mark.parametrize("answer", [CONFIRM, REJECT, RETRY])
def test_a_missing_definition_takes_no_answer_about_a_step(
    bench: Bench, answer: RunResolution
) -> None:
    reason = "DEFINITION_UNAVAILABLE"
    bench.change(bench.start(), Change(RunStatus.WAITING, waiting_reason=reason))
    with bench.refused(ResolutionNotAllowedError):
        bench.resolve(replace(answer, waiting_step_id=None))


@pytest.mark.parametrize("answer", [CONFIRM, REJECT])
def test_only_a_step_with_a_call_takes_an_outcome(bench: Bench, answer: RunResolution) -> None:
    hold, at = bench.start(), {"waiting_step_id": MODEL.step_id}
    bench.fail(hold, bench.begin(hold), change=WAITS._replace(**at))
    with bench.refused(ResolutionNotAllowedError):
        bench.resolve(replace(answer, **at))


@pytest.mark.parametrize("status", [s for s in RunStatus if s is not RunStatus.WAITING])
def test_only_a_run_that_waits_is_resolved(bench: Bench, status: RunStatus) -> None:
    bench.reach(status)
    with bench.refused(IllegalRunTransitionError):
        bench.resolve(CONFIRM)


def test_an_answer_to_an_older_question_is_refused(bench: Bench) -> None:
    version = bench.wait()
    with bench.refused(StaleRunVersionError):
        bench.resolve(CONFIRM, version=version - 1)
    bench.acquire(owner="bob")
    with bench.refused(LeaseNotHeldError, "bob"):
        bench.resolve(CONFIRM)


# --- a request to cancel


def test_a_request_needs_no_lease_and_is_no_transition(bench: Bench) -> None:
    hold = bench.start()
    bench.clock.advance(1)
    asked = bench.cancel(actor="eve", version=hold.version)
    assert (asked.cancel_requested_by, asked.cancel_requested_at) == ("eve", bench.clock.now())
    run = bench.run()
    assert run.cancel_requested_at == asked.cancel_requested_at
    assert (run.status, run.version, run.lease_epoch) == ("RUNNING", hold.version, hold.epoch)
    event = bench.journal()[-1]
    assert (event["kind"], json.loads(event["data"])) == ("cancel_requested", {"actor": "eve"})
    before = bench.everything()
    bench.clock.advance(1)
    bench.cancel(actor="mallory")  # the first stays, and is written down once
    assert bench.everything() == before


@pytest.mark.parametrize("status", [s for s in RunStatus if s is not RunStatus.RUNNING])
def test_only_a_running_run_is_asked(bench: Bench, status: RunStatus) -> None:
    bench.reach(status)
    with bench.refused(IllegalRunTransitionError):
        bench.cancel()


def test_every_write_tells_of_the_request(bench: Bench) -> None:
    hold = bench.start()
    attempt = bench.begin(hold)
    bench.cancel()
    assert bench.renew(hold).cancel_requested_at == bench.clock.now()
    assert bench.succeed(hold, attempt) == (hold.version, True)
    before = bench.everything()
    begun = bench.do(bench.store.begin_attempt(hold, TOOL, None))
    assert begun == (None, (hold.version, True))
    assert bench.everything() == before


@pytest.mark.parametrize("end", ["SUCCEEDED", "FAILED"])
def test_a_run_that_was_asked_ends_cancelled(bench: Bench, end: str) -> None:
    hold = bench.start()
    attempt = bench.begin(hold)
    bench.cancel()
    if end == "FAILED":
        bench.fail(hold, attempt, BROKEN, change=Change(RunStatus.FAILED, error_code="BROKEN"))
    else:
        bench.succeed(hold, attempt)
        bench.change(hold, Change(RunStatus.SUCCEEDED, output="done"))
    run = bench.run()
    assert (run.status, run.version, run.output) == ("CANCELLED", hold.version + 1, None)
    assert bench.inspect().attempts[0].status == end  # what it did is stored first


@pytest.mark.parametrize(("answer", "kept"), [(CONFIRM, True), (REJECT, True), (RETRY, False)])
def test_a_request_stays_over_waiting_and_a_retry_withdraws_it(
    bench: Bench, answer: RunResolution, kept: bool
) -> None:
    hold = bench.start()
    attempt = bench.begin(hold, TOOL)
    bench.cancel()
    bench.fail(hold, attempt, change=WAITS)
    assert bench.run().status is RunStatus.WAITING  # an effect that nobody can prove beats it
    found = bench.resolve(answer)
    assert (found.run.cancel_requested_at is not None) == kept
    assert (found.run.cancel_requested_by is not None) == kept
    assert found.run.status is RunStatus.RUNNING

"""A process is paused by SIGSTOP and woken by SIGCONT: really, where it was told, and once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit import lab
from labkit.errors import UsageError
from labkit.lab import runs, verbs
from labkit.lab.pausing import pause, pause_in, wake
from labkit.lab.process import NotReady, Process

GO = "dispatch go pump"


@pytest.fixture(autouse=True)
def _begun(home: Path) -> Iterator[None]:
    lab.begin("12")
    yield
    if verbs._open:
        lab.end()


def paused(**agent: str) -> Process:
    process = lab.start(GO, **agent)
    pause(process)
    return process


def kinds() -> list[str]:
    return list(lab.journal().events().kind.astype(str))


def test_a_paused_process_is_there_and_stores_nothing() -> None:
    ann = paused(AGENT_HOLD="model-1")
    assert (ann.alive, ann.state, kinds()[-1]) == (True, "paused", "step_started")
    assert wake(ann).code == 0
    assert kinds()[-1] == "task_done"


def test_the_effect_is_done_when_the_call_is_paused() -> None:
    ann = paused(AGENT_HOLD="notify")
    assert len(runs.outbox()) == 1
    assert wake(ann).code == 0


def test_a_process_that_stops_itself_has_not_called() -> None:
    ann = paused(AGENT_STOP_BEFORE="notify is called")
    assert (kinds()[-1], len(runs.outbox())) == ("step_started", 0)
    assert wake(ann).code == 0
    assert len(runs.outbox()) == 1


def test_two_are_paused_in_one_folder_and_the_late_one_is_refused() -> None:
    ann = paused(AGENT_HOLD="model-1")
    bob = paused(AGENT_OWNER="bob", AGENT_HOLD="model-1")
    before = kinds()
    late = wake(ann)
    assert (late.code, late.output.partition(":")[0]) == (3, "LeaseNotHeldError")
    assert kinds() == before
    assert wake(bob).code == 0
    assert len(runs.outbox()) == 1


def test_without_the_epoch_the_late_one_goes_on() -> None:
    """The control: a runtime that does not look at the epoch takes what the zombie says."""
    runs.use("no epoch")
    ann = paused(AGENT_HOLD="model-1")
    place = "the failure of model-1 is stored"
    assert lab.run(GO, AGENT_OWNER="bob", AGENT_DIE_BEFORE=place).killed
    before = len(kinds())
    assert wake(ann).code == 0
    owners = set(lab.journal().sql("SELECT owner FROM journal WHERE seq > ?", [before]).owner)
    assert owners == {"bob#2"}


def test_a_request_to_cancel_is_stored_and_obeyed_by_who_has_the_lease() -> None:
    ann = paused(AGENT_HOLD="notify")
    asked = lab.run("dispatch cancel pump", AGENT_OWNER="eve", LABKIT_CLOCK="1767225610")
    assert (asked.code, kinds()[-1]) == (0, "cancel_requested")
    assert wake(ann).output == "run pump is CANCELLED\n"
    assert (kinds()[-2:], len(runs.outbox())) == (["step_finished", "task_cancelled"], 1)


def test_the_end_of_the_notebook_ends_a_paused_process() -> None:
    ann = paused(AGENT_HOLD="model-1")
    lab.end()
    assert ann.killed


def test_a_place_that_never_comes_is_told() -> None:
    with pytest.raises(NotReady, match="never came to 'nowhere'; it was not stopped"):
        paused(AGENT_STOP_BEFORE="nowhere")


def test_a_call_that_does_not_wait_is_told() -> None:
    ann = paused(AGENT_HOLD="model-1")
    ann.wake()
    ann.finish()
    with pytest.raises(NotReady, match="ended before it could be paused"):
        pause(ann)
    with pytest.raises(NotReady, match="is not paused"):
        wake(ann)


def test_nobody_waits_for_ever() -> None:
    ann = lab.start(GO, AGENT_HOLD="model-1")
    with pytest.raises(NotReady, match="give AGENT_HOLD"):
        pause_in(verbs.current_folder().path / "elsewhere", ann, timeout_s=0)


@pytest.mark.parametrize("verb", [pause, wake])
def test_only_a_process_can_be_paused(verb: object) -> None:
    with pytest.raises(UsageError, match="no process"):
        verb("ann")  # type: ignore[operator]

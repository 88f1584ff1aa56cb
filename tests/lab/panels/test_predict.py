"""The room predicts: what is hidden before the vote, and asked once for each outcome."""

from __future__ import annotations

import re

import pytest

from labkit.lab import panels, verbs
from labkit.lab.panels.instructor import Instructor
from tests.lab.panels.staging import (
    alt,
    another_program,
    at_work,
    click,
    demo,
    die_at,
    enabled,
    everything,
    has_failed,
    said,
    text,
    wait,
)

__all__ = ["demo"]  # a fixture
pytestmark = pytest.mark.usefixtures("demo")


def hidden(at: str) -> list[str]:
    """What a room sees of a run that was killed there and resumed, before it has voted."""
    panel = panels.Instructor("durable")
    click(panel, "create")
    die_at(panel, at)
    panel.predict.value = True
    click(panel, "run")
    wait(panel)
    click(panel, "resume")
    wait(panel)
    seen = [each.replace(at, "AT") for each in everything(panel)]
    panel.predict.value = False
    shown = [each.replace(at, "AT") for each in everything(panel)]
    assert shown != seen
    click(panel, "reset")
    return seen


def test_before_the_vote_two_outcomes_look_the_same() -> None:
    waits, over = hidden("boundary:7"), hidden("boundary:4")
    # Of the grid, each has another place pressed; the replaced words stand at other places.
    is_place = re.compile(r"^(AT|boundary:\d+) o")
    kept = [[each for each in seen if not is_place.match(each)] for seen in (waits, over)]
    assert kept[0] == kept[1]
    assert not any("WAITING" in each or "SUCCEEDED" in each for each in waits)
    assert sum("Hidden until the room has voted" in each for each in waits) == 5


def test_the_room_votes_and_then_sees() -> None:
    panel = panels.Instructor()
    panel.predict.value = True
    click(panel, "create")
    assert panel.reveal.disabled  # nothing has run
    die_at(panel, "after_effect:2")
    click(panel, "run")
    assert "step_started" not in panel.pages["Journal"].value
    wait(panel)
    assert alt(panel) == ""
    assert "step_started" not in panel.pages["Journal"].value
    assert "killed" not in said(panel)
    assert enabled(panel) == {"resume", "reset"}
    panel.reveal.click()
    assert has_failed(panel)
    assert "nobody has voted; count the hands for each answer, or switch Predict off" in said(panel)
    assert alt(panel) == ""
    panel.votes.children[1].value = 12
    panel.reveal.click()
    counted = "The room: 0 reports: 0 · 1 report: 12, came so · 2 reports: 0"
    assert (text(panel.result.value), panel.result.layout.display) == (counted, "")
    assert "<b><bdi>1 report</bdi>: 12, came so</b>" in panel.result.value
    assert "1 killed" in alt(panel)
    assert "killed by SIGKILL" in said(panel)
    click(panel, "resume")
    wait(panel)
    assert alt(panel) == ""  # a new act, a new vote
    assert [box.value for box in panel.votes.children] == [0, 0, 0]
    assert text(panel.result.value) == ""


def is_hidden(panel: Instructor) -> bool:
    hidden = "Hidden" in panel.effects.value
    assert hidden == ("Hidden" in panel.pages["Journal"].value) == (panel.timeline.value == "")
    return hidden


def vote(panel: Instructor, answer: str) -> None:
    [box] = [each for each in panel.votes.children if each.description == answer]
    box.value = 5


def waiting() -> Instructor:
    """A durable run that waits, with its message sent; the room has guessed twice and knows it."""
    panel = panels.Instructor("durable")
    panel.predict.value = True
    click(panel, "create")
    die_at(panel, "boundary:7")
    for act, guess in (("run", "1 message"), ("resume", "2 messages")):
        click(panel, act)
        wait(panel)
        assert is_hidden(panel)
        vote(panel, guess)
        panel.reveal.click()
        assert not is_hidden(panel)
    return panel


def test_an_answer_is_given_in_the_open() -> None:
    panel = waiting()
    panel.answers.value = "confirm"
    click(panel, "answer")
    assert not is_hidden(panel)
    assert panel.reveal.disabled
    assert "SUCCEEDED" in said(panel)
    assert text(panel.effects.value) == "Left outside: 1 message"
    assert panel.result.value == ""  # of another outcome


def test_hands_that_were_counted_before_an_answer_are_a_guess() -> None:
    panel = waiting()
    panel.answers.value = "retry"
    vote(panel, "1 message")
    click(panel, "answer")
    assert is_hidden(panel)
    assert "SUCCEEDED" not in said(panel)
    panel.reveal.click()
    assert "1 message: 5 · 2 messages: 0, came so" in text(panel.result.value)


def test_hands_that_were_counted_before_a_run_are_a_guess() -> None:
    panel = panels.Instructor()
    panel.predict.value = True
    click(panel, "create")
    die_at(panel, "after_effect:2")
    vote(panel, "0 reports")
    click(panel, "run")
    wait(panel)
    assert is_hidden(panel)
    panel.reveal.click()
    assert "0 reports: 5 · 1 report: 0, came so" in text(panel.result.value)


@pytest.mark.proof
def test_a_resume_that_brings_nothing_asks_nobody() -> None:
    panel = waiting()
    click(panel, "resume")
    wait(panel)
    assert not is_hidden(panel)
    assert "It did nothing: an answer comes first." in said(panel)
    panel.answers.value = "confirm"
    click(panel, "answer", "resume")
    wait(panel)
    assert not is_hidden(panel)
    assert "It found nothing left to do, and did nothing." in said(panel)


@pytest.mark.proof
def test_a_second_resume_before_the_vote_tells_nothing_and_is_one_outcome() -> None:
    panel = waiting()
    click(panel, "reset", "create", "run")
    wait(panel)
    click(panel, "resume", "reset")
    assert not is_hidden(panel)
    click(panel, "create", "run")
    wait(panel)
    click(panel, "resume")
    wait(panel)
    click(panel, "resume")
    wait(panel)
    assert is_hidden(panel)
    assert said(panel) == (
        "The process has ended. The room votes, then Reveal; "
        "a Resume before that makes one question of both."
    )
    vote(panel, "1 message")
    panel.reveal.click()
    assert not is_hidden(panel)


def test_what_the_room_has_seen_is_not_hidden_again() -> None:
    panel = panels.Instructor()
    click(panel, "create")
    die_at(panel, "after_effect:2")
    click(panel, "run")
    wait(panel)
    panel.predict.value = True
    assert not is_hidden(panel)
    click(panel, "resume")
    wait(panel)
    assert is_hidden(panel)
    vote(panel, "1 report")
    panel.reveal.click()
    panel.predict.value = False
    panel.predict.value = True
    assert not is_hidden(panel)
    assert panel.result.value == ""


def test_a_reset_forgets_the_hands() -> None:
    panel = panels.Instructor()
    panel.predict.value = True
    click(panel, "create")
    vote(panel, "1 report")
    click(panel, "reset")
    assert [box.value for box in panel.votes.children] == [0, 0, 0]


def test_while_it_works_there_is_nothing_to_reveal() -> None:
    panel = panels.Instructor()
    panel.predict.value = True
    at_work(panel)
    assert enabled(panel) == {"kill", "reset"}
    assert panel.reveal.disabled
    panel.votes.children[0].value = 1
    panel.reveal.click()  # a click that came too early
    assert "its outcome is known when it has ended" in said(panel)
    click(panel, "kill")
    assert not panel.reveal.disabled


def test_the_code_of_a_kill_by_hand_is_hidden_until_the_room_has_voted() -> None:
    panel = panels.Instructor()
    panel.predict.value = True
    at_work(panel)
    click(panel, "kill", "resume")
    wait(panel)
    code = panel.pages["Code"].value
    assert "lab.start(&quot;agent run notes" in code  # the acts before it stay
    assert "Hidden until the room has voted" in code
    for given_away in ("wait_for", "step_", "lab.kill", "finish"):
        assert given_away not in code
    vote(panel, "1 report")
    panel.reveal.click()
    code = panel.pages["Code"].value
    assert "lab.wait_for(process, &quot;step_started&quot;, 0)\nlab.kill(process)" in code
    assert "Hidden" not in code


def test_what_is_locked_is_revealed_when_it_can_be_read() -> None:
    panel = panels.Instructor("durable")
    panel.predict.value = True
    click(panel, "create")
    die_at(panel, "boundary:7")
    click(panel, "run")
    wait(panel)
    click(panel, "resume")
    wait(panel)
    vote(panel, "waits, 1 message")
    with another_program(verbs.current_folder().database) as other:
        other.execute("BEGIN EXCLUSIVE")
        panel.reveal.click()  # whether it waits, nobody knows now
        assert "is locked by another program" in said(panel)
        assert is_hidden(panel)
    panel.reveal.click()
    assert "waits, 1 message: 5, came so" in text(panel.result.value)


def test_without_predict_nothing_is_hidden() -> None:
    panel = panels.Instructor()
    assert panel.votes.layout.display == "none"
    assert panel.reveal.layout.display == "none"
    panel.predict.value = True
    assert panel.votes.layout.display == ""

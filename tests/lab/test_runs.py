"""The verbs for durable runs: what is killed is killed, what is counted is counted outside."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit import lab
from labkit.durable import RunResolution
from labkit.errors import LabkitError, UsageError
from labkit.lab import pictures_of_runs, runs
from labkit.lab.checks import Judgement
from labkit.lab.folder import session
from labkit.lab.runs import Answer, Kill

STORED = "the result of model-1.tool-1 is stored"
AROUND = ["notify is called", STORED]

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def _notebook(home: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    lab.begin("11")
    capsys.readouterr()
    yield
    lab.end()


def test_an_unharmed_run_sends_once() -> None:
    ended = lab.run("dispatch go pump")
    assert (ended.code, ended.output) == (0, "run pump is SUCCEEDED: Kim was told\n")
    assert runs.outbox().key.tolist() == ["pump:model-1.tool-1"]


@pytest.mark.parametrize(("place", "sent"), [(AROUND[0], 0), (AROUND[1], 1)])
def test_around_the_message_it_waits_and_sends_nothing_more(place: str, sent: int) -> None:
    assert lab.run("dispatch go pump", AGENT_DIE_BEFORE=place).killed
    assert len(runs.outbox()) == sent
    for command in ("go", "resume"):
        ended = lab.run(f"dispatch {command} pump")
        assert repr(ended) == "exit 4: the run waits for an answer"
        assert len(runs.outbox()) == sent


@pytest.mark.parametrize("asked", ["the moon is full", f"{STORED}, commit 2"])
def test_a_place_that_is_never_reached_is_no_survived_kill(asked: str) -> None:
    ended = lab.run("dispatch go pump", AGENT_DIE_BEFORE=asked)
    assert ended.code == 64
    why = f"UsageError: this process never came to {asked!r}; it was not killed"
    assert " ".join(ended.output.split()) == why


@pytest.mark.sampled
@pytest.mark.parametrize(
    "words",
    ["go", "go pump letter", "resolve pump", "resolve pump maybe", "start pump notice", "fly pump"],
)
def test_a_mistyped_command_says_what_there_is(words: str) -> None:
    ended = lab.run(f"dispatch {words}")
    assert ended.code == 64
    assert ended.output.startswith("UsageError: give create or go, RUN")
    assert "Traceback" not in ended.output


def test_a_learner_answers_in_the_notebook_itself() -> None:
    lab.run("dispatch go pump", AGENT_DIE_BEFORE=STORED)
    lab.run("dispatch go pump", AGENT_OWNER="bob")
    runner = runs.runner("you")
    waiting = asyncio.run(runner.get_run("pump"))
    fact = RunResolution.confirm_step("Kim was told", waiting_step_id=waiting.waiting_step_id)
    ended = asyncio.run(runner.resolve_run("pump", fact, waiting.version))
    assert (ended.status, len(runs.outbox())) == ("SUCCEEDED", 1)
    summary = lab.timeline("pump").summary
    assert "3 owners" in summary
    assert summary.endswith("1 killed.")


@pytest.mark.proof
def test_the_published_order_sends_twice_and_ours_does_not() -> None:
    """The control: the same sweep, the same witness, and only the order of the writes differs."""
    published, ours = runs.sweep(mutant="three commits"), runs.sweep()
    twice = [f"{STORED}, commit {n}" for n in (2, 3)]
    assert [kill.place for kill in published if kill.messages > 1] == twice
    assert [kill.place for kill in ours if kill.ends == "WAITING"] == AROUND
    assert {kill.messages for kill in ours if kill.ends != "WAITING"} == {1}
    assert [kill.place for kill in published if kill.place not in twice] == [k.place for k in ours]
    assert "sent again after 2 of them" in pictures_of_runs.draw_sends(published).summary
    assert "sent again after 0 of them" in pictures_of_runs.draw_sends(ours).summary
    assert len(runs.commits(STORED)) == 1
    assert len(runs.commits(STORED, "three commits")) == 3


def test_a_kill_that_does_not_come_is_no_row_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    real = runs.Trials.call

    def blunt(self: runs.Trials, folder: Path, nth: int, *words: str, **agent: str) -> object:
        agent.pop("AGENT_CRASH_AT", None)
        return real(self, folder, nth, *words, **agent)

    monkeypatch.setattr(runs.Trials, "call", blunt)
    with pytest.raises(LabkitError, match="killed nothing, so this would prove nothing"):
        runs.sweep()


def test_each_answer_makes_of_the_run_what_it_says() -> None:
    found = {(each.answer, each.before): each for each in runs.answer_all()}
    assert len(found) == 10
    assert {key: each.messages for key, each in found.items()} == {
        **{(answer, n): n for answer in ("confirm", "reject", "fail", "cancel") for n in (0, 1)},
        ("retry", 0): 1,
        ("retry", 1): 2,
    }
    ends = {answer: each.ends.partition(":")[0] for (answer, _), each in found.items()}
    assert ends["fail"].startswith("FAILED")
    assert (ends["cancel"], ends["retry"], ends["reject"]) == ("CANCELLED", *["SUCCEEDED"] * 2)
    said = pictures_of_runs.draw_answers(list(found.values())).summary
    assert "3 go wrong: confirm with the message not sent, retry with the message sent" in said


def test_a_picture_needs_something_to_show() -> None:
    with pytest.raises(UsageError, match="at least one"):
        pictures_of_runs.draw_sends([])
    told = Answer("confirm", 1, "SUCCEEDED: Kim was told", 1)
    assert "0 go wrong" in pictures_of_runs.draw_answers([told]).summary
    assert "waits after 1" in pictures_of_runs.draw_sends([Kill(6, "a", "WAITING", 0)]).summary


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match="no mutant is called 'x'"):
        runs.use("x")
    with pytest.raises(UsageError, match="never comes to 'x'"):
        runs.commits("x")


def test_nothing_lives_on() -> None:
    with runs.Trials() as trials:
        trials.record("notice")
        assert marked()  # the control: the helpers are there, and can be found
    assert not marked()


def marked() -> list[Path]:
    """The processes of this session, which all of them carry in their environment."""
    mark = f"LABKIT_SESSION={session()}".encode()
    others = (p for p in Path("/proc").glob("[0-9]*") if p.name != str(os.getpid()))
    return [process for process in others if mark in environ_of(process)]


def environ_of(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:  # it has ended, or is another user's
        return b""


ODD = {
    "a number": "def NAME(a, b):\n    return 7",
    "a list": "def NAME(a, b):\n    return ['retry']",
    "nothing": "def NAME(a, b):\n    print(a)",
    "a key error": "def NAME(a, b):\n    return a['nothing'] + b[0]['nothing']",
    "one parameter": "def NAME(a):\n    return 'retry'",
    "no end": "def NAME(a, b):\n    while True: pass",
    "a text": "NAME = 'retry'",
}


@pytest.mark.sampled
@pytest.mark.parametrize("exercise", ["11.ex1", "11.ex2"])
@pytest.mark.parametrize("source", ODD.values(), ids=ODD)
def test_an_odd_answer_gets_a_verdict_in_words(exercise: str, source: str) -> None:
    name = {"11.ex1": "answer", "11.ex2": "follow"}[exercise]
    cell: dict[str, object] = {}
    exec(source.replace("NAME", name), cell)
    judgement: Judgement = lab.check(exercise, cell[name])
    assert judgement.verdict in ("broken", "not judged")
    assert judgement.reason
    assert "cannot read" not in judgement.reason

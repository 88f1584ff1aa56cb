"""The crash matrix: every place is killed for real, and its controls go red."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from labkit import lab
from labkit.errors import BadInput, LabkitError, StorageFault, UsageError
from labkit.journal.laws import BROKEN, HELD, NOT_JUDGED, Verdict
from labkit.lab import benches, cells, verbs
from labkit.lab.benches import Judged, judge
from labkit.lab.cells import Outcome
from labkit.lab.grid import Agent, Place
from labkit.lab.pictures_of_cells import draw_cells
from labkit.lab.process import NotReady
from labkit.lab.trials import POINTS
from tests.lab.test_runs import marked

pytestmark = pytest.mark.timeout(180)

AROUND = [
    ("before its call", "model-1.tool-1"),
    ("before its result is stored", "model-1.tool-1"),
]
BETWEEN = [(f"before commit {n} of its result", "model-1.tool-1") for n in (2, 3)]
SIX = """{"goal": "Two reports", "steps": [
  {"tool": "fetch", "input": {"path": "input/notes.txt"}},
  {"tool": "fetch", "input": {"path": "input/more.txt"}},
  {"tool": "summarize", "input": {"from": 0}}, {"tool": "write_artifact", "input": {"from": 2}},
  {"tool": "summarize", "input": {"from": 1}}, {"tool": "write_artifact", "input": {"from": 4}}]}"""


@pytest.fixture(autouse=True)
def _nothing_lives_on(begun: Path) -> Iterator[None]:
    yield
    if verbs._open:
        verbs.end()
    assert not marked()


def by_place(outcomes: list[Outcome]) -> dict[tuple[str, str], Outcome]:
    return {(each.place.row, each.place.column): each for each in outcomes}


# Every place of both agents, and what must go red.


def test_a_helper_that_something_else_kills_costs_the_trial_at_work_alone() -> None:
    sweep = cells.Sweep("durable")
    outcomes = iter(sweep)
    found = [next(outcomes)]
    assert isinstance(sweep._bench, cells.DurableBench)
    server, other = sweep._bench._trials._servers
    pid = server._guarded.pid
    os.kill(pid, signal.SIGKILL)
    found += outcomes
    assert server._guarded.pid != pid, "nothing was asked of it any more"
    assert server.is_alive
    assert other.is_alive
    sweep.close()
    assert [each.number for each in sorted(found)] == list(range(len(sweep.places)))
    lost = [each for each in found if not each.held]
    assert len(lost) <= 1
    for each in lost:
        assert each.word == NOT_JUDGED
        assert "has ended; try again" in each.why


def test_the_restart_agent_is_killed_at_nine_places_and_holds_at_each() -> None:
    outcomes = list(cells.run("restart"))
    assert cells.summarize(outcomes) == "9 of 9 killed and held."
    assert by_place(outcomes).keys() == {(point, f"step {n}") for point in POINTS for n in range(3)}
    assert {(each.word, each.left, each.killed) for each in outcomes} == {
        ("held", "1 report", ("aaaaaaa1",))
    }
    assert {process.state for each in outcomes for process in each.folder.processes[1:2]} == {
        "killed by SIGKILL"
    }


def test_without_its_key_one_of_the_nine_goes_red() -> None:
    outcomes = list(cells.run("restart", unsafe=True))
    [red] = [each for each in outcomes if not each.held]
    assert (red.where, red.word, red.left) == ("after_effect, step 2", "broken: 4", "2 reports")
    assert red.why == "2 reports outside, and 1 by a run that nobody kills"
    said = "8 of 9 killed and held; 1 broken (after_effect, step 2)."
    assert cells.summarize(outcomes) == said
    picture = draw_cells(outcomes)
    assert repr(picture) == f"Grid of kills: {said}"
    assert "broken: 4\n2 reports" in [text.get_text() for text in picture.axes[0].texts]
    assert picture.table.loc["after_effect", "step 2"] == "broken: 4"


@pytest.mark.parametrize(
    ("plan", "places"), [("notice", 13), pytest.param("dispatch", 25, marks=pytest.mark.proof)]
)
def test_a_durable_run_holds_everywhere_and_waits_around_its_message(
    plan: str, places: int
) -> None:
    outcomes = list(cells.run("durable", plan))
    assert cells.summarize(outcomes) == f"{places} of {places} killed and held."
    waits = sorted(each.left for each in outcomes if each.kind == "waits")
    assert waits == ["waits, 0 messages", "waits, 1 message"]
    assert {each.left for each in outcomes if each.kind != "waits"} == {"1 message"}
    begun = [each for each in outcomes if each.place.row.startswith("before its")]
    assert {each.killed for each in begun} == {("ann#1",)}


def test_the_published_order_sends_twice_in_two_cells() -> None:
    outcomes = list(cells.run("durable", "notice", unsafe=True))
    red = {at: each for at, each in by_place(outcomes).items() if not each.held}
    assert list(red) == BETWEEN or list(red) == BETWEEN[::-1]
    for each in red.values():
        assert (each.kind, each.left) == ("broken", "2 messages")
        assert {"4", "10"} <= set(each.word.removeprefix("broken: ").split(", "))
        assert each.why == "2 messages outside, and 1 by a run that nobody kills"
        assert len(each.journal.laws(["a key"]).broken) > 0
    waits = [at for at, each in by_place(outcomes).items() if each.kind == "waits"]
    assert sorted(waits) == sorted(AROUND)


def test_an_injector_that_kills_nothing_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the matrix itself: the same places, and no kill is delivered."""
    monkeypatch.setattr(Agent, "killed_at", lambda self, at: {})
    monkeypatch.setattr(benches, "crash_and_resume", _blunt(benches.crash_and_resume))
    for agent in ("restart", "durable"):
        outcomes = list(cells.run(agent, places=cells.grid(agent)[:2]))
        assert {each.word for each in outcomes} == {"not killed"}
        said = cells.summarize(outcomes)
        assert said.startswith("0 of 2 killed and held; 2 without a proof")


def _blunt(real: Callable[..., object]) -> Callable[..., object]:
    return lambda folder, crash_at, **options: real(folder, None, **options)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("agent", "at"), [("restart", "after_effect:7"), ("durable", "boundary:99")]
)
def test_a_place_that_is_never_reached_says_so(agent: str, at: str) -> None:
    [outcome] = cells.run(agent, places=[Place("a place", "nowhere", at)])
    assert (outcome.word, outcome.kind, outcome.held) == ("not killed", "unproved", False)
    assert outcome.why.startswith("the process never came there: exit")
    assert "without a proof (a place, nowhere)" in cells.summarize([outcome])


# Judgement.

LAWS = [Verdict(law, f"promise {law}", HELD, "") for law in range(1, 7)]


def with_law(number: int, verdict: str) -> list[Verdict]:
    changed = Verdict(number, "", verdict, f"why {number}")
    return [changed if law.law == number else law for law in LAWS]


def test_what_was_not_judged_never_counts_as_held() -> None:
    assert judge(with_law(5, NOT_JUDGED), {}) == Judged("not judged: 5", "why 5")
    assert judge(with_law(4, NOT_JUDGED), {}).word == "not judged: 4"
    # Nothing was sent, and nothing was to be sent: somebody counted.
    assert judge(with_law(4, NOT_JUDGED), {4: ""}) == Judged(HELD)


def test_an_effect_that_is_missing_breaks_the_fourth_law_too() -> None:
    assert judge(LAWS, {4: "0 reports outside, and 1"}) == ("broken: 4", "0 reports outside, and 1")
    both = judge(with_law(2, BROKEN), {4: "", 10: "the run is SUCCEEDED"})
    assert both == Judged("broken: 2, 10", "the run is SUCCEEDED")


def test_a_waiting_run_is_held_only_where_it_has_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same two trials, and somebody expects the opposite of each."""
    every = {place[:2]: place for place in cells.grid("durable", "notice")}
    wrong = [
        every[AROUND[0]]._replace(waits=False),
        every["before its call", "model-1"]._replace(waits=True),
    ]
    found = {each.number: each for each in cells.run("durable", "notice", places=wrong)}
    assert found[0].word == "broken: 2"
    assert found[0].why == "the run is WAITING, and should be SUCCEEDED"
    assert found[1].word == "broken: 10"
    assert found[1].why == "the run is SUCCEEDED, and should be WAITING"
    # Its message is seen by the witness, and not only counted.
    assert not any(verdict.verdict == NOT_JUDGED for verdict in found[1].verdicts)


# Plans.


def test_a_plan_of_ones_own_is_taken_with_its_notes(begun: Path) -> None:
    here = verbs.current_folder().path
    (here / "mine.json").write_text(SIX, encoding="utf-8")
    (here / "input" / "more.txt").write_text("The pump runs again.", encoding="utf-8")
    assert cells.plans("restart") == ["mine.json", "plan.json"]
    every = cells.grid("restart", "mine.json")
    assert len(every) == 18
    two = [place for place in every if place.at in ("after_effect:3", "after_effect:5")]
    for unsafe, word in ((False, "held"), (True, "broken: 4")):
        found = list(cells.run("restart", "mine.json", unsafe=unsafe, places=two))
        assert Counter(each.word for each in found) == {word: 2}
        assert {each.left for each in found} == {"3 reports" if unsafe else "2 reports"}


def test_a_plan_that_cannot_be_run_stops_at_once(begun: Path) -> None:
    here = verbs.current_folder().path
    (here / "wrong.json").write_text("{", encoding="utf-8")
    with pytest.raises(BadInput, match="the plan is no JSON"):
        cells.grid("restart", "wrong.json")
    (here / "mine.json").write_text(SIX, encoding="utf-8")  # it wants a file that is not there
    with pytest.raises(LabkitError, match="not even the run that nobody kills ends well"):
        list(cells.run("restart", "mine.json"))


def test_what_is_not_there_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="no agent is called 'naive'"):
        cells.grid("naive")
    with pytest.raises(UsageError, match=r"no plan is called 'x'; there are plan\.json"):
        cells.Sweep("restart", "x")
    with pytest.raises(UsageError, match="at least one outcome"):
        cells.tabulate([])
    with pytest.raises(UsageError, match="at least one"):
        draw_cells([])


def test_a_grid_too_large_for_a_screen_is_refused(begun: Path) -> None:
    step = '{"tool": "fetch", "input": {"path": "input/notes.txt"}}'
    text = f'{{"goal": "Many", "steps": [{", ".join([step] * 101)}]}}'
    (verbs.current_folder().path / "many.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"many\.json has 303 places, more than the 300"):
        cells.grid("restart", "many.json")


def test_it_needs_a_notebook_that_has_begun() -> None:
    verbs.end()
    for call in (cells.plans, cells.grid, cells.Sweep, lambda agent: next(cells.run(agent))):
        with pytest.raises(NotReady, match="no notebook has begun"):
            call("durable")


# Odd use.


@pytest.mark.sampled
@pytest.mark.parametrize("agent", ["restart", "durable"])
def test_who_has_seen_enough_leaves_no_process_behind(agent: str) -> None:
    seen = []
    for outcome in cells.run(agent):
        seen.append(outcome)
        # The control: while it goes on, processes come and go, and one of them is found.
        assert any(marked() for _ in range(1000))
        break
    assert len(seen) == 1
    assert cells.summarize(seen, 9) == "1 of 9 killed and held; 8 not tried."


@pytest.mark.parametrize("agent", ["restart", "durable"])
def test_a_trial_that_was_cut_off_leaves_no_outcome(agent: str) -> None:
    sweep = cells.Sweep(agent)
    sweep.stop()
    sweep.wait()
    assert sweep.take() == []
    assert sweep.is_over
    assert sweep.words == f"Stopped: 0 of {len(sweep.places)} killed and held; " + (
        f"{len(sweep.places)} not tried."
    )
    sweep.close()
    assert not marked()
    sweep.close()


def test_the_end_of_the_notebook_ends_the_trials() -> None:
    sweep = cells.Sweep("durable", "dispatch")
    lab.end()
    assert sweep.is_over
    assert not marked()


def test_a_notebook_that_ends_while_places_are_looked_for_starts_no_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = cells.every_place

    def look_for(agent: str, plan: str, folder: Path, mutant: str) -> list[Place]:
        lab.begin("05")
        return find(agent, plan, folder, mutant)

    monkeypatch.setattr(cells, "every_place", look_for)
    with pytest.raises(NotReady, match="the notebook ended before its trials began"):
        cells.Sweep("restart")
    assert not verbs.current_notebook().beside
    assert not marked()


def test_a_journal_that_was_deleted_is_missed_in_one_line() -> None:
    [outcome] = cells.run("restart", places=cells.grid("restart")[:1])
    assert outcome.witness.read_text(encoding="utf-8") == "notes-2\n"
    assert outcome.story().startswith("   1  Task notes was created with 3 steps.")
    assert repr(outcome.timeline("room")).endswith("1 killed.")
    shutil.rmtree(outcome.folder.path)
    for look in (outcome.story, outcome.timeline):
        with pytest.raises(NotReady, match="holds no journal any more"):
            look()


def test_notes_that_were_deleted_meanwhile_stop_the_trials(begun: Path) -> None:
    sweep = cells.Sweep("restart")
    shutil.rmtree(verbs.current_folder().path)
    with pytest.raises((StorageFault, LabkitError)):
        for _ in sweep:
            pass
    sweep.close()


@pytest.mark.proof
def test_the_code_of_a_sweep_does_the_same_in_a_cell(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = cells.Sweep("durable", "notice", unsafe=True)
    list(sweep)
    exec(sweep.code, {})
    said = capsys.readouterr().out.splitlines()
    assert sorted(said) == sorted(map(repr, sweep.outcomes))
    assert sweep.words.startswith("13 of 15 killed and held; 2 broken")

"""Trials judge what happened, also when it is not what was hoped for; pictures say it in words."""

from pathlib import Path

import pytest

from labkit import lab
from labkit.errors import UsageError
from labkit.lab.trials import Trial


@pytest.fixture
def doubled(begun: Path) -> Trial:
    """The one place where an agent without a key doubles its report."""
    return lab.trial("after_effect:2", unsafe=True)


def test_the_safe_agent_holds_where_the_unsafe_one_breaks(doubled: Trial) -> None:
    safe = lab.trial("after_effect:2")
    assert (safe.judgement, len(safe.effects)) == ("held", 1)
    assert (doubled.judgement, len(doubled.effects)) == ("broken: 4", 2)
    assert repr(doubled) == (
        "after_effect:2: killed by SIGKILL, then exit 0: done; 2 reports; broken: 4"
    )


def test_a_trial_that_was_not_killed_proves_nothing(begun: Path) -> None:
    trial = lab.trial("after_effect:7")  # the plan has no such step
    assert trial.second.code == 0
    assert trial.judgement == "not killed"


def test_a_kill_from_elsewhere_proves_nothing_about_the_place(begun: Path) -> None:
    trial = lab.trial("after_commit:0")
    assert trial.judgement == "held"
    assert trial._replace(crash_at="after_commit:1").judgement == "not killed"
    assert trial._replace(crash_at="before_effect:0").judgement == "not killed"


@pytest.mark.parametrize("unsafe", [False, True])
def test_a_kill_before_the_effect_is_none_after_it(unsafe: bool, begun: Path) -> None:
    """Somebody else may kill the process between the two; the journal ends alike."""
    before = lab.trial("before_effect:2", unsafe=unsafe)
    assert (before.judgement, before.left) == ("held", [])
    assert before._replace(crash_at="after_effect:2").judgement == "not killed"
    after = lab.trial("after_effect:2", unsafe=unsafe)
    assert (after.died_there, len(after.left or [])) == (True, 1)


def test_of_a_step_without_an_effect_outside_both_places_are_one(begun: Path) -> None:
    trial = lab.trial("before_effect:0")
    assert trial._replace(crash_at="after_effect:0").judgement == "held"


@pytest.mark.parametrize("crash_at", ["", "after_effect", "../x:1", "after_effect:-1"])
def test_a_crash_point_has_a_form(crash_at: str, begun: Path) -> None:
    with pytest.raises(UsageError, match="use POINT:IDX as in 'after_effect:2'"):
        lab.trial(crash_at)


def test_a_trial_that_did_not_end_is_not_held(doubled: Trial) -> None:
    stuck = doubled._replace(second=doubled.second._replace(code=2))
    assert stuck.judgement == "not resumed (exit 2: the task failed)"


def test_what_was_not_judged_never_counts_as_held(begun: Path) -> None:
    trial = lab.trial(None)
    assert trial.judgement == "held"
    unjudged = trial._replace(verdicts=tuple(trial.journal.laws()))
    assert unjudged.judgement == "not judged: 4"


def test_a_trial_leaves_the_current_folder_alone(begun: Path) -> None:
    lab.trial(None)
    assert lab.files() == ["input/notes.txt", "plan.json"]


def test_the_table_has_the_points_in_the_order_of_an_attempt(doubled: Trial) -> None:
    trials = [lab.trial("before_effect:0"), doubled, lab.trial("after_commit:0")]
    table = lab.tabulate(trials)
    assert table.index.tolist() == list(lab.POINTS)
    assert table.columns.tolist() == [0, 2]
    assert table.loc["after_effect", 2] == "broken: 4"


def test_the_grid_says_in_a_sentence_and_in_words_what_it_shows(doubled: Trial) -> None:
    picture = lab.draw_grid([lab.trial("before_effect:0"), doubled])
    assert repr(picture) == "Grid of 2 kills: 1 held, after_effect:2 broken: 4."
    axes = picture.axes[0]
    assert [text.get_text() for text in axes.texts] == ["held\n1 report", "broken: 4\n2 reports"]
    assert [bool(patch.get_hatch()) for patch in axes.patches] == [False, True]
    assert f'<img alt="{picture!r}"' in picture._repr_html_()
    assert picture.table.loc["before_effect", 0] == "held"


def test_a_trial_without_a_place_is_not_in_the_grid(begun: Path) -> None:
    for crash_at in (None, "nowhere:1"):
        trial = lab.trial(crash_at)
        for show in (lab.tabulate, lab.draw_grid):
            with pytest.raises(UsageError, match="has no place in a grid; use one of before"):
                show([trial])


def test_of_two_trials_at_one_place_the_later_counts(doubled: Trial) -> None:
    safe = lab.trial("after_effect:2")
    assert lab.tabulate([doubled, safe]).loc["after_effect", 2] == "held"
    assert repr(lab.draw_grid([doubled, safe])) == "Grid of 1 kills: 1 held."


@pytest.mark.parametrize("made", [{}, {"fetch": 0}])
def test_a_call_that_was_not_made_is_not_drawn(made: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        lab.draw_calls(made)


def test_a_grid_has_a_trial_in_it() -> None:
    with pytest.raises(UsageError, match="at least one trial"):
        lab.draw_grid([])


def test_calls_made_again_are_counted_and_marked() -> None:
    picture = lab.draw_calls({"fetch": 2, "summarize": 1})
    assert repr(picture) == "2 calls were needed, 3 were made: fetch 2, summarize 1."
    assert picture.table.to_dict() == {
        "needed": {"fetch": 1, "summarize": 1},
        "again": {"fetch": 1, "summarize": 0},
    }
    bars = picture.axes[0].patches
    assert [bar.get_width() for bar in bars] == [1, 1, 1, 0]
    assert [bar.get_hatch() for bar in bars] == [None, None, "xx", "xx"]


def test_the_timeline_says_killed_only_where_the_lab_killed(begun: Path) -> None:
    lab.run("agent create notes plan.json")
    lab.run("agent run notes", AGENT_CRASH_AT="after_effect:1")
    assert repr(lab.timeline()).endswith("1 killed.")
    agent = lab.start("agent run notes", AGENT_STEP_DELAY="600")
    lab.wait_for(agent, "step_started", step_idx=1)
    assert repr(lab.timeline()).endswith("1 killed, 1 at work.")
    lab.kill(agent)
    lab.run("agent run notes")
    endings = lab.timeline().table.query("what in ('killed', 'done')")
    assert endings.owner.tolist() == ["aaaaaaa1", "bbbbbbb2", "ccccccc3"]
    assert endings.what.tolist() == ["killed", "killed", "done"]


def test_a_record_that_a_kill_cut_is_no_report(begun: Path) -> None:
    lab.run("naive plan.json")
    assert lab.reports()["first line"].tolist() == ["The pump in hall B stopped twice on Monday."]
    assert len(lab.witness()) == 1
    with (lab.verbs.current_folder().artifacts / "report.log").open("a") as file:
        file.write("half a rec")
    assert len(lab.witness()) == 1
    lab.run("naive plan.json")
    assert len(lab.witness()) == 2

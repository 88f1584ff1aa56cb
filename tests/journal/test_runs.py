"""A durable run in frames, stories, timelines and JSON Lines: the same verbs as for a task."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch

from labkit import cli
from labkit.errors import BadInput, UnknownTask
from labkit.journal import Journal, timeline, timeline_table, timeline_text
from labkit.journal.fold import RUN_KINDS, RunNow, fold, lanes, pair, split_owner
from tests.conftest import run_python
from tests.journal.conftest import Tamper, make_run

# What the story says.

STORY = """\
   1  Run r1 of support 1.0 was created.
   2  ann took the lease, under epoch 1.
   3  ann, epoch 1, began attempt 1 of step model-1.
   4  Step model-1 finished, and its checkpoint is stored.
   5  ann, epoch 1, began attempt 1 of step model-1.tool-1 (look_up).
   -  ann, epoch 1, left no further entry: it ended without one.
   6  bob took the lease, under epoch 2.
   7  bob, epoch 2, found step model-1.tool-1 cut off at attempt 1: \
its outcome is unknown and its effect may exist.
   8  bob, epoch 2, began attempt 2 of step model-1.tool-1 (look_up).
   9  Step model-1.tool-1 finished, and its checkpoint is stored.
  10  bob, epoch 2, began attempt 1 of step model-2.
  11  Step model-2 finished, and its checkpoint is stored.
  12  bob, epoch 2, began attempt 1 of step model-2.tool-1 (send).
   -  bob, epoch 2, left no further entry: it ended without one.
  13  ann took the lease, under epoch 3.
  14  ann, epoch 3, found step model-2.tool-1 cut off at attempt 1: \
its outcome is unknown and its effect may exist.
  15  The run waits (UNCERTAIN_NON_IDEMPOTENT): \
whether step model-2.tool-1 had its effect, nobody can say.
  16  bob took the lease, under epoch 4.
  17  The run was answered by ann at step model-2.tool-1: CONFIRM_STEP.
  18  bob, epoch 4, took the answer as attempt 2 of step model-2.tool-1 (send).
  19  Step model-2.tool-1 was confirmed by the application, without a call.
  20  bob, epoch 4, began attempt 1 of step model-3.
  21  Step model-3 finished, and its checkpoint is stored.
  22  The run succeeded."""


def test_the_story_of_two_kills_and_an_answer(answered: Path) -> None:
    assert Journal(answered).story("r1") == STORY


def test_every_kind_of_event_has_its_sentence(every_kind: Path) -> None:
    journal = Journal(every_kind)
    kinds = set(journal.events()["kind"])
    assert {*RUN_KINDS} - kinds == {"task_rejected"}  # a policy's, of which there is none yet
    told = "".join(journal.story(run) for run in journal.events()["task_id"].unique())
    assert "was recorded" not in told
    for part in (
        "A cancel was requested by eve.", "The run was cancelled.", "The run failed: NO.",
        "its definition is not registered here", "as the answer asked", "it may be tried again",
        "no other attempt can help", "was rejected by the application",
    ):  # fmt: skip
        assert part in told


def test_a_last_advance_may_be_at_work(tmp_path: Path) -> None:
    path = make_run(tmp_path, ("go", "ann", "look_up"))
    last = Journal(path).story("r1").splitlines()[-1]
    assert last == "   -  ann, epoch 1, has left no entry since: it ended, or is still at work."


def test_an_unknown_run(answered: Path) -> None:
    with pytest.raises(UnknownTask, match="no run 'nope' in this journal; it has r1"):
        Journal(answered).story("nope")


# What the frames hold.


def test_frames_have_the_words_of_durable_runs(every_kind: Path) -> None:
    journal = Journal(every_kind)
    events = journal.events()
    assert tuple(events["kind"].cat.categories) == RUN_KINDS
    assert (events["task_id"] == events["run_id"]).all()
    ended = set(journal.attempts()["ended"].dropna())
    assert ended == {"finished", "error", "uncertain", "recovered", "confirmed", "rejected"}
    assert set(journal.runs()["ended"].dropna()) == {"done", "failed", "waiting", "cancelled"}
    assert set(journal.runs("twice")["owner"]) == {"ann#1", "bob#2", "bob#3"}
    assert len(journal.events("nope")) == len(journal.steps("nope")) == 0


def test_steps_are_shown_without_their_payloads(answered: Path) -> None:
    steps = Journal(answered).steps()
    assert list(steps.columns) == [
        "task_id", "idx", "step_id", "type", "name", "effect", "status", "checkpoint",
        "error_code", "attempts",
    ]  # fmt: skip
    assert list(steps["checkpoint"])[-2:] == ["model-2.tool-1#2", "model-3#1"]
    assert list(steps["attempts"]) == [1, 2, 1, 2, 1]
    assert steps.loc[3, "effect"] == "NON_IDEMPOTENT"


def test_a_run_as_it_stood(answered: Path) -> None:
    journal = Journal(answered)
    stood = {
        seq: (at.tasks["status"][0], *at.steps["status"])
        for seq in (1, 5, 7, 15, 18, 22)
        for at in [journal.at(seq)]
    }
    assert stood == {
        1: ("CREATED",),
        5: ("RUNNING", "SUCCEEDED", "RUNNING"),
        7: ("RUNNING", "SUCCEEDED", "RUNNING"),
        15: ("WAITING", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "RUNNING"),
        18: ("RUNNING", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "RUNNING"),
        22: ("SUCCEEDED",) + ("SUCCEEDED",) * 5,
    }


def test_the_fold_knows_for_what_a_run_waits(answered: Path) -> None:
    run = fold(Journal(answered).read(until=15))["r1"]
    assert isinstance(run, RunNow)
    assert (run.waiting_reason, run.waiting_step, run.version, run.owner) == (
        "UNCERTAIN_NON_IDEMPOTENT", "model-2.tool-1", 3, "ann#3",
    )  # fmt: skip


def test_an_attempt_tells_who_ended_it(answered: Path) -> None:
    attempts, strays = pair(Journal(answered).read())
    assert strays == []
    ends = [(a.owner, a.ended, a.ended_by) for a in attempts if a.step_idx == 3]
    assert ends == [("bob#2", "recovered", "ann#3"), ("bob#4", "confirmed", "bob#4")]
    assert [lane.ended for lane in lanes(Journal(answered).read())] == [
        None, None, "waiting", "done",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("owner", "parts"),
    [
        ("ann#1", ("ann", 1)),
        ("a#b#12", ("a#b", 12)),
        ("0000000a", ("0000000a", None)),
        ("ann#", ("ann#", None)),
        ("ann#x", ("ann#x", None)),
        ("ann#²", ("ann#²", None)),
        ("ann#" + "9" * 30, ("ann#" + "9" * 30, None)),
    ],
)
def test_an_owner_has_an_epoch(owner: str, parts: tuple[str, int | None]) -> None:
    assert split_owner(owner) == parts


# What the timeline shows.

SUMMARY = (
    "Timeline of run r1 (SUCCEEDED): 2 owners, 4 advances, 7 attempts (4 finished, 2 no entry, "
    "1 answered), 2 recoveries, 1 resolution, 1 wait, 2 ended without an entry."
)
LANES = [
    "ann #1 #3 #1 [0=] [1/? #3 R W waiting",
    "bob #2 #4 #2 R [1==] [2==] [3/? #4 A [3+] [4=] ! done",
]


def test_a_lane_for_each_owner_with_its_epochs(answered: Path) -> None:
    figure = timeline(answered, "r1")
    assert repr(figure) == SUMMARY
    [axes] = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ann #1 #3", "bob #2 #4"]
    words = [text.get_text() for text in axes.texts]
    assert [word for word in words if word.startswith("#")] == ["#1", "#2", "#3", "#4"]
    assert words[-2:] == ["waiting", "done"]
    assert axes.get_title(loc="left") == "Run r1: SUCCEEDED"
    lines = [tuple(map(tuple, segment)) for segment in axes.collections[0].get_segments()]
    assert lines == [  # somebody was at work in these, and not between them
        ((2, 0), (5, 0)), ((6, 1), (12, 1)), ((13, 0), (15, 0)), ((16, 1), (22, 1)),
    ]  # fmt: skip


def test_the_text_twin(answered: Path) -> None:
    text = timeline_text(answered, "r1")
    lanes_of_text = [line for line in text.splitlines() if line.startswith(("ann", "bob"))]
    assert [" ".join(line.split()) for line in lanes_of_text] == LANES
    assert lanes_of_text[0].index("#3   R") > lanes_of_text[1].index("[3/?")  # by order of entries
    for part in ("+ answered by the application", "W waiting", "A the application's answer"):
        assert part in " ".join(text.split("\n"))


def test_the_table_twin(answered: Path) -> None:
    table = timeline_table(answered, "r1")
    marks = table[table["what"] != "attempt"]
    assert list(zip(marks["owner"], marks["what"], marks["begin_seq"], strict=True)) == [
        ("ann", "epoch 1", 2),
        ("ann", "ended without an entry", 5),
        ("ann", "epoch 3", 13),
        ("ann", "recovery", 14),
        ("ann", "waiting", 15),
        ("bob", "epoch 2", 6),
        ("bob", "recovery", 7),
        ("bob", "ended without an entry", 12),
        ("bob", "epoch 4", 16),
        ("bob", "resolution", 17),
        ("bob", "done", 22),
    ]
    assert timeline(answered, "r1").table.equals(table)


def test_killed_and_at_work_are_said_of_an_owner_or_of_one_advance(answered: Path) -> None:
    assert "2 killed." in repr(timeline(answered, "r1", killed={"ann", "bob"}))
    figure = timeline(answered, "r1", killed={"ann#1"}, at_work={"bob#2"})
    assert repr(figure).endswith("1 killed, 1 at work.")


def test_what_runs_says_so(tmp_path: Path) -> None:
    path = make_run(tmp_path, ("go", "ann", "look_up"))
    assert "(RUNNING, as the tables say)" in repr(timeline(path, "r1"))
    assert "(RUNNING)" in repr(timeline(path, "r1", at_work={"ann"}))


@pytest.mark.parametrize("by", ["order", "time"])
def test_every_kind_of_run_is_drawn(every_kind: Path, by: str) -> None:
    """Each outcome has its pattern, and a request to cancel stands in the lane that it met."""
    hatches = set()
    for run in Journal(every_kind).events()["task_id"].unique():
        figure = timeline(every_kind, run, by=by)
        if run == "later":  # each takes half a second
            figure.png()
        bars = [patch for patch in figure.axes[0].patches if isinstance(patch, PathPatch)]
        hatches |= {(to_hex(bar.get_facecolor()).upper(), bar.get_hatch()) for bar in bars}
        attempts = (figure.table["what"] == "attempt").sum()
        assert sum(len(bar.get_path().to_polygons()) for bar in bars) == attempts
    assert hatches == {
        ("#0072B2", ""), ("#D55E00", "xx"), ("#009E73", "++"), ("#CC79A7", "\\\\"),
    }  # fmt: skip
    asked = timeline_table(every_kind, "late").set_index("what").loc["cancel requested"]
    assert asked["owner"] == "ann"


# What goes out and comes back.


@pytest.mark.parametrize("source", ["answered", "every_kind"])
def test_a_journal_comes_back(source: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    journal = Journal(request.getfixturevalue(source))
    journal.to_jsonl(tmp_path / "j.jsonl")
    back = Journal.from_jsonl(tmp_path / "j.jsonl", tmp_path / "back.db")
    for name in ("events", "steps", "attempts", "runs"):
        pd.testing.assert_frame_equal(getattr(back, name)(), getattr(journal, name)())
    assert back.laws(["a"]) == journal.laws(["a"])
    back.to_jsonl(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "j.jsonl").read_bytes()


def test_what_came_back_can_be_gone_on_with(tmp_path: Path) -> None:
    """It has the runner's own schema, its payloads and its seal."""
    (there := tmp_path / "there").mkdir()
    path = make_run(there, ("go", "ann", "look_up"))
    Journal(path).to_jsonl(tmp_path / "j.jsonl")
    path.unlink()
    for left in there.glob("state.db-*"):
        left.unlink()
    Journal.from_jsonl(tmp_path / "j.jsonl", path)
    with sqlite3.connect(path) as database, pytest.raises(sqlite3.IntegrityError):
        database.execute("DELETE FROM events")
    database.close()
    env = {"LABKIT_CLOCK": "1767226600+0.001"}
    assert run_python("shop.py", "go", "r1", "bob", env=env, cwd=there).out == "SUCCEEDED\n"
    assert Journal(path).laws().broken == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"table":"runs","run_id":"r1"}', "no row of a journal: NOT NULL"),
        ('{"table":"seal","canary":"not base 64"}', "no row of a journal"),
        ('{"table":"seal","canary":7}', "no row of a journal"),
        ('{"table":"tasks","id":"t"}', "by its names"),
    ],
)
def test_what_is_no_row_makes_no_database(line: str, message: str, tmp_path: Path) -> None:
    first = '{"table":"runs","run_id":"r0"}\n' if "runs" not in line else ""
    (tmp_path / "in.jsonl").write_text(f"{line}\n{first}", "utf-8")
    with pytest.raises(BadInput) as refused:
        Journal.from_jsonl(tmp_path / "in.jsonl", tmp_path / "x.db")
    assert message in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_the_commands_take_a_run(
    answered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["journal", "copy", str(answered), str(tmp_path / "copy.db")]) == 0
    for command in ("story", "timeline"):
        assert cli.main(["journal", command, str(tmp_path / "copy.db"), "r1"]) == 0
    out = capsys.readouterr().out
    assert STORY in out
    assert "ann #1 #3" in out
    assert cli.main(["journal", "story", str(answered), "nope"]) == 1
    assert "no run 'nope'" in capsys.readouterr().err


def test_text_of_a_run_cannot_speak_to_a_terminal(tamper: Tamper, answered: Path) -> None:
    evil = "char(27) || '[2J'"
    path = tamper(
        f"UPDATE events SET owner = {evil} || '#2' WHERE owner = 'bob#2'",
        f"UPDATE events SET step = {evil}, data = json_set(data, '$.name', {evil}) "
        "WHERE step IS NOT NULL",
        f"UPDATE events SET data = json_set(data, '$.reason', {evil}) WHERE kind = 'run_waiting'",
        f"UPDATE events SET data = json_set(data, '$.actor', {evil}) WHERE kind = 'run_resolved'",
        source=answered,
    )
    shown = Journal(path).story("r1") + timeline_text(path, "r1")
    assert "\x1b" not in shown
    assert shown.count("\\x1b[2J") > 20
    timeline(path, "r1").png()

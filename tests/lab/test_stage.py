"""Each act of the stage does what its line of code does, to a real process, and says so."""

from __future__ import annotations

import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import pytest

from labkit import lab
from labkit.errors import BadInput, LabkitError, NotFound, StorageFault, UsageError
from labkit.lab import verbs
from labkit.lab.grid import NOW
from labkit.lab.process import NotReady
from labkit.lab.stage import ACTS, NOWHERE, Stage
from labkit.lab.votes import OUTCOMES
from tests.lab.acting import at_work, done, notebook_20, started
from tests.lab.conftest import is_gone, no_room_for_folders

__all__ = ["notebook_20"]  # a fixture

pytestmark = pytest.mark.usefixtures("notebook_20")
BOTH = pytest.mark.parametrize("agent", ["restart", "durable"])


# The life of a task and of a run.


def test_what_is_possible_along_the_life_of_a_task() -> None:
    stage = Stage("restart")
    assert (stage.state, stage.possible) == ("unmade", ("create", "reset"))
    stage.create()
    assert (stage.state, stage.possible) == ("ready", ("run", "resume", "reset"))
    stage.run(NOW)
    assert (stage.state, stage.possible) == ("at work", ("kill", "reset"))
    stage.kill()
    assert stage.state == "ready"
    stage.run("after_effect:2")
    assert (done(stage), stage.state) == ("killed by SIGKILL", "ready")
    stage.resume()
    assert (done(stage), stage.state) == ("exit 0: done", "over")
    assert stage.possible == ("resume", "reset")
    assert stage.outcome() == "1 report"


def test_what_is_possible_along_the_life_of_a_run() -> None:
    stage = started("durable", "boundary:7")
    assert done(stage) == "killed by SIGKILL"
    assert (stage.state, stage.outcome()) == ("ready", "1 message")
    stage.resume()
    assert done(stage) == "exit 4: the run waits for an answer"
    assert (stage.state, stage.possible) == ("waits", ("resume", "answer", "reset"))
    assert stage.outcome() == "waits, 1 message"
    stage.answer("confirm")
    assert (stage.state, stage.outcome()) == ("over", "1 message")
    assert stage.words == "The run is stored as SUCCEEDED."


@BOTH
def test_run_without_a_place_goes_to_its_end(agent: str) -> None:
    stage = started(agent, NOWHERE)
    assert done(stage) == "exit 0: done"
    assert stage.outcome() in OUTCOMES[agent]


@pytest.mark.parametrize("at", ["boundary:5", "boundary:6", "boundary:7"])
def test_a_room_can_vote_for_what_a_kill_leaves(at: str) -> None:
    """Before the message, and after it; and what a second process makes of it."""
    stage = started("durable", at)
    done(stage)
    killed = stage.outcome()
    stage.resume()
    done(stage)
    assert {killed, stage.outcome()} <= {*OUTCOMES["durable"]}


@pytest.mark.parametrize(
    ("agent", "at", "last"),
    [
        ("restart", "before_effect:0", ("step_started", 0)),
        ("restart", "after_commit:1", ("step_finished", 1)),
        ("durable", "boundary:4", ("step_started", 0)),
        ("durable", "boundary:8", ("step_finished", 1)),
    ],
)
def test_a_process_dies_where_it_was_told(agent: str, at: str, last: tuple[str, int]) -> None:
    stage = started(agent, at)
    assert done(stage) == "killed by SIGKILL"
    found = lab.journal().sql("SELECT kind, step_idx FROM journal ORDER BY seq DESC LIMIT 1")
    assert tuple(found.iloc[0]) == last


def test_another_plan_is_another_report() -> None:
    stage = started("restart", NOWHERE, plan="quiet.json")
    done(stage)
    quiet = list(stage.artifacts()["first line"])
    stage.use("restart", "plan.json")
    stage.create()
    stage.run()
    done(stage)
    assert list(stage.artifacts()["first line"]) != quiet


# Kill.


@BOTH
def test_a_kill_is_a_sigkill_and_is_seen_at_once(agent: str) -> None:
    stage = at_work(agent)
    process = stage.process
    assert process is not None
    before = stage.mark
    stage.kill()
    assert process.killed
    assert is_gone(process)
    assert stage.mark != before
    assert "1 killed" in stage.timeline().summary
    assert stage.words.startswith(f"Process {process.number}: killed by SIGKILL.")


def test_what_cannot_be_done_is_said_in_a_line() -> None:
    stage = Stage("restart")
    with pytest.raises(NotReady, match="no process was started here"):
        stage.kill()
    with pytest.raises(NotReady, match="no agent has made a journal"):
        stage.tail()
    stage = at_work("restart")
    with pytest.raises(NotReady, match="process 2 is at work; kill it, or wait"):
        stage.run()
    with pytest.raises(NotReady, match="is at work"):
        stage.resume()
    with pytest.raises(NotReady, match="its outcome is known when it has ended"):
        stage.outcome()
    assert [p.alive for p in verbs.current_folder().processes] == [False, True]
    stage.kill()
    with pytest.raises(NotReady, match="process 2 has ended already"):
        stage.kill()
    with pytest.raises(UsageError, match="none: a task of the restart agent never waits"):
        stage.answer("confirm")


def test_an_answer_is_one_of_those_that_there_are() -> None:
    stage = Stage("durable")
    with pytest.raises(UsageError, match="'yes' is no answer; use one of retry, confirm, reject"):
        stage.answer("yes")
    stage.create()
    with pytest.raises(LabkitError):  # it does not wait
        stage.answer("confirm")
    assert [act.act for act in stage.acts] == ["create"]


@BOTH
def test_a_second_create_changes_nothing(agent: str) -> None:
    stage = Stage(agent)
    stage.create()
    stage.create()
    assert (stage.state, stage.changes(), len(stage.tail())) == ("ready", [], 1)


def test_a_create_that_is_refused_says_why_and_is_no_act() -> None:
    stage = Stage("restart")
    (verbs.current_folder().path / "plan.json").write_text("{", encoding="utf-8")
    with pytest.raises(LabkitError, match="the plan is no JSON"):
        stage.create()
    assert (stage.state, stage.acts) == ("unmade", [])


def test_why_it_is_refused_is_said_from_the_first_word_to_the_last() -> None:
    """The agent folds it for its terminal, and its last line alone tells nothing."""
    stage = Stage("restart")
    stage.create()
    stage = Stage("durable")  # in the same folder
    words = r"^RunStoreIntegrityError: /.*/state\.db belongs to another program: .* written to it$"
    with pytest.raises(LabkitError, match=words):
        stage.create()


@BOTH
def test_what_is_left_alone_is_ended(agent: str) -> None:
    stage = started(agent, NOW, limit_s=0)
    process = stage.process
    assert process is not None
    assert repr(stage.ended()) == "killed by SIGKILL"
    assert is_gone(process)
    assert stage.acts[-1].act == "kill"
    assert "It was left at work for too long." in stage.words
    stage.resume()
    done(stage)
    assert "too long" not in stage.words


def test_within_its_limit_a_process_is_let_be() -> None:
    stage = started("restart", NOW, limit_s=3600)
    assert stage.ended() is None
    assert stage.state == "at work"
    stage.close()
    assert done(stage) == "killed by SIGKILL"


@pytest.mark.parametrize("again", [1, 2])
def test_a_finished_task_is_not_run_again_and_the_words_say_so(again: int) -> None:
    stage = started("restart", NOWHERE)
    done(stage)
    assert stage.words == "Process 2: exit 0: done. The task is stored as done."
    before = stage.mark.last_seq
    for _ in range(again):
        stage.resume()
        done(stage)
    assert stage.mark.last_seq == before
    assert stage.words == (
        f"Process {2 + again}: exit 0: done. It found nothing left to do, and did nothing. "
        "The task is stored as done."
    )


def test_a_run_that_waits_is_not_carried_on_without_an_answer() -> None:
    stage = started("durable", "boundary:7")
    done(stage)
    stage.resume()
    assert "It did nothing" not in (done(stage), stage.words)[1]  # it found that it has to wait
    stage.resume()
    done(stage)
    assert stage.words.startswith("Process 4: exit 4: the run waits for an answer. It did nothing:")
    assert stage.outcome() == "waits, 1 message"
    stage.answer("confirm")
    stage.resume()
    done(stage)
    assert "It found nothing left to do" in stage.words


def test_an_act_brings_news_where_nobody_knows_what_comes() -> None:
    def news(stage: Stage) -> list[str]:
        return [act for act in ACTS if stage.brings_news(act)]

    stage = Stage("durable")
    assert news(stage) == []
    stage.create()
    assert news(stage) == ["run", "resume"]
    stage.run("boundary:7")
    done(stage)
    assert news(stage) == ["run", "resume"]
    stage.resume()
    done(stage)
    assert news(stage) == ["answer"]
    stage.answer("confirm")
    assert news(stage) == []


# Reset, and another agent.


@BOTH
def test_a_reset_while_at_work_leaves_no_process_and_no_journal(agent: str) -> None:
    stage = at_work(agent)
    process, folder = stage.process, verbs.current_folder()
    assert process is not None
    said = stage.reset().said
    assert said.startswith("The process that was at work was killed.\n")
    assert is_gone(process)
    assert (stage.state, stage.acts, stage.effects()[:1]) == ("unmade", [], "0")
    assert verbs.current_folder() is not folder
    stage.create()
    assert stage.state == "ready"


@contextmanager
def full_disk() -> Iterator[None]:
    """Nothing can be written into a file of this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("trouble", [no_room_for_folders, full_disk])
def test_after_a_reset_that_failed_the_next_one_helps(
    trouble: Callable[[], AbstractContextManager[None]],
) -> None:
    stage = at_work("restart")
    process = stage.process
    with trouble():
        with pytest.raises(
            StorageFault, match=r"cannot (make a folder in|fill) .*mend the storage"
        ):
            stage.reset()
        assert process is not None
        assert is_gone(process)
        assert (stage.state, stage.possible) == ("closed", ("reset",))
        assert stage.words.endswith("mend the storage, then Reset.")
        assert (stage.has_started, stage.possible_unseen) == (False, ("reset",))
        with pytest.raises(StorageFault):
            stage.reset()
    assert stage.state == "closed"
    stage.reset()
    stage.create()
    assert (stage.state, stage.possible) == ("ready", ("run", "resume", "reset"))


def test_another_agent_while_at_work_is_a_reset() -> None:
    stage = at_work("restart")
    process = stage.process
    assert process is not None
    changed = stage.use("durable")
    assert changed is not None
    assert "was killed" in changed.said
    assert is_gone(process)
    assert (stage.agent.name, stage.plan, stage.state) == ("durable", "notice", "unmade")
    stage.create()
    assert stage.state == "ready"


def test_another_plan_before_anything_is_done_needs_no_reset() -> None:
    stage = Stage("restart")
    folder = verbs.current_folder()
    assert stage.use("restart", "quiet.json") is None
    assert verbs.current_folder() is folder


def test_what_is_not_there_changes_nothing() -> None:
    stage = at_work("restart")
    with pytest.raises(UsageError, match=r"no plan is called 'x'; this folder has plan\.json"):
        stage.use("restart", "x")
    with pytest.raises(UsageError, match="no agent is called 'other'"):
        stage.use("other")
    assert (stage.agent.name, stage.plan, stage.state) == ("restart", "plan.json", "at work")


def test_a_folder_without_a_plan_has_no_stage() -> None:
    lab.begin("12")
    with pytest.raises(UsageError, match="holds no plan of the restart agent"):
        Stage("restart")
    lab.end()
    with pytest.raises(NotReady, match="no notebook has begun"):
        Stage("restart")


def test_a_fresh_folder_in_a_cell_is_a_fresh_stage() -> None:
    stage = at_work("restart")
    process = stage.process
    lab.fresh("elsewhere")
    assert process is not None
    assert is_gone(process)
    assert (stage.state, stage.ended(), stage.acts) == ("unmade", None, [])
    assert stage.words == "No task is stored yet."


# What the room may see.


def test_unseen_the_same_is_said_and_possible_however_it_ended() -> None:
    waits, over = started("durable", "boundary:7"), None
    done(waits)
    waits.resume()
    done(waits)
    seen = (waits.words, waits.possible)
    unseen = (waits.words_unseen, waits.possible_unseen)
    waits.reset()
    over = started("durable", "boundary:4")
    done(over)
    over.resume()
    done(over)
    assert (over.words, over.possible) != seen  # the control
    assert (over.words_unseen, over.possible_unseen) == unseen


def test_unseen_a_process_at_work_can_be_killed_and_nothing_else_is_told() -> None:
    stage = at_work("restart")
    assert stage.possible_unseen == ("kill", "reset")
    assert stage.words_unseen == "Process 2 is at work."


def test_before_a_process_there_is_nothing_to_hide() -> None:
    stage = Stage("restart")
    assert (stage.has_started, stage.possible_unseen) == (False, stage.possible)
    stage.create()
    assert (stage.has_started, stage.possible_unseen) == (False, stage.possible)
    assert stage.words_unseen == stage.words


def test_the_mark_changes_with_each_event_and_not_without() -> None:
    stage = Stage("restart")
    stage.create()
    first = stage.mark
    assert stage.mark == first
    lab.run("agent run notes", AGENT_CRASH_AT="before_effect:0")  # in a cell, not by the stage
    assert stage.mark.last_seq == first.last_seq + 2


def test_the_tail_has_the_latest_first() -> None:
    stage = started("restart", NOWHERE)
    done(stage)
    assert list(stage.tail().kind[:2]) == ["task_done", "step_finished"]
    assert list(stage.tail(rows=3).seq) == [9, 8, 7]


def test_changes_are_those_since_the_last_act_that_stores() -> None:
    stage = started("restart", "after_commit:0")
    done(stage)
    assert [change.table for change in stage.changes()] == ["journal", "tasks", "steps"]
    stage.resume()
    done(stage)
    [journal, *_] = stage.changes()
    assert journal.rows.kind.iloc[0] == "run_started"


def test_the_grid_is_a_table() -> None:
    table = Stage("restart").tabulate_places()
    assert table.loc["step 2", "after_effect"] == "after_effect:2"
    assert table.shape == (3, 3)
    assert list(table.columns) == ["before_effect", "after_effect", "after_commit"]


# A folder that is damaged.


def test_a_database_that_was_deleted_is_no_task() -> None:
    stage = started("restart", "after_effect:1")
    done(stage)
    for file in verbs.current_folder().path.glob("state.db*"):
        file.unlink()
    assert (stage.state, stage.changes()) == ("unmade", [])
    with pytest.raises(NotReady):
        stage.timeline()
    stage.create()
    assert stage.state == "ready"


@BOTH
def test_a_database_that_is_none_leaves_only_the_reset(agent: str) -> None:
    stage = started(agent, NOWHERE)
    done(stage)
    database = verbs.current_folder().database
    for file in database.parent.glob("state.db*"):
        file.unlink()
    database.write_bytes(b"no database" * 1000)
    assert (stage.state, stage.possible) == ("unreadable", ("reset",))
    assert "Reset gives a fresh folder" in stage.words
    with pytest.raises(StorageFault):
        stage.resume()
    stage.reset()
    assert stage.state == "unmade"


def test_the_other_agents_database_is_not_read_as_ones_own() -> None:
    done(started("restart", NOWHERE))
    assert Stage("durable").state == "unreadable"


@pytest.mark.parametrize("idx", [None, "x"])
def test_a_step_without_a_number_is_one_line(idx: str | None) -> None:
    stage = started("restart", "after_effect:1")
    done(stage)
    with closing(sqlite3.connect(verbs.current_folder().database)) as other, other:
        other.execute("PRAGMA ignore_check_constraints = ON")
        other.execute("ALTER TABLE steps RENAME TO strict_steps")
        other.execute("CREATE TABLE steps AS SELECT * FROM strict_steps")
        other.execute("INSERT INTO steps (task_id, idx) VALUES ('notes', ?)", [idx])
    with pytest.raises(BadInput, match="steps: the task_id, idx of a row is none; the database"):
        stage.changes()


def test_a_folder_that_was_deleted_is_one_line_and_a_reset_helps() -> None:
    stage = at_work("restart")
    shutil.rmtree(verbs.current_folder().path)
    stage.kill()
    assert stage.state == "unmade"
    for act in (stage.create, stage.run, stage.resume):
        with pytest.raises((StorageFault, LabkitError)):
            act()
    with pytest.raises((UsageError, NotFound)):
        stage.use("durable")
    stage.reset()
    stage.create()
    assert stage.state == "ready"

"""What the journal explorer says and shows is true of the page in sight: its status, its code, and
what stands below after an act that failed."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from labkit.journal import Journal, copy, timeline
from labkit.lab import verbs
from labkit.lab.checks import Desk
from labkit.lab.content import exercise
from labkit.lab.folder import Folder
from labkit.lab.grid import AGENTS
from labkit.lab.panels.explorer import Explorer
from labkit.lab.panels.explorer_choices import is_trial
from labkit.lab.panels.explorer_pages import ALL
from tests.journal.conftest import Tamper, answered, every_kind, killed_twice, tamper
from tests.lab.panels.exploring import choose, is_fine, listed, said, show
from tests.lab.panels.staging import Waits
from tests.lab.panels.test_explorer_live import add_event

__all__ = ["answered", "every_kind", "killed_twice", "tamper"]  # fixtures

PAGES = {
    "Timeline": "timeline(journal, 'demo', by='order')",
    "Replay": "journal.at(15, 'demo').steps\ntimeline(journal, 'demo', until=15)",
    "Laws": "verdicts = journal.laws()\nverdicts.findings()",
    "SQL": "journal.contents()",
}


@pytest.fixture
def explorer(killed_twice: Path) -> Iterator[Explorer]:
    panel = Explorer(killed_twice)
    yield panel
    panel.close()


# What is picked.


@pytest.mark.parametrize("view", PAGES)
def test_what_is_picked_limits_events_and_each_page_says_so(view: str, explorer: Explorer) -> None:
    show(explorer, view)
    before, code = said(explorer), explorer.last_code
    assert "picked" not in before
    show(explorer, "Events")
    explorer.events.kinds.value = ("step_recovered", "task_done")
    assert said(explorer) == "3 events picked."
    show(explorer, view)
    note = "What is picked under Kinds limits Events, not this page."
    assert said(explorer) == f"{before} {note}"
    assert explorer.last_code == code == PAGES[view]
    explorer.choices.run.value = ("demo", "00000002")  # while this page is in sight
    assert said(explorer) == f"{before} {note.replace('Kinds', 'Run and Kinds')}"
    assert explorer.last_code == code
    show(explorer, "Events")
    assert said(explorer) == "1 event picked."
    assert explorer.last_code.startswith("journal.rows(journal.seqs(task='demo', run='00000002'")
    explorer.choices.run.value = ALL
    explorer.events.kinds.value = ()
    assert said(explorer).startswith("state.db: 15 events")
    show(explorer, view)
    assert said(explorer) == before


def test_a_task_that_is_picked_limits_no_law(every_kind: Path) -> None:
    panel = Explorer(every_kind)
    show(panel, "Laws")
    panel.choices.task.value = "waits"
    assert said(panel).endswith("What is picked under Task limits Events, not this page.")
    show(panel, "Timeline")
    assert said(panel) == timeline(every_kind, "waits").summary
    assert panel.last_code == "timeline(journal, 'waits', by='order')"
    panel.close()


def test_a_page_says_what_stands_on_it(explorer: Explorer, killed_twice: Path) -> None:
    show(explorer, "Timeline")
    assert said(explorer) == timeline(killed_twice, "demo").summary
    show(explorer, "Replay")
    assert said(explorer) == "A replay of task demo, 15 events."
    show(explorer, "Laws")
    assert said(explorer) == "0 laws broken, 0 findings."
    show(explorer, "Timeline")
    assert said(explorer) == timeline(killed_twice, "demo").summary


# Following.


def test_each_page_has_its_own_code_while_it_follows(tamper: Tamper) -> None:
    path = tamper()
    panel = Explorer(path)
    panel.choices.follow.value = True
    following = "for event in journal.follow('demo', after={}):\n    print(event)"
    assert panel.last_code == following.format(15)
    for seq, (view, code) in enumerate(PAGES.items(), start=16):
        show(panel, view)
        add_event(path)
        panel.look()
        assert said(panel).startswith(f"Following. {seq} events")
        assert panel.last_code == code.replace("15", str(seq))
        show(panel, "Events")
        assert panel.last_code == following.format(seq - 1)
    choose(panel, 7)
    assert panel.last_code == "journal.row(7)"
    panel.choices.follow.value = False
    assert "follow" not in panel.last_code
    panel.close()


def test_the_code_of_following_gives_what_came_in(tamper: Tamper, answered: Path) -> None:
    path = tamper()
    panel = Explorer(path)
    panel.events.kinds.value = ("step_finished", "task_done")
    panel.choices.run.value = ("demo", "00000003")
    panel.choices.follow.value = True
    add_event(path, "step_finished")
    panel.look()
    printed: list[Any] = []
    exec(panel.last_code, {"journal": Ended(path), "print": printed.append})
    assert [event.seq for event in printed] == [16] == panel.keys[-1:]
    add_event(path, "step_error")
    panel.look()
    printed.clear()
    exec(panel.last_code, {"journal": Ended(path), "print": printed.append})
    assert printed == []  # there is one, of another kind
    assert Journal(path).seqs(after=16) == [17]
    panel.open(str(answered))
    panel.choices.run.value = ("r1", "bob#2")
    assert "event.owner == 'bob#2'" in panel.choices.follow_code(0, "owner")
    panel.close()


class Ended(Journal):
    """Its `follow` gives what is there and ends."""

    def follow(self, task: str | None = None, *, after: int = 0, **_: Any) -> Iterator[Any]:
        stop = threading.Event()
        stop.set()
        return super().follow(task, after=after, stop=stop)


# The list of journals.


def test_journals_of_notebooks_come_before_those_of_trials(tmp_path: Path) -> None:
    names = ["21/001/first", "05/001/trial-after_effect-2", "20/002/stage", "07/001/mutant-x",
             "05/001/check-ex1-after_effect-3", "20/002/restart-after-effect-2", "21/001/defect",
             "20/002/durable-unharmed"]  # fmt: skip
    for second, name in enumerate(names):
        path = tmp_path / name / "state.db"
        path.parent.mkdir(parents=True)
        path.touch()
        os.utime(path, (second, second))
    panel = Explorer(folder=tmp_path)
    assert listed(panel) == [
        "3 found", "21/001/defect/state.db", "20/002/stage/state.db", "21/001/first/state.db",
        "5 of trials:", "20/002/durable-unharmed/state.db",
        "20/002/restart-after-effect-2/state.db", "05/001/check-ex1-after_effect-3/state.db",
        "07/001/mutant-x/state.db", "05/001/trial-after_effect-2/state.db",
    ]  # fmt: skip
    panel.choices.found.index = 4  # the line between them opens nothing
    assert said(panel) == "No journal is open: choose one, or type a path."
    panel.choices.found.index = 9
    assert said(panel) == "state.db: 0 events: an empty file, or a journal in which nothing is yet."
    panel.close()


def test_a_flood_of_trials_hides_no_journal_of_a_notebook(tmp_path: Path) -> None:
    for number in range(250):
        (tmp_path / f"05/001/trial-x-{number}").mkdir(parents=True)
        (tmp_path / f"05/001/trial-x-{number}/state.db").touch()
    (tmp_path / "05/001/first").mkdir()
    (tmp_path / "05/001/first/state.db").touch()
    os.utime(tmp_path / "05/001/first/state.db", (0, 0))
    panel = Explorer(folder=tmp_path)
    labels = listed(panel)
    assert labels[:3] == ["1 found", "05/001/first/state.db", "the newest 100 of 250 of trials:"]
    assert len(labels) == 103
    panel.close()


def test_trials_lie_in_folders_that_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever makes such folders is asked, so that no new name slips into the list."""
    verbs.begin("05")
    root = verbs.current_notebook().root
    verbs.fresh("mine")
    made = [verbs.trial("after_effect:2").folder, verbs.current_folder()]
    made.append(Desk(exercise("05.ex1"), verbs.current_notebook().open_folder).fresh("x"))
    verbs.end()
    assert [is_trial(str(folder.database)) for folder in made] == [True, False, True]
    assert all(is_trial(f"{root}/{agent}-unharmed/state.db") for agent in AGENTS)
    assert isinstance(made[0], Folder)


# After an act that failed.


def test_a_journal_that_cannot_be_opened_leaves_the_other_and_says_so(
    explorer: Explorer, tmp_path: Path
) -> None:
    show(explorer, "SQL")
    explorer.choices.path.value = str(tmp_path / "missing.db")
    assert "missing.db does not exist" in said(explorer)
    assert said(explorer).endswith("Below is still state.db.")


def test_an_answer_is_that_of_the_journal_in_sight(explorer: Explorer, answered: Path) -> None:
    explorer.sql.starter.index = 1
    assert explorer.sql.answer.value
    explorer.open(str(answered))
    assert explorer.sql.answer.value == ""


def test_a_page_that_fails_is_empty(tamper: Tamper) -> None:
    path = tamper()
    panel = Explorer(path)
    choose(panel, 8)
    for view in ("Timeline", "Replay", "Laws", "Events"):
        show(panel, view)
    data = path.read_bytes()
    path.unlink()
    panel.picture.by.value = "time"
    show(panel, "Timeline")
    panel.replay.slider.value = 3
    panel.choices.witness.value = str(path)
    choose(panel, 9)
    show(panel, "Laws")
    for shown in (
        panel.picture.shown, panel.replay.shown, panel.replay.standing, panel.replay.where,
        panel.laws.verdicts, panel.events.row,
    ):  # fmt: skip
        assert shown.value == ""
    assert "does not exist" in said(panel)
    show(panel, "Events")
    panel.events.kinds.value = ("task_done",)
    assert panel.events.chooser.select.options == ()
    path.write_bytes(data)
    panel.events.kinds.value = ()
    assert is_fine(panel)
    assert len(panel.events.chooser.select.options) == 15
    for view in ("Laws", "Timeline", "Replay"):
        panel.choices.witness.value = ""
        show(panel, view)
        assert is_fine(panel)
    assert panel.picture.shown.value
    panel.close()


def test_a_folder_that_is_gone_has_no_journals(killed_twice: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    copy(str(killed_twice), str(folder / "state.db"))
    panel = Explorer(folder=folder)
    assert len(panel.choices.found.options) == 2
    folder.rename(tmp_path / "away")
    panel.choices.find.click()
    assert "there is no folder" in said(panel)
    assert [label for label, _ in panel.choices.found.options] == ["0 found"]
    panel.close()


# A journal that is locked.


def test_a_locked_journal_holds_up_nothing_and_comes_back(
    tamper: Tamper, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tamper()
    panel = Explorer(path)
    choose(panel, 8)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        waits = Waits(monkeypatch)
        for _ in range(3):
            assert panel.look()
            assert is_fine(panel)  # it may be a writer's moment
        assert panel.look()
        locked = "is locked by another program; nothing is lost, try again"
        assert locked in said(panel)
        assert waits.seen == [0, 0, 0, 0]
        panel.say("")
        assert panel.look()
        assert said(panel) == ""  # said once
        choose(panel, 9)
        assert locked in said(panel)
        assert panel.events.row.value == ""
        panel.choices.open_it.click()
        assert locked in said(panel)
        assert len(said(panel).splitlines()) == 1
        assert max(waits.seen) <= 0.5  # of a second, in each of them
        assert len(waits.seen) < 9
        other.execute("ROLLBACK")
    panel.look()
    assert said(panel).startswith("The file is there again.")
    choose(panel, 10)
    assert is_fine(panel)
    panel.close()


def test_a_click_in_the_first_moment_of_a_lock_waits_no_longer(
    tamper: Tamper, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tamper()
    panel = Explorer(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        waits = Waits(monkeypatch)
        monkeypatch.setattr("labkit.database.BUSY_S", 0.75)  # of whoever says nothing else
        for view in ("Timeline", "Replay", "Laws", "Events"):
            show(panel, view)
            panel.attempt(panel.events.chooser.go_to, 5)
            assert "is locked by another program" in said(panel)
        assert max(waits.seen) == 0.5
        other.execute("ROLLBACK")
    show(panel, "Laws")
    assert is_fine(panel)
    panel.close()


def test_a_locked_journal_is_not_opened_and_one_line_says_why(
    tamper: Tamper, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tamper()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        waits = Waits(monkeypatch)
        panel = Explorer(path)
        assert f"{path} is locked by another program" in said(panel)
        assert waits.seen == [0.5]
        other.execute("ROLLBACK")
    panel.choices.path.value = str(path)
    assert "15 events" in said(panel)
    panel.close()


# A journal that no agent wrote.


@pytest.mark.parametrize("seq", [0, -(2**63), 2**63 - 1])
def test_a_seq_that_no_agent_writes_is_said_and_every_page_works(seq: int, tamper: Tamper) -> None:
    path = tamper(
        "DELETE FROM events WHERE seq > 9", f"UPDATE events SET seq = {seq} WHERE seq = 9"
    )
    panel = Explorer(path)
    assert "the journal was altered by hand, or is none of an agent" in said(panel)
    assert seq in panel.keys
    assert len(panel.keys) == 9
    choose(panel, seq)
    for view in ("Timeline", "Replay", "Laws", "SQL", "Events"):
        for detail in ("Row", "JSON", "Neighbours", "Law"):
            show(panel, view, detail)
            assert is_fine(panel), (view, detail, said(panel))
    panel.look()
    panel.choices.follow.value = True
    assert is_fine(panel)
    panel.close()

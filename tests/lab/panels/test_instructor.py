"""The instructor's panel, without a browser: real agents, real kills, and what the room sees."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
from typing import Any

import pytest
from ipywidgets import Button, Dropdown, ToggleButton, ToggleButtons

from labkit import lab
from labkit.errors import UsageError
from labkit.lab import panels, verbs
from labkit.lab.evidence import find_reports
from labkit.lab.panels.instructor import Instructor
from labkit.lab.process import NotReady, Process, Result
from labkit.lab.runs import messages
from labkit.lab.stage import Done
from tests.lab.conftest import is_gone, no_room_for_folders
from tests.lab.panels.staging import (
    Waits,
    alt,
    another_program,
    at_work,
    click,
    demo,
    die_at,
    enabled,
    everything,
    has_failed,
    png_size,
    said,
    text,
    wait,
    widgets,
)

BOTH = pytest.mark.parametrize("agent", ["restart", "durable"])
DIES = {"restart": "after_effect:2", "durable": "boundary:7"}

__all__ = ["demo"]  # a fixture
pytestmark = pytest.mark.usefixtures("demo")


# The life of an agent.


@BOTH
def test_from_create_to_what_survives(agent: str) -> None:
    panel = panels.Instructor(agent)
    assert enabled(panel) == {"create", "reset"}
    click(panel, "create")
    assert enabled(panel) == {"run", "resume", "reset"}
    die_at(panel, DIES[agent])
    click(panel, "run")
    wait(panel)
    assert "killed by SIGKILL" in said(panel)
    assert "1 killed" in alt(panel)
    assert not has_failed(panel)
    click(panel, "resume")
    wait(panel)
    folder = verbs.current_folder()
    effects = find_reports(folder) if agent == "restart" else messages(folder)
    assert len(effects) == 1
    word = "report" if agent == "restart" else "message"
    assert text(panel.effects.value) == f"Left outside: 1 {word}"


def test_a_run_that_waits_gets_its_answer() -> None:
    panel = panels.Instructor("durable")
    click(panel, "create")
    die_at(panel, "boundary:7")
    click(panel, "run")
    wait(panel)
    assert (panel.buttons["answer"].disabled, panel.answers.disabled) == (True, True)
    click(panel, "resume")
    wait(panel)
    assert enabled(panel) == {"resume", "answer", "reset"}
    panel.answers.value = "retry"
    click(panel, "answer")
    assert "SUCCEEDED" in said(panel)
    assert len(messages(verbs.current_folder())) == 2
    assert "Left outside: 2 messages" in text(panel.effects.value)
    assert "resolutions" in panel.pages["What changed"].value
    click(panel, "reset")
    assert panel.answers.value == ""  # of the next run nobody has decided anything


def test_only_an_agent_that_waits_has_answers() -> None:
    panel = panels.Instructor("restart")
    assert panel.buttons["answer"].layout.display == "none"
    panel.agent.value = "durable"
    assert panel.buttons["answer"].layout.display == ""
    assert panel.answers.value == ""


@BOTH
def test_a_kill_is_on_the_picture_when_the_click_returns(agent: str) -> None:
    panel = panels.Instructor(agent)
    process = at_work(panel)
    assert enabled(panel) == {"kill", "reset"}
    while panel.look() and "1 at work" not in alt(panel):
        pass
    click(panel, "kill")
    assert process.killed
    assert is_gone(process)
    assert "1 killed" in alt(panel)
    assert "killed by SIGKILL" in said(panel)
    assert "kill" not in enabled(panel)


def test_run_returns_at_once_and_its_events_come_by_looking() -> None:
    panel = panels.Instructor()
    click(panel, "create")
    before = panel.pages["Journal"].value
    click(panel, "run")
    process = panel.stage.process
    assert process is not None
    assert process.alive
    lab.wait_for(process, "step_started", 0)
    assert panel.look()
    assert "step_started" in panel.pages["Journal"].value
    assert "step_started" not in before


def test_without_news_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = panels.Instructor()
    at_work(panel)
    panel.look()
    drawn: list[str] = []
    draw = panel.stage.timeline
    monkeypatch.setattr(panel.stage, "timeline", lambda style: drawn.append(style) or draw(style))
    for _ in range(5):
        panel.look()
    assert drawn == []
    click(panel, "kill")
    assert drawn == ["panel"]


def test_what_comes_while_it_draws_is_shown_by_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    panel = panels.Instructor()
    process = at_work(panel)
    draw = panel.stage.timeline

    def draw_slowly(style: str) -> Any:
        drawn = draw(style)
        process.close()  # it ends after the picture and before the words
        return drawn

    monkeypatch.setattr(panel.stage, "timeline", draw_slowly)
    panel.look()
    assert "1 at work" in alt(panel)
    while panel.look():
        pass
    assert "1 killed" in alt(panel)
    assert "killed by SIGKILL" in said(panel)


def test_the_pages_show_what_they_say() -> None:
    panel = panels.Instructor()
    click(panel, "create")
    die_at(panel, "after_effect:2")
    click(panel, "run")
    wait(panel)
    journal = text(panel.pages["Journal"].value.replace("<td>", " "))
    assert journal.index(" 7 step_started") < journal.index(" 1 task_created")
    assert "write_artifact" in panel.pages["What changed"].value
    assert "SELECT" in panel.pages["What changed"].value
    [report] = find_reports(verbs.current_folder())
    assert report.file in panel.pages["Artifacts"].value
    assert "AGENT_CRASH_AT" in panel.pages["Code"].value
    assert "AGENT_CRASH_AT" in panel.code.value  # the last act, in sight
    panel.tabs.buttons.value = "Code"
    assert panel.tabs.pages.selected_index == 3


def test_one_place_is_pressed_and_said_in_words() -> None:
    panel = panels.Instructor()
    places = [each for each in widgets(panel.root) if hasattr(each, "at")]
    assert len(places) == 11
    assert [each.description for each in places if each.value] == ["now"]
    die_at(panel, "after_commit:1")
    assert [each.description for each in places if each.value] == ["after_commit:1"]
    assert text(panel.places.chosen.value) == "The next Run is killed at after_commit:1."
    [pressed] = [each for each in places if each.value]
    pressed.value = False  # pressed once more
    assert [each.description for each in places if each.value] == ["after_commit:1"]
    die_at(panel, "")
    click(panel, "create", "run")
    wait(panel)
    assert "exit 0: done" in said(panel)


# Odd use.


def test_kill_twice_and_run_twice_are_a_line_each() -> None:
    panel = panels.Instructor()
    process = at_work(panel)
    click(panel, "run")
    assert has_failed(panel)
    assert said(panel) == "process 2 is at work; kill it, or wait"
    assert [each.alive for each in verbs.current_folder().processes] == [False, True]
    click(panel, "kill", "kill")
    assert has_failed(panel)
    assert said(panel) == "process 2 has ended already"
    assert is_gone(process)
    click(panel, "resume")
    wait(panel)
    assert not has_failed(panel)


def test_a_reset_that_failed_says_what_to_do_and_the_next_one_helps() -> None:
    panel = panels.Instructor()
    process = at_work(panel)
    with no_room_for_folders():
        click(panel, "reset")
        assert has_failed(panel)
        assert re.fullmatch("cannot make a folder in .*; mend the storage, try again", said(panel))
        assert is_gone(process)
        assert enabled(panel) == {"reset"}
        for act in ("create", "run", "resume"):  # clicks that were under way
            click(panel, act)
            assert has_failed(panel)
        panel.refresh()
        assert said(panel).endswith("a fresh one was not made; mend the storage, then Reset.")
    click(panel, "reset", "create")
    assert not has_failed(panel)
    assert enabled(panel) == {"run", "resume", "reset"}


def test_a_grid_that_could_not_be_filled_is_filled_by_the_next_reset() -> None:
    panel = panels.Instructor()
    folder = verbs.current_folder().path
    (folder / "plan.json").write_text("{", encoding="utf-8")
    panel.plan.value = "quiet.json"
    panel.plan.value = "plan.json"
    assert has_failed(panel)
    assert len(panel.places.grid.children) == 0
    click(panel, "reset")
    assert not has_failed(panel)
    assert len(panel.places.grid.children) == 16
    die_at(panel, "after_effect:2")
    click(panel, "create", "reset")
    assert panel.places.at == "after_effect:2"  # what was pressed stays


def test_a_reset_while_at_work_ends_it() -> None:
    panel = panels.Instructor()
    process = at_work(panel)
    click(panel, "reset")
    assert is_gone(process)
    assert enabled(panel) == {"create", "reset"}
    assert "no timeline yet" in panel.timeline.value
    click(panel, "create")
    assert not has_failed(panel)


def test_another_agent_while_at_work_is_done_and_said() -> None:
    panel = panels.Instructor()
    process = at_work(panel)
    panel.agent.value = "durable"
    assert is_gone(process)
    assert said(panel).startswith("durable, notice. The process that was at work was killed.")
    assert panel.plan._options_labels == ("notice", "dispatch")
    assert len([each for each in widgets(panel.root) if hasattr(each, "at")]) == 11
    assert panel.votes.children[0].description == "waits, 0 messages"
    click(panel, "create")
    assert enabled(panel) == {"run", "resume", "reset"}
    panel.plan.value = "dispatch"
    assert enabled(panel) == {"create", "reset"}
    assert len([each for each in widgets(panel.root) if hasattr(each, "at")]) == 23


@pytest.mark.parametrize(
    ("notebook", "agent", "other"), [("02", "restart", "durable"), ("11", "durable", "restart")]
)
def test_an_agent_for_which_a_folder_has_no_plan_is_refused_in_a_line(
    notebook: str, agent: str, other: str
) -> None:
    lab.begin(notebook)
    panel = panels.Instructor(agent)
    panel.agent.value = other
    assert has_failed(panel)
    assert said(panel) == f"this folder holds no plan of the {other} agent"
    assert panel.agent.value == agent
    click(panel, "create")
    assert not has_failed(panel)


def test_another_plan_is_the_one_that_is_created() -> None:
    panel = panels.Instructor()
    panel.plan.value = "quiet.json"
    click(panel, "create")
    assert "quiet.json" in panel.pages["Code"].value


def test_a_plan_that_is_called_as_an_option_is_created() -> None:
    folder = verbs.current_folder().path
    (folder / "plan.json").rename(folder / "-x.json")
    panel = panels.Instructor("restart", "-x.json")
    click(panel, "create")
    assert not has_failed(panel), said(panel)
    assert "./-x.json" in text(panel.code.value)


@pytest.mark.parametrize("what", ["folder", "database", "garbage"])
def test_what_is_deleted_under_the_panel_is_a_line_and_reset_helps(what: str) -> None:
    panel = panels.Instructor()
    process = at_work(panel)
    panel.look()
    folder = verbs.current_folder().path
    if what == "folder":
        shutil.rmtree(folder)
    else:
        for file in folder.glob("state.db*"):
            file.unlink()
    if what == "garbage":
        (folder / "state.db").write_bytes(b"no database" * 1000)
    panel.look()
    click(panel, "kill")
    assert is_gone(process)
    for name in ("resume", "create"):
        click(panel, name)
        wait(panel)
    assert said(panel)
    if what != "database":
        assert has_failed(panel) or "is nothing that this agent can read" in said(panel)
    panel.agent.value = "durable"
    click(panel, "reset", "create")
    assert not has_failed(panel)
    assert enabled(panel) == {"run", "resume", "reset"}


LOCKED = "is locked by another program; nothing is lost, try again when"


def test_a_locked_database_holds_up_nothing_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = panels.Instructor()
    click(panel, "create")
    shown = panel.timeline.value
    with another_program(verbs.current_folder().database) as other:
        other.execute("BEGIN EXCLUSIVE")
        waits = Waits(monkeypatch)
        for _ in range(3):
            assert panel.look()  # there is more to come: its end
        assert LOCKED in said(panel)
        assert waits.taken() <= 0.5
        for act in ("run", "resume", "create"):
            click(panel, act)
            assert has_failed(panel)
            assert LOCKED in said(panel)
        panel.redraw()
        assert waits.taken() == 0
        assert enabled(panel) == {"run", "resume", "reset"}
    assert not panel.look()
    assert "No process is at work." in said(panel)
    assert panel.timeline.value == shown
    die_at(panel, "after_effect:2")
    click(panel, "run")
    wait(panel)
    assert "killed by SIGKILL" in said(panel)


@BOTH
def test_a_reset_needs_nothing_of_a_database_that_is_locked(
    agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = panels.Instructor(agent)
    click(panel, "create")
    with another_program(verbs.current_folder().database) as other:
        other.execute("BEGIN EXCLUSIVE")
        waits = Waits(monkeypatch)
        click(panel, "reset")
        assert not has_failed(panel)
        assert waits.taken() <= 0.5
        assert enabled(panel) == {"create", "reset"}
        click(panel, "create")
        assert enabled(panel) == {"run", "resume", "reset"}


def test_a_kill_after_which_the_database_is_locked_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    panel = panels.Instructor()
    process = at_work(panel)
    waits, kill, show = Waits(monkeypatch), verbs.kill, panel._show_last
    with another_program(verbs.current_folder().database) as other:

        def kill_and_lock(process: Process) -> Result:
            result = kill(process)
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN EXCLUSIVE")  # it is still read
            return result

        def lock_and_show(done: Done) -> None:
            other.execute("BEGIN EXCLUSIVE")
            waits.taken()
            show(done)

        monkeypatch.setattr(verbs, "kill", kill_and_lock)
        monkeypatch.setattr(panel, "_show_last", lock_and_show)
        click(panel, "kill")
        assert waits.taken() <= 0.5
        assert is_gone(process)
        assert said(panel).startswith("Process 2: killed by SIGKILL. state.db is locked by")
        assert [act.act for act in panel.stage.acts] == ["create", "run", "kill"]
        assert 'wait_for(process, "step_started", 0)' in panel.stage.code
    assert not panel.look()
    assert said(panel).startswith("Process 2: killed by SIGKILL. The task is stored as running.")
    assert "1 killed" in alt(panel)


def test_nobody_locks_the_database_while_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = panels.Instructor()
    click(panel, "create")
    draw = panel.stage.timeline
    refused = []
    with another_program(verbs.current_folder().database) as other:

        def lock_and_draw(style: str) -> Any:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN EXCLUSIVE")
            refused.append(style)
            return draw(style)

        monkeypatch.setattr(panel.stage, "timeline", lock_and_draw)
        panel.refresh()
        assert (refused, has_failed(panel)) == (["panel"], False)
        other.execute("BEGIN EXCLUSIVE")  # and then it may


def test_a_plan_that_no_agent_takes_is_a_line_and_another_one_works() -> None:
    folder = verbs.current_folder().path
    (folder / "a.json").write_text("{", encoding="utf-8")  # the first one, by its name
    panel = panels.Instructor()
    assert (panel.plan.value, has_failed(panel)) == ("a.json", True)
    click(panel, "create")
    assert has_failed(panel)
    assert "the plan is no JSON" in said(panel)
    panel.plan.value = "plan.json"
    assert not has_failed(panel)
    die_at(panel, "after_effect:2")
    click(panel, "create")
    assert enabled(panel) == {"run", "resume", "reset"}


def test_whatever_somebody_writes_into_the_outbox_is_shown() -> None:
    panel = panels.Instructor("durable")
    (verbs.current_folder().path / "outbox.txt").write_bytes(b"by hand\n\xff\n")
    click(panel, "create")
    assert not has_failed(panel)
    assert "2 messages" in text(panel.effects.value)
    assert "by hand" in panel.pages["Artifacts"].value


def test_a_second_panel_closes_the_first() -> None:
    first = panels.Instructor()
    process = at_work(first)
    second = panels.Instructor()
    assert is_gone(process)
    assert first._repr_mimebundle_() == {"text/plain": f"{first.sentence} It is closed."}
    click(first, "run")  # a click that was under way
    assert all(not each.alive for each in verbs.current_folder().processes)
    click(second, "resume")
    wait(second)
    assert "exit 0: done" in said(second)


@pytest.mark.parametrize("ends", ["begin", "end", "close"])
def test_a_panel_ends_with_its_notebook(ends: str) -> None:
    panel = panels.Instructor()
    process = at_work(panel)
    assert "application/vnd.jupyter.widget-view+json" in panel._repr_mimebundle_()
    if ends == "close":
        panel.close()
        panel.close()
    elif ends == "begin":
        lab.begin("20")
    else:
        lab.end()
    assert is_gone(process)
    assert panel._repr_mimebundle_() == {"text/plain": f"{panel.sentence} It is closed."}
    assert not panel.look()


def test_what_a_room_leaves_at_work_is_ended_and_said() -> None:
    panel = panels.Instructor()
    process = at_work(panel)
    assert panel.look()
    assert process.alive
    panel.stage.limit_s = 0
    while panel.look():
        pass
    assert is_gone(process)
    assert "It was left at work for too long." in said(panel)


def test_a_fresh_folder_in_a_cell_is_followed() -> None:
    panel = panels.Instructor()
    process = at_work(panel)
    lab.fresh("elsewhere")
    panel.look()
    assert is_gone(process)
    assert enabled(panel) == {"create", "reset"}
    click(panel, "create")
    assert not has_failed(panel)


def test_what_is_not_there_is_said_and_leaves_no_panel() -> None:
    with pytest.raises(UsageError, match="no agent is called"):
        panels.Instructor("other")
    with pytest.raises(UsageError, match="no plan is called"):
        panels.Instructor("restart", "other.json")
    assert "instructor" not in verbs.current_notebook().beside
    lab.end()
    with pytest.raises(NotReady, match="no notebook has begun"):
        panels.Instructor()


def test_text_from_files_is_text() -> None:
    folder = verbs.current_folder().path
    name = "<img src=x onerror=alert(1)>\u202e.json"
    (folder / "plan.json").rename(folder / name)
    (folder / "input" / "notes.txt").write_text("<script>alert(1)</script>\x07", encoding="utf-8")
    panel = Instructor("restart", name)
    die_at(panel, "after_effect:2")
    click(panel, "create")
    assert "&lt;img src=x" in panel.code.value
    click(panel, "run")
    wait(panel)
    shown = "".join(each for each in everything(panel) if not each.startswith("Plan "))
    assert all("\u202e" not in label for label in panel.plan._options_labels)
    assert panel.plan.value == name
    assert "onerror" in shown
    assert "script" in shown
    for harmful in ("<img src=x", "<script>alert", "\x07", "\u202e"):
        assert harmful not in shown


def test_what_it_is_in_a_stored_notebook_is_a_sentence() -> None:
    assert repr(panels.Instructor("durable")) == repr(panels.Instructor("restart"))


# The look of it, and the loop.


def test_the_room_sees_a_larger_picture() -> None:
    panel = panels.Instructor()
    click(panel, "create")
    small = png_size(panel)
    panel.room.value = True
    assert png_size(panel)[0] > 1.5 * small[0]
    assert "labkit-room" in panel.root._dom_classes
    panel.room.value = False
    assert png_size(panel) == small


def test_every_control_has_words_and_the_class_that_the_docstring_names() -> None:
    panel = panels.Instructor("durable")
    classes = {name for each in widgets(panel.root) for name in each._dom_classes}
    named = set(re.findall(r"\.(labkit-[a-z-]+)", str(panels.instructor.__doc__)))
    assert named <= classes
    for each in widgets(panel.root):
        if isinstance(each, Button | ToggleButton | Dropdown | ToggleButtons):
            assert each.description


def test_with_a_loop_it_looks_until_nothing_is_at_work() -> None:
    async def demo() -> Instructor:
        panel = panels.Instructor()
        click(panel, "create")
        die_at(panel, "after_effect:2")
        click(panel, "run")
        looking = asyncio.all_tasks() - {asyncio.current_task()}
        assert len(looking) == 1
        await asyncio.gather(*looking)
        return panel

    panel = asyncio.run(demo())
    assert "killed by SIGKILL" in said(panel)
    assert "1 killed" in alt(panel)


def test_a_closed_panel_looks_no_more() -> None:
    async def demo() -> None:
        panel = panels.Instructor()
        click(panel, "create", "run")
        looking = asyncio.all_tasks() - {asyncio.current_task()}
        panel.close()
        await asyncio.gather(*looking, return_exceptions=True)

    asyncio.run(demo())
    assert all(not each.alive for each in verbs.current_folder().processes)

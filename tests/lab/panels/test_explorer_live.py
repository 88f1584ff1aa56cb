"""The journal explorer over a file that another process writes, replaces, or takes away."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench.journals import make_journal
from labkit import guard
from labkit.journal import Journal, copy, timeline
from labkit.journal.reading import snapshot
from labkit.lab.panels.explorer import Explorer
from labkit.lab.panels.explorer_pages import ALL
from tests.conftest import run_python
from tests.journal.conftest import Tamper, answered, killed_twice, tamper
from tests.lab.panels.exploring import alt, choose, is_fine, said, show

__all__ = ["answered", "killed_twice", "tamper"]  # fixtures


def add_event(path: Path, kind: str = "step_error") -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "INSERT INTO events SELECT max(seq) + 1, ts, task_id, run_id, ?, step_idx, data, owner,"
            " step, attempt FROM events",
            (kind,),
        )


def test_new_events_are_told_and_followed(tamper: Tamper) -> None:
    path = tamper()
    panel = Explorer(path)
    assert panel.look()
    assert "new events" not in said(panel)
    add_event(path)
    panel.look()
    assert said(panel) == "There are new events, up to seq 16: tick Follow to see them."
    panel.choices.task.index = 0  # a list made anew does not show them either
    assert panel.keys[-1] == 15
    panel.choices.follow.value = True
    assert panel.keys[-1] == panel.events.chooser.chosen == 16
    add_event(path, "step_finished")
    panel.look()
    assert panel.keys[-2:] == [16, 17]
    assert ("step_error (1)", "step_error") in panel.events.kinds.options
    panel.look()
    assert panel.keys[-2:] == [16, 17]  # none twice
    panel.close()


def test_only_new_events_of_the_picked_kinds_come_in(tamper: Tamper) -> None:
    path = tamper()
    panel = Explorer(path)
    panel.events.kinds.value = ("step_finished",)
    panel.choices.follow.value = True
    before = list(panel.keys)
    add_event(path, "step_error")
    panel.look()
    assert panel.keys == before
    add_event(path, "step_finished")
    panel.look()
    assert panel.keys == [*before, 17]
    assert panel.events.kinds.value == ("step_finished",)
    panel.close()


def test_a_pick_without_events_is_followed_too(tamper: Tamper) -> None:
    """An event is chosen, and then what no event is of."""
    path = tamper()
    panel = Explorer(path)
    choose(panel, 8)
    panel.choices.run.value = ("demo", "00000001")
    panel.events.kinds.value = ("task_done",)
    assert panel.keys == []
    panel.choices.follow.value = True
    panel.room.value = True
    add_event(path, "task_done")
    panel.look()
    assert is_fine(panel)
    assert panel.keys == []
    panel.choices.run.value = ALL
    assert panel.keys == [15, 16]
    panel.close()


def test_every_page_follows(tamper: Tamper) -> None:
    path = tamper("DELETE FROM events WHERE seq > 9")
    panel = Explorer(path)
    panel.choices.follow.value = True
    for view in ("Timeline", "Replay", "Laws"):
        show(panel, view)
    before = panel.laws.verdicts.value
    add_event(path, "step_finished")
    panel.look()
    assert panel.laws.verdicts.value != before
    show(panel, "Replay")
    assert panel.replay.slider.value == panel.replay.slider.max == 10
    show(panel, "Timeline")
    assert alt(panel.picture.shown.value) == timeline(path, "demo").summary
    panel.close()


def test_looking_again_reads_no_event(tmp_path: Path) -> None:
    """It must be cheap: it happens four times a second."""
    path = make_journal(tmp_path / "large.db", 5_000)
    panel = Explorer(path)
    steps: list[int] = []
    connect = sqlite3.connect

    class Counting(sqlite3.Connection):
        def __init__(self, *values: Any, **named: Any) -> None:
            super().__init__(*values, **named)
            self.set_progress_handler(lambda: 0, 1000)

        def set_progress_handler(self, handler: Any, n: int) -> None:
            super().set_progress_handler(lambda: steps.append(n) or handler(), n)

    def counting(*values: Any, **named: Any) -> sqlite3.Connection:
        return connect(*values, factory=Counting, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", counting)
        panel.look()
        assert steps == []
        panel.open(str(path))
        assert steps != []  # the control: what reads every event is seen
    panel.close()


def test_it_never_keeps_a_lock(tamper: Tamper) -> None:
    """Neither while it is open nor while it looks: a writer is never refused."""
    path = tamper()
    panel = Explorer(path)
    panel.choices.follow.value = True
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as writer:
        for _ in range(3):
            panel.look()
            writer.execute("BEGIN EXCLUSIVE")
            writer.execute("UPDATE tasks SET updated_at = updated_at + 1")
            writer.execute("COMMIT")
        with snapshot(str(path)) as reader:  # the control: a reader that stays
            list(reader.rows("SELECT * FROM events"))
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                writer.execute("BEGIN EXCLUSIVE")
    panel.close()


def test_an_agent_is_followed_until_it_is_killed_and_beyond(folder: Path) -> None:
    """Real processes write while the panel looks; none of them is held up."""
    assert run_python("-m", "labkit.restart", "create", "demo", "plan.json", cwd=folder).code == 0
    panel = Explorer(folder / "state.db")
    panel.choices.follow.value = True
    for crash, code in (("after_effect:2", -signal.SIGKILL), ("", 0)):
        argv = [sys.executable, "-m", "labkit.restart", "run", "demo"]
        env = {
            **os.environ,
            "AGENT_STEP_DELAY": "0.2",
            **({"AGENT_CRASH_AT": crash} if crash else {}),
        }
        lengths = set()
        with guard.start(argv, cwd=str(folder), env=env, stdout=subprocess.DEVNULL) as agent:
            while agent.poll() is None:
                panel.look()
                lengths.add(len(panel.keys))
            assert agent.poll() == code
        assert len(lengths) > 2  # it was seen at work, not only afterwards
        panel.look()
        assert panel.keys == Journal(folder / "state.db").seqs()
        assert is_fine(panel)
    assert panel.keys[-1] == panel.events.chooser.chosen
    panel.close()


def test_a_file_that_is_replaced_is_opened_again(tamper: Tamper, answered: Path) -> None:
    path = tamper()
    panel = Explorer(path)
    copy(str(answered), str(path.with_name("other.db")))
    os.replace(path.with_name("other.db"), path)
    panel.look()
    assert said(panel).startswith("The file was replaced or altered; opened again.")
    assert panel.choices.task.value == "r1"
    assert panel.keys == Journal(answered).seqs()
    assert is_fine(panel)
    panel.close()


def test_a_file_that_is_gone_and_comes_back(tamper: Tamper) -> None:
    path = tamper()
    panel = Explorer(path)
    os.rename(path, path.with_name("away.db"))
    assert panel.look()
    assert "does not exist" in said(panel)
    panel.say("something else")
    panel.look()
    assert said(panel) == "something else"  # said once
    choose(panel, 3)
    assert not is_fine(panel)
    os.rename(path.with_name("away.db"), path)
    panel.look()
    assert said(panel).startswith("The file is there again.")
    panel.close()


def test_a_file_that_is_replaced_by_no_journal(tamper: Tamper) -> None:
    path = tamper()
    panel = Explorer(path)
    shutil.copy(__file__, path)
    assert panel.look()
    assert "not a database" in said(panel)
    panel.close()


def test_it_looks_by_itself_where_a_loop_runs(tamper: Tamper) -> None:
    path = tamper()

    async def watch() -> None:
        panel = Explorer(path)
        panel.every_s = 0
        panel.choices.follow.value = True
        add_event(path)
        while panel.keys[-1] < 16:
            await asyncio.sleep(0)
        panel.close()

    asyncio.run(watch())

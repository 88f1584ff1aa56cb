"""What once broke a panel: odd files in its boxes, queries without an end, names of plans."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from labkit.errors import BadInput
from labkit.journal import Journal
from labkit.journal.explore import contents, glance, pretty
from labkit.journal.reading import Bounds
from labkit.journal.verdicts import judge_effects
from labkit.lab import cells, verbs
from labkit.lab.folder import Folder
from labkit.lab.panels.explorer import Explorer
from labkit.lab.panels.instructor import Instructor
from labkit.lab.panels.matrix import Matrix
from labkit.lab.panels.parts import table
from labkit.lab.process import Process
from labkit.lab.runs import Trials
from labkit.lab.stage import Stage
from tests.lab.panels import staging
from tests.lab.panels.exploring import said
from tests.lab.panels.staging import click, demo

__all__ = ["demo"]  # a fixture

AN_EVENT = {
    "seq": "1", "ts": "1.0", "task_id": "'t'", "run_id": "'r'", "owner": "'o'",
    "kind": "'run_started'", "step_idx": "NULL", "step": "NULL", "attempt": "NULL", "data": "'{}'",
}  # fmt: skip
NUMBERS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "


@pytest.fixture
def explorer() -> Iterator[Explorer]:
    panel = Explorer()
    yield panel
    panel.close()


def make(path: Path, before: str = "", source: str = "", **columns: str) -> Path:
    """A file whose view `journal` says what somebody wants it to say."""
    chosen = ", ".join(f"{value} AS {name}" for name, value in {**AN_EVENT, **columns}.items())
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE tasks (id, status, created_at)")
        database.execute(f"CREATE VIEW journal AS {before}SELECT {chosen} {source}")
    return path


@pytest.mark.parametrize("path", ["~\0", "~nobody\ud800", "\0", "\ud800"])
def test_a_path_that_no_system_has_is_one_line(explorer: Explorer, path: str) -> None:
    explorer.attempt(explorer.open, path)
    assert "does not exist" in said(explorer)


@pytest.mark.parametrize("seq", ["'abc'", "x'00'", "1.5"])
def test_a_seq_of_another_kind_is_refused(tmp_path: Path, explorer: Explorer, seq: str) -> None:
    explorer.attempt(explorer.open, str(make(tmp_path / "odd.db", seq=seq)))
    assert "its seq is no whole number; the journal was altered by hand" in said(explorer)
    assert explorer.journal is None


@pytest.mark.parametrize("look", [contents, glance])
def test_a_view_without_an_end_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[Path], object]
) -> None:
    for name in ("STEPS", "GLANCE_STEPS"):
        monkeypatch.setattr(f"labkit.journal.explore.{name}", 100_000)
    endless = make(tmp_path / "endless.db", NUMBERS, "FROM n", seq="x")

    with pytest.raises(BadInput, match="is too large, or has no end"):
        look(endless)


def test_events_that_are_gone_are_missed_in_one_line(tmp_path: Path, explorer: Explorer) -> None:
    path = make(tmp_path / "shrinks.db", source="FROM kept", seq="x")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE kept AS SELECT column1 AS x FROM (VALUES (1), (2), (3))")
    explorer.open(str(path))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM kept WHERE x = 2")

    explorer.events.chooser.goto.value = 1

    assert said(explorer) == "the journal no longer holds what was listed; press Open"
    explorer.open(str(path))
    assert explorer.keys == [1, 3]


def test_a_task_without_a_name_is_picked_in_the_code_too(
    tmp_path: Path, explorer: Explorer
) -> None:
    path = make(tmp_path / "any.db", "WITH n(x) AS (VALUES (1), (2)) ", "FROM n", seq="x",
                task_id="iif(x = 1, '', 't')")  # fmt: skip
    explorer.open(str(path))
    explorer.choices.task.value = ""
    assert (explorer.keys, explorer.last_code) == (
        [1], "journal.rows(journal.seqs(task='')[:200])",
    )  # fmt: skip


def test_a_witness_that_has_no_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (str(tmp_path / "fifo"), "/dev/zero"):
        with pytest.raises(BadInput, match="no regular file"):
            judge_effects(path)


def test_a_row_is_bounded_too(tmp_path: Path) -> None:
    journal = Journal(make(tmp_path / "any.db"))
    with pytest.raises(BadInput, match="too many columns"):
        journal.ask(f"SELECT {', '.join(['zeroblob(90000000)'] * 60)}", bounds=Bounds(columns=50))
    with pytest.raises(BadInput, match="too big"):
        journal.ask("SELECT zeroblob(90000000)")
    assert len(journal.ask("SELECT printf('%.*c', 15000000, 'x')").frame.iloc[0, 0]) == 15_000_000


def test_a_large_blob_is_not_written_out_to_be_told_from_nothing() -> None:
    began = time.process_time()
    assert "100,000,000 bytes, not text" in table(["a"], [[bytes(100_000_000)]], "t")
    assert time.process_time() - began < 1


def test_numbers_in_deep_lists_are_cut() -> None:
    data = "[" * 500 + ",".join("1" * 100_000) + "]" * 500
    shown = pretty(data, 1_000_000)
    assert shown.endswith("… (cut here)")
    assert len(shown) < 1_010_000
    assert json.loads(pretty(data[:500] + "1" + "]" * 500)) == json.loads(
        data[:500] + "1" + "]" * 500
    )


@pytest.mark.usefixtures("begun")
@pytest.mark.parametrize("name", ["\U0001f600.json", "a\nb.json", "\u202etxt.json", "\"'\\.json"])
def test_the_line_of_a_plan_is_that_of_its_file(name: str) -> None:
    folder = verbs.current_folder().path
    (folder / name).write_bytes((folder / "plan.json").read_bytes())
    stage = Stage("restart", name)
    line = stage.create().code
    stage.close()
    command = ast.literal_eval(line.removeprefix("lab.run(").removesuffix(")"))
    assert shlex.split(command)[-1] == name


@pytest.mark.usefixtures("begun")
def test_what_is_no_file_is_no_plan() -> None:
    folder = verbs.current_folder().path
    os.mkfifo(folder / "fifo.json")
    (folder / "folder.json").mkdir()
    (folder / "zero.json").symlink_to("/dev/zero")
    known = Stage().plans
    assert "plan.json" in known
    assert not {"fifo.json", "folder.json", "zero.json"} & {*known}


# A kill that was not delivered at its place proves nothing, whoever else killed the process.


@pytest.mark.usefixtures("begun")
def test_a_process_that_something_else_killed_has_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = Folder.start

    def killed_from_outside(self: Folder, command: str, agent: dict[str, object]) -> Process:
        if "AGENT_CRASH_AT" not in agent:
            return start(self, command, agent)
        process = start(self, command, {**agent, "AGENT_STEP_DELAY": "60"})
        process.wait_for("run_started", None)
        process.kill()
        return process

    monkeypatch.setattr(Folder, "start", killed_from_outside)
    [outcome] = cells.run("restart", places=cells.grid("restart")[-1:])
    assert outcome.folder.processes[1].killed
    assert (outcome.word, outcome.kind) == ("not killed", "unproved")
    assert "something else killed the process" in repr(outcome)


@pytest.mark.usefixtures("begun")
def test_a_durable_run_that_something_else_killed_has_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = Trials.call

    def killed_elsewhere(
        self: Trials, folder: Path, nth: int, *words: str, **agent: str
    ) -> tuple[int, str]:
        asked = {"AGENT_CRASH_AT": "boundary:1"} if "AGENT_CRASH_AT" in agent else {}
        return call(self, folder, nth, *words, **{**agent, **asked})

    monkeypatch.setattr(Trials, "call", killed_elsewhere)
    outcomes = list(cells.run("durable", places=cells.grid("durable")[-1:]))
    assert [(each.word, each.kind) for each in outcomes] == [("not killed", "unproved")]


COLUMNS = {
    "tasks": "'t' || x AS id, '[]' AS plan, 'running' AS status, x AS created_at",
    "steps": "'demo' AS task_id, x AS idx, 't' AS tool, '{}' AS input, NULL AS output, "
             "'pending' AS status, 0 AS attempts",
    "journal": ", ".join(f"{'x' if name == 'seq' else value} AS {name}"
                         for name, value in AN_EVENT.items()),
}  # fmt: skip


@pytest.mark.usefixtures("demo")
@pytest.mark.parametrize("name", COLUMNS)
def test_a_table_without_an_end_holds_up_no_room(name: str) -> None:
    panel = Instructor("restart")
    click(panel, "create")
    gone = "DROP VIEW journal" if name == "journal" else f"ALTER TABLE {name} RENAME TO old"
    with closing(sqlite3.connect(panel.stage._folder.database)) as database:
        database.execute("PRAGMA legacy_alter_table = ON")
        database.execute(gone)
        database.execute(f"CREATE VIEW {name} AS {NUMBERS} SELECT {COLUMNS[name]} FROM n")
    panel.attempt(panel.refresh)
    assert re.search("has no end|or no end; the database was altered", staging.said(panel))
    click(panel, "reset")
    assert "No task is stored yet." in staging.said(panel)
    panel.close()


@pytest.mark.usefixtures("begun")
def test_a_closed_matrix_starts_nothing() -> None:
    matrix = Matrix()
    matrix.close()
    matrix.attempt(matrix.run)
    assert matrix.sweep is None

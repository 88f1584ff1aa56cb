"""The journal explorer without a browser: values are set, buttons clicked, what is shown is read.

The code that the panel shows is executed here, each piece after the one before, as in a notebook.
"""

from __future__ import annotations

import io
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from ipywidgets.widgets import widget as widgets

from bench.journals import make_journal
from labkit.journal import Journal, copy, timeline
from labkit.journal.starters import RESTART, RUNS
from labkit.lab import verbs
from labkit.lab.panels.explorer import Explorer
from labkit.lab.panels.explorer_pages import ALL
from labkit.lab.panels.parts import LIMIT, PAGE
from tests.journal.conftest import Tamper, answered, every_kind, killed_twice, tamper
from tests.lab.panels.exploring import (
    VIEWS,
    alt,
    choose,
    descendants,
    is_fine,
    said,
    show,
    sizes,
    visit,
)

__all__ = ["answered", "every_kind", "killed_twice", "tamper"]  # fixtures

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.fixture
def explorer(killed_twice: Path) -> Iterator[Explorer]:
    panel = Explorer(killed_twice)
    yield panel
    panel.close()


# Opening.


def test_it_begins_without_a_journal(tmp_path: Path) -> None:
    panel = Explorer(folder=tmp_path)
    assert said(panel) == "No journal is open: choose one, or type a path."
    for view in VIEWS[1:]:
        show(panel, view)
        assert "No journal is open" in said(panel)
    panel.sql.ask.click()
    assert "No journal is open" in said(panel)
    assert panel.look() is False
    panel.close()


def test_opening_says_what_is_in_it(explorer: Explorer) -> None:
    assert said(explorer) == "state.db: 15 events, 1 task; a journal of the restart agent."
    assert [label for label, _ in explorer.choices.task.options] == [
        "all (1)",
        "demo: done, 15 events",
    ]
    assert explorer.choices.task.value == "demo"
    assert [label for label, _ in explorer.choices.run.options][1:] == [
        "00000001",
        "00000002",
        "00000003",
    ]
    assert len(explorer.events.chooser.select.options) == 15
    assert "step_recovered\xa0\xa0(2)" not in explorer.events.kinds.options
    assert ("step_recovered (2)", "step_recovered") in explorer.events.kinds.options


def test_opening_a_durable_run(answered: Path) -> None:
    panel = Explorer(Journal(answered))
    assert said(panel).endswith("1 run; a journal of durable runs.")
    assert [label for label, _ in panel.choices.run.options][1:3] == ["ann#1", "bob#2"]
    panel.choices.run.value = ("r1", "bob#2")
    assert panel.keys == Journal(answered).seqs("r1", run="bob#2")
    panel.close()


def test_journals_of_a_folder_are_listed_and_opened(killed_twice: Path, tmp_path: Path) -> None:
    (tmp_path / "05" / "first").mkdir(parents=True)
    copy(str(killed_twice), str(tmp_path / "05" / "first" / "state.db"))
    panel = Explorer(folder=tmp_path)
    changed = datetime.fromtimestamp(os.stat(tmp_path / "05/first/state.db").st_mtime)
    assert [label for label, _ in panel.choices.found.options] == [
        "1 found", f"{changed:%m-%d %H:%M}  05/first/state.db",
    ]  # fmt: skip
    panel.choices.found.index = 1
    assert "15 events" in said(panel)
    assert panel.choices.path.value == str(tmp_path / "05/first/state.db")
    copy(str(killed_twice), str(tmp_path / "another.db"))
    panel.choices.find.click()
    assert panel.choices.found.options[0][0] == "2 found"
    panel.close()


def test_a_path_is_opened_by_the_box_and_by_the_button(killed_twice: Path) -> None:
    panel = Explorer()
    panel.choices.path.value = str(killed_twice)
    assert "15 events" in said(panel)
    panel.say("")
    panel.choices.open_it.click()
    assert "15 events" in said(panel)
    panel.close()


def bad_files(folder: Path, whole: Path) -> dict[str, str]:
    """Paths that are no journal, and what the status must say of each."""
    data = whole.read_bytes()
    named = {
        "truncated.db": data[: len(data) // 2],
        "damaged.db": data[:1024] + b"\xff" * (len(data) - 1024),
        "foreign.db": b"not a database, " * 1000,
    }
    for name, content in named.items():
        (folder / name).write_bytes(content)
    with closing(sqlite3.connect(folder / "other.db")) as other:
        other.execute("CREATE TABLE mine (x)")
    (folder / "link.db").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.db")
    return {
        "": "type the path",
        "  ": "type the path",
        str(folder): "is a folder; name the journal that lies in it",
        str(folder / "missing.db"): "does not exist",
        str(folder / "truncated.db"): "malformed",
        str(folder / "damaged.db"): "malformed",
        str(folder / "foreign.db"): "not a database",
        str(folder / "other.db"): "another program made it",
        str(folder / "link.db"): "does not exist",
        str(folder / "pipe.db"): "no regular file",
        "nul\0.db": "does not exist",
        "x" * 100_000: "100,000 characters is no path",
        "x" * 4096: "… (",
        "/dev/zero": "no regular file",
    }


def test_a_file_without_anything_in_it(tmp_path: Path) -> None:
    """As a creation leaves it that was killed."""
    (tmp_path / "state.db").touch()
    panel = Explorer(tmp_path / "state.db")
    assert said(panel) == "state.db: 0 events: an empty file, or a journal in which nothing is yet."
    for view in ("Timeline", "Replay"):
        show(panel, view)
        assert said(panel) == "this journal holds no task yet"
    show(panel, "Laws")
    assert is_fine(panel)
    panel.close()


def test_what_is_no_journal_is_one_line_and_the_panel_goes_on(
    explorer: Explorer, tmp_path: Path, killed_twice: Path
) -> None:
    copy(str(killed_twice), str(tmp_path / "whole.db"))
    for path, words in bad_files(tmp_path, tmp_path / "whole.db").items():
        explorer.choices.path.value = "?"
        explorer.choices.path.value = path
        if not path:
            explorer.choices.open_it.click()
        assert not is_fine(explorer)
        assert words in said(explorer)
        assert len(said(explorer).splitlines()) == 1
        assert len(said(explorer)) < 600
        choose(explorer, 3)  # the one before is still there
        assert "step_started" in explorer.events.row.value
    explorer.choices.path.value = str(killed_twice)
    assert is_fine(explorer)
    assert max(sizes(explorer).values()) < 1.3 * LIMIT


def test_a_file_that_nobody_may_read(explorer: Explorer, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (tmp_path / "secret.db").touch(mode=0)
    explorer.choices.path.value = str(tmp_path / "secret.db")
    assert not is_fine(explorer)


def test_the_page_that_is_damaged_later_is_one_line(tamper: Tamper) -> None:
    panel = Explorer(tamper())
    assert panel.journal
    data = bytearray(Path(panel.journal.path).read_bytes())
    data[1024:] = b"\xff" * (len(data) - 1024)
    Path(panel.journal.path).write_bytes(data)
    for view in VIEWS[1:4]:
        show(panel, view)
        assert "malformed" in said(panel)
    panel.close()


# Choosing.


def test_events_are_filtered(explorer: Explorer) -> None:
    explorer.events.kinds.value = ("step_recovered", "task_done")
    assert explorer.keys == [6, 11, 15]
    explorer.choices.run.value = ("demo", "00000002")
    assert explorer.keys == [6]
    assert said(explorer) == "1 event picked."
    explorer.events.kinds.value = ()
    assert explorer.keys == [6, 7, 8, 9, 10]
    explorer.choices.run.value = ALL
    assert len(explorer.keys) == 15


def test_runs_are_those_of_the_task(every_kind: Path) -> None:
    panel = Explorer(every_kind)
    assert panel.choices.task.value is ALL
    assert panel.contents
    every = len(panel.choices.run.options)
    assert every == len(panel.contents.runs) + 1
    panel.choices.task.value = "waits"
    assert {run.task_id for run in panel.contents.runs} > {"waits"}
    assert [value for _, value in panel.choices.run.options][1:] == [("waits", "ann#1")]
    assert panel.keys == Journal(every_kind).seqs("waits")
    panel.close()


def test_many_tasks_are_cut(tamper: Tamper) -> None:
    many = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
        INSERT INTO tasks SELECT 't' || i, '', 'pending', 0, 0, '', 0 FROM n"""
    panel = Explorer(tamper(many))
    assert len(panel.choices.task.options) == PAGE + 1
    assert panel.choices.task.options[0][0] == "all (301; 200 are listed)"
    panel.close()


def test_what_is_shown_of_an_event(explorer: Explorer) -> None:
    choose(explorer, 8)
    assert "2026-01-01 00:02:" in explorer.events.row.value
    show(explorer, "Events", "JSON")
    assert "&quot;tool&quot;: &quot;summarize&quot;" in explorer.events.json.value
    show(explorer, "Events", "Neighbours")
    assert "<td>9<td>after, same attempt<td>step_finished" in explorer.events.neighbours.value
    show(explorer, "Events", "Law")
    assert "breaks no law" in explorer.events.law.value
    choose(explorer, 9)
    assert "Event 9 " in explorer.events.law.value


def test_the_law_that_an_event_breaks_with_its_sentence(tamper: Tamper) -> None:
    panel = Explorer(tamper("UPDATE events SET step_idx = 0 WHERE seq = 8"))
    show(panel, "Events", "Law")
    choose(panel, 8)
    assert "Law 2" in panel.events.law.value
    assert "step 0 of task demo started again after it had finished" in panel.events.law.value
    panel.close()


def test_from_a_finding_to_its_event(tamper: Tamper) -> None:
    panel = Explorer(tamper("UPDATE events SET step_idx = 0 WHERE seq = 8"))
    panel.events.kinds.value = ("task_done",)  # which would hide it
    show(panel, "Laws")
    assert "<td>2<td>The task resumes<td>broken" in panel.laws.verdicts.value
    texts = [label for label, _ in panel.laws.findings.select.options]
    panel.laws.findings.select.index = next(i for i, t in enumerate(texts) if "law\xa02" in t)
    assert panel.views.shown == "Events"
    assert panel.events.chooser.chosen == panel.seq == 8
    assert "Law 2" in panel.events.law.value
    assert panel.choices.picked == {"task": None, "run": None, "kinds": []}
    panel.choices.task.value = "demo"  # which hides it not, and stays
    show(panel, "Laws")
    panel.laws.findings.select.index = None
    panel.laws.findings.select.index = next(i for i, t in enumerate(texts) if "law\xa02" in t)
    assert panel.events.chooser.chosen == 8
    assert panel.choices.task.value == "demo"
    panel.close()


def test_a_finding_about_the_tables_has_no_event(tamper: Tamper) -> None:
    panel = Explorer(tamper("UPDATE tasks SET status = 'failed'"))
    show(panel, "Laws")
    panel.laws.findings.select.index = 0
    assert "no event shows it" in said(panel)
    panel.close()


def test_a_witness_is_asked_for_law_4(explorer: Explorer, tmp_path: Path) -> None:
    show(explorer, "Laws")
    assert "no witness was given" in explorer.laws.verdicts.value
    (tmp_path / "witness").write_text("key-1\nkey-1\n", encoding="utf-8")
    explorer.choices.witness.value = str(tmp_path / "witness")
    assert "effect key-1 happened 2 times" in explorer.laws.verdicts.value
    explorer.choices.witness.value = str(tmp_path)
    assert "cannot be read" in said(explorer)
    assert explorer.laws.verdicts.value == ""  # they were the answer of another witness
    assert explorer.laws.findings.select.options == ()
    assert explorer.last_code.startswith(f"verdicts = journal.laws(witness={str(tmp_path)!r})")
    show(explorer, "SQL")
    show(explorer, "Laws")
    assert "cannot be read" in said(explorer)  # it is tried again, and still true
    explorer.choices.witness.value = ""
    assert is_fine(explorer)
    assert "no witness was given" in explorer.laws.verdicts.value


def test_verdicts_are_of_the_witness_as_it_is_now(explorer: Explorer, tmp_path: Path) -> None:
    """An effect may be left without an event: that is what law 4 is for."""
    witness = tmp_path / "witness"
    witness.write_text("key-1\n", encoding="utf-8")
    explorer.choices.witness.value = str(witness)
    show(explorer, "Laws")
    assert "effect key-1 happened 2 times" not in explorer.laws.verdicts.value
    with open(witness, "a", encoding="utf-8") as file:
        file.write("key-1\n")
    show(explorer, "SQL")
    show(explorer, "Laws")
    assert "effect key-1 happened 2 times" in explorer.laws.verdicts.value


def test_a_witness_is_of_one_journal(
    explorer: Explorer, killed_twice: Path, every_kind: Path, tmp_path: Path
) -> None:
    (tmp_path / "witness").write_text("key-1\n", encoding="utf-8")
    explorer.choices.witness.value = str(tmp_path / "witness")
    explorer.open(str(killed_twice))
    assert explorer.choices.witness.value == str(tmp_path / "witness")
    explorer.open(str(every_kind))
    show(explorer, "Laws")
    assert explorer.choices.witness.value == ""
    assert "no witness was given" in explorer.laws.verdicts.value


# Timeline and replay.


def test_the_timeline_is_that_of_the_journal(explorer: Explorer, killed_twice: Path) -> None:
    assert explorer.picture.shown.value == ""  # nobody has looked
    show(explorer, "Timeline")
    assert alt(explorer.picture.shown.value) == timeline(killed_twice, "demo").summary
    first = explorer.picture.shown.value
    explorer.picture.by.value = "time"
    assert explorer.picture.shown.value != first
    explorer.room.value = True
    assert len(explorer.picture.shown.value) > len(first)


def test_the_timeline_of_all_tasks_is_that_of_the_chosen_event(every_kind: Path) -> None:
    panel = Explorer(every_kind)
    show(panel, "Timeline")
    assert "Timeline of run done" in alt(panel.picture.shown.value)
    show(panel, "Events")
    choose(panel, Journal(every_kind).seqs("waits")[1])
    show(panel, "Timeline")
    assert "Timeline of run waits" in alt(panel.picture.shown.value)
    panel.close()


def test_a_replay_shows_tables_and_timeline_as_they_stood(
    explorer: Explorer, killed_twice: Path
) -> None:
    show(explorer, "Replay")
    assert (explorer.replay.slider.min, explorer.replay.slider.max) == (1, 15)
    assert "<td>demo<td>done" in explorer.replay.standing.value
    for number in (1, 5, 9):
        explorer.replay.slider.value = number
        standing = Journal(killed_twice).at(number, "demo")
        assert f"<td>demo<td>{standing.tasks.status[0]}" in explorer.replay.standing.value
        for idx, status in enumerate(standing.steps.status):
            assert re.search(rf"<tr><td>{idx}<td>\w*<td>{status}", explorer.replay.standing.value)
        then = timeline(killed_twice, "demo", until=number).summary
        assert alt(explorer.replay.shown.value) == then
        assert f"After event {number} of 15, seq {number}" in explorer.replay.where.value
    explorer.replay.back.click()
    assert explorer.replay.slider.value == 8
    explorer.replay.forth.click()
    explorer.replay.forth.click()
    assert explorer.replay.slider.value == 10


def test_a_replay_begins_at_the_chosen_event(explorer: Explorer) -> None:
    choose(explorer, 7)
    show(explorer, "Replay")
    assert explorer.replay.slider.value == 7


def test_a_replay_goes_from_event_to_event_of_its_task(every_kind: Path) -> None:
    """Between two of them lie those of other tasks, at which nothing would change."""
    panel = Explorer(every_kind)
    panel.choices.task.value = "waits"
    show(panel, "Replay")
    seqs = Journal(every_kind).seqs("waits")
    assert panel.replay.slider.max == len(seqs)
    panel.replay.slider.value = 2
    assert f"seq {seqs[1]}:" in panel.replay.where.value
    panel.close()


# SQL.


def ask(panel: Explorer, sql: str) -> str:
    panel.sql.box.value = sql
    panel.sql.ask.click()
    return str(panel.sql.answer.value)


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("is_durable", [False, True])
def test_a_question_to_begin_with_is_asked_at_once(
    is_durable: bool, number: int, killed_twice: Path, answered: Path
) -> None:
    panel = Explorer(answered if is_durable else killed_twice)
    starter = (RUNS if is_durable else RESTART)[number]
    assert [label for label, _ in panel.sql.starter.options][number + 1] == starter.title
    panel.sql.starter.index = number + 1
    assert panel.sql.box.value == starter.sql
    assert is_fine(panel)
    assert re.fullmatch(r"\d+ rows?\.", said(panel))
    panel.close()


def test_an_answer_is_cut_and_says_so(explorer: Explorer) -> None:
    few = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    html = ask(explorer, few)
    assert f"The first {PAGE} rows are shown; there are more." in html
    assert html.count("<tr>") == PAGE + 1
    assert "<td>3" in ask(
        explorer, "SELECT count(*) AS runs FROM journal WHERE kind = 'run_started'"
    )


@pytest.mark.proof  # the whole hundred million; tests/journal counts two million
@pytest.mark.timeout(600)
def test_an_endless_query_ends_with_one_line(explorer: Explorer) -> None:
    assert ask(explorer, ENDLESS) == ""
    assert "stopped before its end, after 100 million steps of SQLite" in said(explorer)
    assert "<td>1" in ask(explorer, "SELECT 1")
    assert is_fine(explorer)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("DELETE FROM events", "DELETE is not a query"),
        ("WITH a AS (SELECT 1) UPDATE tasks SET status = 'x'", "read-only"),
        ("ATTACH 'made.db' AS made", "ATTACH is not a query"),
        ("SELECT missing", "no such column"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("", "is not a query"),
        ("SELECT '\0", "SQLite cannot run this query"),
    ],
)
def test_a_mistake_is_one_line(sql: str, words: str, explorer: Explorer) -> None:
    assert ask(explorer, sql) == ""
    assert words in said(explorer)
    assert not is_fine(explorer)


# What every panel owes.


def test_the_code_it_shows_does_the_same(
    killed_twice: Path, answered: Path, tmp_path: Path
) -> None:
    (tmp_path / "witness").write_text("k\n", encoding="utf-8")
    for path in (killed_twice, answered):
        names: dict[str, Any] = {}
        panel = Explorer(witness=tmp_path / "witness")
        shown: list[str] = []
        panel.code.observe(lambda _: shown.append(panel.last_code), "value")  # noqa: B023
        panel.choices.path.value = str(path)
        panel.events.kinds.value = ("run_started",)
        panel.choices.run.index = 1
        visit(panel)
        panel.choices.find.click()
        assert len(shown) > 10
        for code in dict.fromkeys(shown):
            with redirect_stdout(io.StringIO()):
                exec(code, names)
        assert names["journal"].path == str(path)
        panel.close()


def test_each_page_shows_its_own_code(explorer: Explorer) -> None:
    show(explorer, "Laws")
    show(explorer, "SQL")
    assert explorer.last_code == "journal.contents()"  # nobody has asked anything
    explorer.room.value = True
    show(explorer, "Events")
    assert explorer.last_code == "journal.rows(journal.seqs(task='demo')[:200])"
    choose(explorer, 6)
    explorer.views.buttons.value = "SQL"
    explorer.sql.starter.index = 1
    own = {
        "Events": "journal.row(6)",
        "Timeline": "timeline(journal, 'demo', by='order')",
        "Replay": "journal.at(6, 'demo').steps\ntimeline(journal, 'demo', until=6)",
        "Laws": "verdicts = journal.laws()\nverdicts.findings()",
        "SQL": f'journal.ask("""{explorer.sql.box.value}""").frame',
    }
    for _ in range(2):  # the second time nothing is drawn again
        for view, code in own.items():
            show(explorer, view)
            assert explorer.last_code == code
    for view in ("Replay", "Timeline"):
        show(explorer, view)
        explorer.room.value = not explorer.room.value
        assert explorer.last_code == own[view]


def test_picked_rows_are_what_the_code_gives(explorer: Explorer, killed_twice: Path) -> None:
    explorer.events.kinds.value = ("step_recovered",)
    code = explorer.last_code
    assert code == "journal.rows(journal.seqs(task='demo', kinds=['step_recovered'])[:200])"
    assert list(eval(code, {"journal": Journal(killed_twice)}).seq) == explorer.keys == [6, 11]


def test_every_control_has_a_label(explorer: Explorer) -> None:
    kinds = ("Button", "Text", "Textarea", "Dropdown", "Select", "SelectMultiple", "Checkbox",
             "IntSlider", "ToggleButton", "ToggleButtons", "BoundedIntText")  # fmt: skip
    controls = [each for each in descendants(explorer.root) if type(each).__name__ in kinds]
    assert len(controls) > 20
    assert [each for each in controls if not each.description] == []


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_100_000_events_open_in_two_seconds(tmp_path: Path) -> None:
    """Of a processor, since other work must not decide; it takes a quarter of one."""
    path = make_journal(tmp_path / "large.db", 50_000)
    panel = Explorer()
    began = time.process_time()
    panel.choices.path.value = str(path)
    assert time.process_time() - began < 2
    assert "100,001 events" in said(panel)
    assert len(panel.events.chooser.select.options) == PAGE
    show(panel, "Timeline")
    assert alt(panel.picture.shown.value).startswith("Timeline of task t")
    panel.close()


def test_its_classes_are_those_it_lists(explorer: Explorer) -> None:
    listing = str(__import__(Explorer.__module__, fromlist=["_"]).__doc__)
    listed = set(re.findall(r"\.(labkit-[a-z-]+)", listing))
    there = {name for each in descendants(explorer.root) for name in each._dom_classes}
    assert listed - there == set()


def test_closing_takes_every_widget_away(killed_twice: Path) -> None:
    before = set(widgets._instances)
    panel = Explorer(killed_twice)
    visit(panel)
    assert set(widgets._instances) > before
    panel.close()
    left = [widgets._instances[name] for name in set(widgets._instances) - before]
    assert {type(each).__name__ for each in left} <= {"VBox", "HTML", "Layout", "HTMLStyle"}
    assert len(left) == 5  # the line that says that it is closed


def test_the_notebook_closes_it(capsys: pytest.CaptureFixture[str]) -> None:
    verbs.begin("03")
    panel = Explorer()
    verbs.end()
    assert panel.is_closed

"""Where a reading ends that would else take all the time, or all the memory, of a notebook."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from bench.journals import make_journal
from labkit.errors import BadInput, StorageFault
from labkit.journal import Journal, timeline
from labkit.journal.explore import contents, glance, rows, seqs
from labkit.journal.reading import Bounds, limited, read_events, snapshot
from tests.journal.conftest import Tamper, killed_twice, tamper

__all__ = ["killed_twice", "tamper"]  # fixtures

COUNTED = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {}) SELECT "
COLUMNS = "seq, ts, task_id, run_id, owner, kind, step_idx, step, attempt, data"


def alter(path: Path, *statements: str) -> Path:
    """By hand, so without the triggers of an agent."""
    with closing(sqlite3.connect(path)) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'"):
            database.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            database.execute(statement)
        database.commit()
    return path


def with_view(path: Path, **columns: str) -> Path:
    """Its view `journal` gives what somebody wants it to give."""
    chosen = [f"{columns.get(name, name)} AS {name}" for name in COLUMNS.split(", ")]
    view = f"CREATE VIEW journal AS SELECT {', '.join(chosen)} FROM events"
    return alter(path, "DROP VIEW journal", view)


def test_a_query_of_costly_steps_ends_too(killed_twice: Path) -> None:
    """Some thousand steps, each of which may make ten million bytes."""
    large = COUNTED.format(200) + "sum(length(randomblob(10000000))) FROM n"
    small = COUNTED.format(200) + "sum(length(randomblob(10))) FROM n"
    bounds = Bounds(steps=100_000)
    with pytest.raises(BadInput, match="the query was stopped before its end"):
        Journal(killed_twice).ask(large, bounds=bounds)
    assert Journal(killed_twice).ask(small, bounds=bounds).frame.iloc[0, 0] == 2_000


def test_what_is_done_with_the_rows_takes_no_part(tmp_path: Path) -> None:
    """Else a large journal is refused, since to judge it takes longer than to read it."""
    path = str(make_journal(tmp_path / "some.db", 1_000))
    with limited(0.5, 1_000_000), snapshot(path) as reader:  # a tenth of a second
        events = read_events(reader)
        next(events)
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass
        with suppress(BadInput):  # it would be refused here
            assert len(list(events)) > 1_000
            return
    pytest.fail("an honest journal was refused")


def test_a_value_that_fills_the_memory_is_refused(tamper: Tamper) -> None:
    path = with_view(tamper(), data="CAST(zeroblob(100000001) AS TEXT)")
    with pytest.raises(BadInput, match="holds a value of more than 100 million bytes"):
        rows(path, [1])
    with_view(path, data="printf('%.1000000c', 'x')")
    assert len(rows(path, [1])[0].data) == 200


def test_every_reading_in_there_is_limited(tamper: Tamper) -> None:
    """Also one that has no bound of its own, as that of the laws and of a picture."""
    path = tamper()
    journal = Journal(path)
    many = COUNTED.format(100_000) + f"{COLUMNS} FROM events, n WHERE i < 0"
    alter(path, "DROP VIEW journal", f"CREATE VIEW journal AS {many}")
    for read in (journal.read, journal.events, journal.laws, lambda: timeline(journal, "demo")):
        with limited(0.5, 200_000), pytest.raises(BadInput, match="is too large, or has no end"):
            read()
    with limited(0.5, 200_000), pytest.raises(BadInput, match="the query was stopped before its"):
        journal.sql("SELECT * FROM journal")
    with limited(0.5, 50_000_000):
        assert journal.read() == []
    assert journal.read() == []


def test_what_is_no_database_is_said_to_be_no_journal(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("buy milk\n" * 999, "utf-8")
    with pytest.raises(StorageFault, match="txt is no journal, or a damaged one: file is"):
        Journal(tmp_path / "notes.txt")


def test_events_that_went_from_the_middle_are_noticed(tamper: Tamper) -> None:
    path = tamper()
    first = glance(path)
    assert not glance(path, first).is_replaced
    alter(path, "UPDATE tasks SET updated_at = updated_at + 1")
    assert not glance(path, first).is_replaced  # the file has changed, and no event is missing
    alter(path, "DELETE FROM events WHERE seq BETWEEN 5 AND 7")
    now = glance(path, first)
    assert now.is_replaced
    assert not glance(path, now).is_replaced


def test_events_that_came_are_no_sign_of_another_file(tamper: Tamper) -> None:
    path = tamper()
    first = glance(path)
    alter(path, f"INSERT INTO events ({COLUMNS}) SELECT 16, {COLUMNS[5:]} FROM events LIMIT 1")
    second = glance(path, first)
    assert (second.last_seq, second.is_replaced) == (16, False)
    third = glance(path, second)
    assert (third.is_replaced, third.events) == (False, 16)


@pytest.mark.parametrize("read", [contents, glance, seqs])
def test_a_text_for_a_seq_is_refused(read: Callable[[Path], object], tamper: Tamper) -> None:
    path = with_view(tamper(), seq="CASE seq WHEN 5 THEN 'five' ELSE seq END")
    with pytest.raises(BadInput, match="event five: its seq is no whole number"):
        read(path)


@pytest.mark.parametrize("read", [contents, seqs])
def test_an_event_without_a_seq_is_refused_and_not_left_out(
    read: Callable[[Path], object], tamper: Tamper
) -> None:
    path = with_view(tamper(), seq="nullif(seq, 5)")
    with pytest.raises(BadInput, match="event None: its seq is no whole number"):
        read(path)


def test_a_kind_of_any_sort_is_picked(tamper: Tamper) -> None:
    path = with_view(tamper(), kind="CASE seq WHEN 5 THEN x'ff00' WHEN 6 THEN 7 ELSE kind END")
    assert seqs(path, kinds=[b"\xff\x00"]) == [5]  # type: ignore[list-item]
    assert seqs(path, kinds=[7, "task_done"]) == [6, 15]  # type: ignore[list-item]

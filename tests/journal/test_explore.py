"""What is in a journal, one event and its neighbours, and whether the file is still the same."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from labkit.errors import BadInput, NotFound, StorageFault, UnknownTask, UsageError
from labkit.journal import Journal, copy, timeline, timeline_table, timeline_text
from labkit.journal.chart import AT_WORK, KILLED, WITHOUT_ENTRY, read_chart
from labkit.journal.explore import (
    CUT,
    Run,
    Task,
    contents,
    fields,
    find_journals,
    glance,
    lines,
    neighbours,
    pretty,
    row,
    rows,
    seqs,
)
from labkit.journal.reading import Bounds, plain
from labkit.journal.starters import RESTART, RUNS, Starter, starters
from tests.journal.conftest import Tamper

# `killed_twice`: 1 created; 2 run 1 begins, 3 4 step 0, 5 step 1, killed; 6 recovered, 7 run 2
# begins, 8 9 step 1, 10 step 2, killed; 11 recovered, 12 run 3 begins, 13 14 step 2, 15 done.


def test_contents_of_a_task(killed_twice: Path) -> None:
    found = contents(killed_twice)
    assert (found.is_durable, found.events, found.last_seq) == (False, 15, 15)
    assert found.tasks == (Task("demo", "done", 15),)
    assert found.runs == (
        Run("demo", "00000001", 4),
        Run("demo", "00000002", 5),
        Run("demo", "00000003", 5),
    )
    assert found.kinds["run_started"] == 3
    assert sum(found.kinds.values()) == 15


def test_contents_of_a_durable_run(answered: Path) -> None:
    found = contents(answered)
    assert found.is_durable
    assert [(task.id, task.status) for task in found.tasks] == [("r1", "SUCCEEDED")]
    assert [run.name for run in found.runs][:2] == ["ann#1", "bob#2"]


def test_contents_of_what_only_one_of_the_two_knows(tamper: Tamper) -> None:
    path = tamper(
        "DELETE FROM tasks",
        "INSERT INTO tasks SELECT 'by hand', '', 'done', 0, 0, '', 0",
    )
    assert contents(path).tasks == (Task("demo", None, 15), Task("by hand", "done", 0))


def test_contents_of_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    assert contents(path)[1:] == (0, 0, (), (), {}, 1)
    assert seqs(path) == rows(path, [1]) == []
    assert glance(path).last_seq == 0


def test_contents_are_counted_on(tamper: Tamper) -> None:
    path = tamper()
    before = contents(path)
    grow(path)
    assert contents(path, before) == contents(path)
    assert contents(path, before).events == 16
    assert contents(path, contents(path)) == contents(path)


def test_contents_in_a_sentence(killed_twice: Path, every_kind: Path) -> None:
    assert contents(killed_twice).summary == "15 events, 1 task; a journal of the restart agent."
    assert contents(every_kind).summary.endswith(" runs; a journal of durable runs.")


def test_events_are_picked(killed_twice: Path) -> None:
    assert seqs(killed_twice) == list(range(1, 16))
    assert seqs(killed_twice, "demo", run="00000001") == [2, 3, 4, 5]
    assert seqs(killed_twice, kinds=["step_recovered", "task_done"]) == [6, 11, 15]
    assert seqs(killed_twice, run="00000002", kinds=["step_started"], after=8) == [10]
    assert seqs(killed_twice, after=3, until=5) == [4, 5]
    assert seqs(killed_twice, "another") == []


def test_the_run_of_a_durable_run_is_an_owner_with_its_epoch(answered: Path) -> None:
    of_bob = [event for event in Journal(answered).read() if event.owner == "bob#2"]
    assert of_bob
    assert seqs(answered, run="bob#2") == [event.seq for event in of_bob]


def test_rows_have_the_beginning_of_their_data(tamper: Tamper) -> None:
    long = json.dumps({"output": "x" * 1000})
    path = tamper(f"UPDATE events SET data = '{long}' WHERE seq = 4")
    first, second = rows(path, [14, 4])
    assert (first.seq, second.seq) == (4, 14)
    assert first.data == long[:CUT]
    assert row(path, 4).data == long
    assert pretty(row(path, 4).data) == f'{{\n  "output": "{"x" * 1000}"\n}}'


def test_rows_have_the_beginning_of_each_text(tamper: Tamper) -> None:
    path = tamper("UPDATE events SET step = printf('%.1000c', 'x') WHERE seq = 4")
    [event] = rows(path, [4])
    assert event.step == "x" * CUT


def test_a_row_is_shown_whatever_somebody_made_of_it(tamper: Tamper) -> None:
    """A blob for a step, a text for an attempt, no JSON at all: Journal.events refuses these."""
    path = tamper("UPDATE events SET step = x'00ff', attempt = 'two', data = 7 WHERE seq = 4")
    [event] = rows(path, [4])
    assert (event.step, event.attempt) == (b"\x00\xff", "two")
    assert lines([event])[0].startswith("step_finished")
    with pytest.raises(BadInput, match="event 4"):
        Journal(path).events()


@pytest.mark.parametrize("data", ["{", "[" * 100_000, None, b"\xff", 7])
def test_what_is_no_json_is_shown_as_it_is(data: object) -> None:
    assert pretty(data) == str(data)


def test_an_event_that_does_not_exist(killed_twice: Path) -> None:
    for ask in (row, neighbours):
        with pytest.raises(UsageError, match="no event has seq 16"):
            ask(killed_twice, 16)


def test_neighbours_are_those_beside_it_and_those_of_its_step(killed_twice: Path) -> None:
    assert [(each.event.seq, each.why) for each in neighbours(killed_twice, 8)] == [
        (5, "same step"),
        (6, "same step"),  # it closes attempt 1
        (7, "before"),
        (8, "this"),
        (9, "after, same attempt"),
    ]


def test_neighbours_of_an_event_without_a_step_are_those_of_its_run(killed_twice: Path) -> None:
    assert [(each.event.seq, each.why) for each in neighbours(killed_twice, 12)] == [
        (11, "before"),
        (12, "this"),
        (13, "after"),
        (15, "same run"),
    ]


def test_neighbours_across_a_gap_and_at_the_ends(tamper: Tamper) -> None:
    path = tamper("DELETE FROM events WHERE seq IN (2, 3, 14)")
    assert [(n.event.seq, n.why) for n in neighbours(path, 1)] == [(1, "this"), (4, "after")]
    assert neighbours(path, 15)[-2:][0].why == "before"


def test_neighbours_as_a_frame(killed_twice: Path) -> None:
    frame = Journal(killed_twice).neighbours(8)
    assert list(frame.columns[:3]) == ["seq", "why", "ts"]
    assert list(frame["why"][-2:]) == ["this", "after, same attempt"]
    assert list(Journal(killed_twice).rows([3, 4])["kind"]) == ["step_started", "step_finished"]


def test_fields_of_an_event(killed_twice: Path) -> None:
    found = dict(fields(row(killed_twice, 3)))
    assert found["ts in UTC"] == "2026-01-01 00:01:02.000+00:00"
    assert found["kind"] == "step_started"


@pytest.mark.parametrize("ts", ["'soon'", "1e300", "NULL", "-1e15"])
def test_a_time_that_is_none(ts: str, tamper: Tamper) -> None:
    path = tamper(f"UPDATE events SET ts = {ts} WHERE seq = 3")
    assert dict(fields(row(path, 3)))["ts in UTC"] == "no time"


def test_a_line_for_an_event(killed_twice: Path, answered: Path) -> None:
    assert lines(rows(killed_twice, [2, 8]), with_task=True) == [
        "run_started                    00000001  demo",
        "step_started  1 summarize  #2  00000002  demo",
    ]
    started = seqs(answered, kinds=["step_started"])[0]
    assert lines(rows(answered, [started]))[0].endswith("ann#1")


def test_a_line_is_one_line(tamper: Tamper) -> None:
    path = tamper("UPDATE events SET step = char(27, 10) || printf('%.1000c', 'x') WHERE seq = 4")
    [line] = lines(rows(path, [4]))
    assert line == plain(line)
    assert len(line) < 80


def test_lines_that_are_too_wide_are_cut_in_the_middle(tamper: Tamper) -> None:
    """Their columns stand one below the other, and each still has something of every value."""
    path = tamper(
        "UPDATE events SET run_id = 'worker-of-a-long-name-' || run_id WHERE run_id NOT NULL"
    )
    assert lines(rows(path, [11, 12]), with_task=True, width=48) == [
        "step_recovered  2 wri…fact  #1  worke…0003  demo",
        "run_started                     worke…0003  demo",
    ]
    [first, second] = lines(rows(path, [11, 12]), width=10)
    assert first.split() == ["st…ed", "2", "…ct", "#1", "wo…03"]
    assert second.split() == ["ru…ed", "wo…03"]


def edge_of(path: Path) -> tuple[int, int]:
    found = contents(path)
    return found.first_seq, found.last_seq


LARGEST, LEAST = 2**63 - 1, -(2**63)


@pytest.mark.parametrize(
    ("statements", "seq", "words"),
    [
        (["UPDATE events SET seq = 0 WHERE seq = 1"], 0, "its first seq is 0"),
        (["UPDATE events SET seq = seq - 1000"], -999, "its first seq is -999"),
        ([f"UPDATE events SET seq = {LEAST} WHERE seq = 1"], LEAST, f"its first seq is {LEAST}"),
        (
            [f"UPDATE events SET seq = {LARGEST} WHERE seq = 15"],
            LARGEST,
            f"as far as seq {LARGEST}",
        ),
        (
            ["DELETE FROM events WHERE seq <> 5", f"UPDATE events SET seq = {LARGEST}"],
            LARGEST,
            f"as far as seq {LARGEST}",
        ),
    ],
)
def test_a_seq_that_no_agent_writes_is_counted_listed_drawn_and_told(
    statements: list[str], seq: int, words: str, tamper: Tamper
) -> None:
    path = tamper(*statements)
    journal, found = Journal(path), contents(path)
    assert found.events == len(journal.events()) == len(seqs(path))
    assert seq in seqs(path)
    assert seq in edge_of(path)
    assert words in found.summary
    assert len(found.summary.splitlines()) == 1
    assert contents(path, found) == found
    assert seqs(path, after=found.last_seq) == []
    assert seq in [each.event.seq for each in neighbours(path, seq)]
    for by in ("order", "time"):
        assert timeline(path, "demo", by=by).png()
    assert timeline(path, "demo", until=seq).png()
    assert {each.seq for each in journal.read()} == {*seqs(path)}


def test_an_agent_counts_from_1(killed_twice: Path, every_kind: Path) -> None:
    assert contents(killed_twice).oddity == contents(every_kind).oddity == ""


def test_a_picture_tells_neighbours_with_large_numbers_apart(
    tamper: Tamper, killed_twice: Path
) -> None:
    """A float would take them for one."""
    path = tamper(f"UPDATE events SET seq = seq + {2**54}")
    large, small = corners_of(path), corners_of(killed_twice)
    assert len(large) > 4
    assert [x - large[0] for x in large] == [x - small[0] for x in small]


def corners_of(path: Path) -> list[float]:
    """Where bars begin and end in the picture, from left to right."""
    patches = timeline(path, "demo").axes[0].patches
    return sorted({float(x) for patch in patches for x in patch.get_path().vertices[:, 0]})


# Whether the file is still the same.


def grow(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO events SELECT 16, ts, task_id, run_id, kind, step_idx, data,"
                         " owner, step, attempt FROM events WHERE seq = 15")  # fmt: skip


def test_a_glance_sees_what_was_added(tamper: Tamper) -> None:
    path = tamper()
    first = glance(path)
    assert (first.last_seq, first.is_replaced) == (15, False)
    grow(path)
    second = glance(path, first)
    assert (second.last_seq, second.is_replaced) == (16, False)


def test_a_glance_sees_another_file(tamper: Tamper, left_open: Path, tmp_path: Path) -> None:
    path = tamper()
    before = glance(path)
    copy(str(left_open), str(tmp_path / "other.db"))
    os.replace(tmp_path / "other.db", path)
    assert glance(path, before).is_replaced


def test_a_glance_sees_another_file_with_the_same_events(tamper: Tamper, tmp_path: Path) -> None:
    """As after a reset of a lab's folder: its ids and its clock are always the same."""
    path = tamper()
    before = glance(path)
    copy(str(path), str(tmp_path / "again.db"))
    os.replace(tmp_path / "again.db", path)
    assert glance(path, before).is_replaced


def test_a_glance_sees_another_journal_in_the_same_file(tamper: Tamper) -> None:
    """As after `cp other.db this.db`, with more events than before: the place does not tell."""
    path = tamper()
    before = glance(path)
    grow(path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE events SET run_id = 'other' WHERE seq = 15")
    after = glance(path, before)
    assert after.file == before.file
    assert after.is_replaced


def test_a_glance_at_a_file_that_is_gone(tamper: Tamper) -> None:
    path = tamper()
    path.unlink()
    with pytest.raises(NotFound):
        glance(path)


# Journals in a folder.


def test_journals_are_found_by_their_names_the_newest_first(tmp_path: Path) -> None:
    for second, name in enumerate(("a.db", "deep/er/b.db", "c.txt", "c.db-wal")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (second, second))
    (tmp_path / "gone.db").symlink_to(tmp_path / "nowhere")
    assert find_journals(tmp_path) == ["deep/er/b.db", "a.db", "gone.db"]
    assert find_journals(tmp_path, limit=1) == ["deep/er/b.db"]
    with pytest.raises(NotFound, match="there is no folder"):
        find_journals(tmp_path / "a.db")


# Laws of an event.


def test_the_laws_that_an_event_breaks(tamper: Tamper) -> None:
    path = tamper("UPDATE events SET step_idx = 0 WHERE seq = 8")  # step 0, which had finished
    verdicts = Journal(path).laws()
    of_8 = verdicts.of(8)
    assert 2 in list(of_8["law"])
    assert "step 0 of task demo started again after it had finished" in list(of_8["what"])
    assert verdicts.of(2).empty
    assert len(verdicts.findings()) == sum(len(v.findings) for v in verdicts)


def test_the_findings_where_nothing_is_broken(killed_twice: Path) -> None:
    verdicts = Journal(killed_twice).laws()
    assert verdicts.findings().empty
    assert verdicts.of(8).empty
    assert list(verdicts.of(8).columns) == ["law", "promise", "what", "seqs"]


def test_a_witness_that_cannot_be_read_is_one_line(killed_twice: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"the witness .* cannot be read .*a folder.*; give a"):
        Journal(killed_twice).laws(tmp_path)


# As it stood.


def test_the_timeline_as_it_stood(killed_twice: Path) -> None:
    chart = read_chart(killed_twice, "demo", until=9)
    assert chart.last_seq == 9
    assert chart.endings == [WITHOUT_ENTRY, AT_WORK]  # run 2 has entries later; run 1 has none
    assert chart.status == "running"
    assert [bar.begin_seq for bar in chart.bars] == [3, 5, 8]


def test_it_grows_to_the_whole_event_by_event(killed_twice: Path) -> None:
    whole = read_chart(killed_twice, "demo")
    assert read_chart(killed_twice, "demo", until=15) == whole
    for seq in range(1, 16):
        part = read_chart(killed_twice, "demo", until=seq)
        assert all(bar.end_seq <= seq for bar in part.bars)
        assert len(part.bars) == sum(bar.begin_seq <= seq for bar in whole.bars)


def test_who_was_killed_later_was_at_work_before(killed_twice: Path) -> None:
    def endings(until: int) -> list[str]:
        killed = ["00000001", "00000002"]
        return read_chart(killed_twice, "demo", killed=killed, until=until).endings

    assert endings(4) == [AT_WORK]
    assert endings(5) == [KILLED]
    assert endings(9) == [KILLED, AT_WORK]


def test_an_owner_that_came_back_is_told_apart_by_its_epoch(answered: Path) -> None:
    """Ann dies under epoch 1 and comes back under epoch 3: her lane does not end in between."""
    last = seqs(answered, run="ann#1")[-1]
    assert read_chart(answered, "r1", until=last).endings == [WITHOUT_ENTRY]
    assert read_chart(answered, "r1", until=last - 1).endings == [AT_WORK]


def test_figure_table_and_text_are_of_the_same_moment(killed_twice: Path) -> None:
    figure = timeline(killed_twice, "demo", until=9)
    assert figure.summary == read_chart(killed_twice, "demo", until=9).summary
    assert timeline_table(killed_twice, "demo", until=9).equals(figure.table)
    assert figure.summary.split(":")[0] in timeline_text(killed_twice, "demo", until=9)


def test_before_its_first_event_there_is_no_picture(tamper: Tamper) -> None:
    path = tamper("UPDATE events SET seq = seq + 100 WHERE seq > 0")
    with pytest.raises(UsageError, match="'demo' has no event up to seq 7: it begins with seq 101"):
        timeline(path, "demo", until=7)
    with pytest.raises(UnknownTask, match="no task 'x'"):
        timeline(path, "x", until=7)


def test_steps_around_one(killed_twice: Path) -> None:
    standing = Journal(killed_twice).at(15)
    assert list(standing.near(2, rows=1)["idx"]) == [2]
    assert list(standing.near(None, rows=2)["idx"]) == [0, 1]
    assert list(standing.near(1)["idx"]) == [0, 1, 2]
    assert list(standing.near(10**9, rows=2)["idx"]) == [1, 2]


def test_a_small_picture_is_the_same_one(killed_twice: Path) -> None:
    figure = timeline(killed_twice, "demo")
    assert figure.small_png()[:8] == figure.png()[:8]
    assert len(figure.small_png()) < len(figure.png()) * 0.6
    assert figure.small_png() == timeline(killed_twice, "demo").small_png()


# Questions.

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT "


@pytest.mark.parametrize("what", ["count(*) FROM n", "max(a.i, b.i) FROM n a, n b WHERE a.i = -1"])
def test_an_endless_query_ends_by_its_steps(what: str, killed_twice: Path) -> None:
    bounds = Bounds(steps=2_000_000)
    with pytest.raises(BadInput, match="stopped before its end, after 2 million steps of SQLite"):
        Journal(killed_twice).ask(ENDLESS + what, bounds=bounds)


def test_a_query_within_its_steps_is_not_stopped(
    killed_twice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT "
    answer = Journal(killed_twice).ask(f"{few} count(*) FROM n", bounds=Bounds(steps=5_000_000))
    assert answer.frame.iloc[0, 0] == 100_000
    assert answer.is_whole
    monkeypatch.setattr("labkit.journal.reading.STEP_S", 1)  # so it is the steps that count
    with pytest.raises(BadInput, match="stopped before its end"):
        Journal(killed_twice).ask(f"{few} count(*) FROM n", bounds=Bounds(steps=100_000))


def test_the_first_rows_of_an_endless_answer(killed_twice: Path) -> None:
    answer = Journal(killed_twice).ask(f"{ENDLESS} i FROM n")
    assert (len(answer.frame), answer.is_whole) == (200, False)
    assert Journal(killed_twice).ask("SELECT seq FROM journal").is_whole


def test_exactly_as_many_rows_as_there_may_be(killed_twice: Path) -> None:
    answer = Journal(killed_twice).ask("SELECT seq FROM journal", bounds=Bounds(rows=15))
    assert (len(answer.frame), answer.is_whole) == (15, True)


def test_large_values_end_it_too(killed_twice: Path) -> None:
    ask = Journal(killed_twice).ask
    answer = ask(f"{ENDLESS} printf('%.1000000c', 'x') FROM n")
    assert (len(answer.frame), answer.is_whole) == (21, False)
    with pytest.raises(BadInput, match="too big"):
        ask("SELECT zeroblob(500000000)")


@pytest.mark.parametrize("sql", ["DELETE FROM events", "WITH a AS (SELECT 1) DELETE FROM tasks",
                                 "ATTACH 'x' AS x", "", "SELECT 1; SELECT 2"])  # fmt: skip
def test_what_is_no_single_question_is_refused(sql: str, killed_twice: Path) -> None:
    with pytest.raises(BadInput):
        Journal(killed_twice).ask(sql)


@pytest.mark.parametrize("starter", RESTART, ids=lambda starter: starter.title)
def test_starters_of_the_restart_agent(starter: Starter, tamper: Tamper) -> None:
    error = json.dumps({"error": "no", "permanent": False})
    path = tamper(f"UPDATE events SET kind = 'step_error', data = '{error}' WHERE seq = 4")
    assert not Journal(path).ask(starter.sql).frame.empty


@pytest.mark.parametrize("starter", RUNS, ids=lambda starter: starter.title)
def test_starters_of_durable_runs(starter: Starter, every_kind: Path) -> None:
    assert not Journal(every_kind).ask(starter.sql).frame.empty


def test_five_starters_for_each_system() -> None:
    for is_durable in (False, True):
        found = starters(is_durable=is_durable)
        assert len({starter.title for starter in found}) == len({s.sql for s in found}) == 5
        assert all(starter.title.endswith("?") for starter in found)


def test_what_starters_say_of_a_journal_with_two_kills(killed_twice: Path) -> None:
    started, moved, wrote, _, gave = (Journal(killed_twice).ask(s.sql).frame for s in RESTART)
    assert list(started["started"]) == [1, 2, 2]
    assert list(moved["seq"]) == [6, 11]
    assert list(wrote["events"]) == [4, 5, 5]
    assert list(gave["status"]) == ["done"] * 3


# Damaged files.


def test_a_damaged_file_is_one_line(killed_twice: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    copy(str(killed_twice), str(whole))
    data = whole.read_bytes()
    damaged = tmp_path / "damaged.db"
    asks = (contents, seqs, glance, lambda path: rows(path, [1]), lambda path: row(path, 1))
    for made in (data[: len(data) // 2], data[:100], data[:1024] + b"\xff" * (len(data) - 1024)):
        damaged.write_bytes(made)
        for ask in asks:
            with pytest.raises(StorageFault, match=r"damaged\.db"):
                ask(damaged)
    shutil.copy(__file__, damaged)
    for ask in asks:
        with pytest.raises(StorageFault, match="not a database"):
            ask(damaged)

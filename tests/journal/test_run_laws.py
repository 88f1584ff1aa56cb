"""Each law of the durable run: held by the real runner, and broken by an altered journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.journal import Journal
from labkit.journal.laws import BROKEN, HELD, NOT_JUDGED, Verdict, judge_file
from labkit.journal.reading import read_events, snapshot
from labkit.journal.run_laws import judge_runs
from labkit.journal.run_rows import read_rows
from tests.conftest import run_python
from tests.journal.conftest import Tamper, make_run

LOOK_UP, SEND = "model-1.tool-1", "model-2.tool-1"
ALL_HELD = [HELD] * 10
NONE: tuple[int, ...] = ()
KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


def event(seq: int, kind: str, *, like: int, data: str = "{}") -> str:
    """The statement that adds an event which is otherwise like another one."""
    return f"""INSERT INTO events
        SELECT {seq}, ts, run_id, owner, '{kind}', step_idx, step, attempt, '{data}' FROM events
        WHERE seq = {like}"""


def says(seq: int, name: str, value: str) -> str:
    return f"UPDATE events SET data = json_set(data, '$.{name}', '{value}') WHERE seq = {seq}"


def verdict(path: Path, law: int, **more: object) -> Verdict:
    return judge_file(str(path), **more)[law - 1]  # type: ignore[arg-type]


def witness_of(path: Path) -> list[str]:
    """The keys of what was sent. What was looked up may have been looked up twice."""
    lines = (path.parent / "witness.txt").read_text("utf-8").splitlines()
    return [line.split()[0] for line in lines if line.endswith(" send")]


def test_the_journal_under_test(answered: Path) -> None:
    """The tests below name events by seq; this is what they stand for."""
    rows = Journal(answered).read("r1")
    assert [(e.seq, e.kind, e.owner, e.step, e.attempt) for e in rows] == [
        (1, "task_created", None, None, None),
        (2, "run_started", "ann#1", None, None),
        (3, "step_started", "ann#1", "model-1", 1),
        (4, "step_finished", "ann#1", "model-1", 1),
        (5, "step_started", "ann#1", LOOK_UP, 1),
        (6, "run_started", "bob#2", None, None),
        (7, "step_recovered", "bob#2", LOOK_UP, 1),
        (8, "step_started", "bob#2", LOOK_UP, 2),
        (9, "step_finished", "bob#2", LOOK_UP, 2),
        (10, "step_started", "bob#2", "model-2", 1),
        (11, "step_finished", "bob#2", "model-2", 1),
        (12, "step_started", "bob#2", SEND, 1),
        (13, "run_started", "ann#3", None, None),
        (14, "step_recovered", "ann#3", SEND, 1),
        (15, "run_waiting", "ann#3", SEND, None),
        (16, "run_started", "bob#4", None, None),
        (17, "run_resolved", "bob#4", SEND, None),
        (18, "step_started", "bob#4", SEND, 2),
        (19, "step_finished", "bob#4", SEND, 2),
        (20, "step_started", "bob#4", "model-3", 1),
        (21, "step_finished", "bob#4", "model-3", 1),
        (22, "task_done", "bob#4", None, None),
    ]


def test_the_real_runner_keeps_every_law(answered: Path, every_kind: Path) -> None:
    assert [v.verdict for v in judge_file(str(answered), witness_of(answered))] == ALL_HELD
    assert [v.verdict for v in judge_file(str(every_kind), ["a"])] == ALL_HELD


@pytest.mark.parametrize(
    ("tool", "sealed"), [("look_up", ""), ("send", ""), ("send", KEY)], ids=str
)
def test_a_run_that_was_killed_keeps_every_law(tool: str, sealed: str, tmp_path: Path) -> None:
    """Also where the payloads are encrypted: the laws need none of them."""
    path = make_run(tmp_path, ("go", "ann", tool), SEALED=sealed)
    killed = judge_file(str(path), ["a"])
    assert [v.verdict for v in killed] == [*ALL_HELD[:4], NOT_JUDGED, *ALL_HELD[5:]]
    at, seq = (LOOK_UP, 5) if tool == "look_up" else (SEND, 9)
    assert killed[4].reason.startswith(f"step {at} of run r1 is open (seq {seq}): ")


@pytest.mark.parametrize(
    ("law", "statements", "seqs"),
    [
        (1, ["DELETE FROM runs"], (1,)),
        (1, ["DELETE FROM steps WHERE step_id = 'model-3'"], (21,)),
        (1, ["UPDATE attempts SET output = NULL WHERE attempt_id = 'model-1#1'"], (4,)),
        (1, ["UPDATE steps SET checkpoint_attempt_id = NULL WHERE step_id = 'model-1'"], (4,)),
        (1, [f"UPDATE steps SET checkpoint_attempt_id = '{SEND}#1' WHERE step_id = '{SEND}'"],
         (19,)),
        (1, ["DELETE FROM events WHERE seq = 4"], NONE),
        (2, [event(23, "step_started", like=3)], (4, 23)),
        (3, ["DELETE FROM events WHERE seq = 7"], (5, 8)),
        (3, ["DELETE FROM events WHERE seq = 14"], (12, 15)),
        (3, ["DELETE FROM events WHERE seq = 5"], (7,)),
        (3, ["UPDATE events SET owner = 'bob#2' WHERE seq = 4"], (3, 4)),
        (3, [says(7, "classification", "TRANSIENT")], (7,)),
        (5, ["DELETE FROM events WHERE seq = 4"], (3,)),
        (5, ["DELETE FROM events WHERE seq = 12"], (14,)),
        (5, ["UPDATE events SET attempt = 3 WHERE seq = 8"], (8,)),
        (5, ["UPDATE events SET attempt = 1 WHERE seq = 9"], (9,)),
        (5, ["UPDATE events SET step_idx = 7 WHERE seq = 8"], (8,)),
        (5, ["UPDATE events SET step = 'model-9' WHERE seq = 9"], (9,)),
        (5, ["DELETE FROM events WHERE seq = 1"], (2,)),
        (5, [event(23, "task_created", like=1)], (23,)),
        (5, ["UPDATE events SET run_id = 'other' WHERE seq > 21"], (22,)),
        (6, ["UPDATE runs SET status = 'FAILED'"], NONE),
        (6, ["UPDATE runs SET version = 9"], NONE),
        (6, ["UPDATE runs SET version = 3"], NONE),
        (6, ["UPDATE runs SET lease_epoch = 5"], NONE),
        (6, ["UPDATE runs SET lease_owner = 'bob'"], NONE),
        (6, ["UPDATE runs SET waiting_step_id = 'model-1'"], NONE),
        (6, ["UPDATE runs SET error_code = 'X'"], NONE),
        (6, ["UPDATE runs SET cancel_requested_at = 1"], NONE),
        (6, ["UPDATE runs SET run_id = 'other'"], NONE),
        (6, [f"UPDATE steps SET effect = 'READ_ONLY' WHERE step_id = '{SEND}'"], NONE),
        (6, ["UPDATE steps SET status = 'RUNNING' WHERE step_id = 'model-1'"], NONE),
        (6, ["DELETE FROM steps WHERE step_id = 'model-1'"], NONE),
        (6, ["UPDATE attempts SET classification = 'TRANSIENT' WHERE status = 'FAILED'"], NONE),
        (6, ["DELETE FROM attempts WHERE status = 'FAILED'"], NONE),
        (6, ["UPDATE resolutions SET action = 'RETRY_STEP'"], NONE),
        (6, ["UPDATE resolutions SET actor = 'eve'"], NONE),
        (6, ["DELETE FROM resolutions"], NONE),
        (6, ["DELETE FROM events WHERE seq = 22"], NONE),
        (7, ["UPDATE events SET owner = 'ann#1' WHERE seq = 8"], (6, 8)),
        (7, ["UPDATE events SET owner = NULL WHERE seq = 8"], (8,)),
        (7, ["DELETE FROM events WHERE seq = 6"], (2, 7)),
        (7, ["DELETE FROM events WHERE seq = 6"], (2, 13)),  # an epoch is missing
        (7, ["UPDATE events SET owner = 'bob#3' WHERE seq = 6"], (2, 6)),
        (7, ["UPDATE events SET data = json_set(data, '$.epoch', 7) WHERE seq = 6"], (2, 6)),
        (7, [event(23, "step_started", like=20)], (16, 23)),
        (7, ["DELETE FROM events WHERE seq = 2"], (3,)),
        (8, [says(15, "reason", "TIRED")], (15,)),
        (8, [says(14, "classification", "TRANSIENT")], (15,)),
        (8, ["UPDATE events SET step = 'model-1' WHERE seq = 15"], (15,)),
        (8, [says(15, "reason", "DEFINITION_UNAVAILABLE")], (15,)),
        (8, ["DELETE FROM events WHERE seq = 17"], (15, 18)),
        (8, ["DELETE FROM events WHERE seq IN (16, 17)"], (15, 18)),
        (8, [says(17, "action", "CONTINUE_RUN")], (15, 17)),
        (8, ["UPDATE events SET step = 'model-1' WHERE seq = 17"], (15, 17)),
        (8, [event(23, "run_resolved", like=17)], (23,)),
        (9, [event(23, "task_done", like=22)], (22, 23)),
        (9, ["UPDATE events SET kind = 'task_failed' WHERE seq = 9"], (9, 10)),
        (9, ["UPDATE events SET kind = 'cancel_requested' WHERE seq = 9"], (9, 22)),
        (10, [says(8, "effect", "NON_IDEMPOTENT")], (7, 8)),
        (10, ["UPDATE events SET data = json_remove(data, '$.effect') WHERE seq = 8"], (7, 8)),
        (10, ["DELETE FROM events WHERE seq = 17"], (14, 18)),
        (10, ["UPDATE events SET kind = 'step_error' WHERE seq = 7"], (7, 8)),
        (10, ["UPDATE events SET kind = 'step_error' WHERE seq = 7",
              says(7, "classification", "PERMANENT")], (7, 8)),
        (10, ["UPDATE events SET kind = 'step_started' WHERE seq = 7"], (7,)),
    ],
)  # fmt: skip
def test_a_law_is_broken(
    law: int, statements: list[str], seqs: tuple[int, ...], tamper: Tamper, answered: Path
) -> None:
    found = verdict(tamper(*statements, source=answered), law)
    assert found.verdict == BROKEN
    assert seqs in [finding.seqs for finding in found.findings]


def test_an_unaltered_copy_is_held(tamper: Tamper, answered: Path) -> None:
    """The control of the test above: altering is what breaks, not copying."""
    copied = judge_file(str(tamper(source=answered)), witness_of(answered))
    assert [v.verdict for v in copied] == ALL_HELD


def test_a_repeated_effect_is_what_the_witness_says(answered: Path) -> None:
    keys = witness_of(answered)
    assert keys == [f"r1:{SEND}"]
    found = verdict(answered, 4, witness=keys * 2)
    assert (found.verdict, found.reason) == (BROKEN, f"effect r1:{SEND} happened 2 times")
    assert verdict(answered, 4).verdict == NOT_JUDGED


def test_no_event_can_be_taken_out_unseen(every_kind: Path, answered: Path) -> None:
    """Except a request to cancel that was withdrawn: the run has forgotten it too."""
    unseen = []
    for path in (every_kind, answered):
        with snapshot(str(path)) as reader:
            events, rows = list(read_events(reader)), read_rows(reader)
        for event in events:
            verdicts = judge_runs([each for each in events if each is not event], rows)
            if BROKEN not in {each.verdict for each in verdicts}:
                unseen.append((event.task_id, event.kind))
    assert unseen == [("later", "cancel_requested")]  # a retry withdrew it


def test_one_run_is_judged_alone(tamper: Tamper, every_kind: Path) -> None:
    path = tamper("UPDATE runs SET version = 99 WHERE run_id = 'done'", source=every_kind)
    assert verdict(path, 6).verdict == BROKEN
    assert verdict(path, 6, task="done").verdict == BROKEN
    assert verdict(path, 6, task="failed").verdict == HELD


def test_the_verdicts_as_table_and_text(answered: Path) -> None:
    verdicts = Journal(answered).laws()
    assert list(verdicts.frame().index) == [*range(1, 11)]
    assert repr(verdicts).splitlines()[6] == (
        "7  Only the holder of the lease writes: held (each entry is of the newest epoch)"
    )


def test_the_laws_need_neither_pandas_nor_a_runner(answered: Path, tmp_path: Path) -> None:
    code = """if True:
        import sys
        from labkit.journal import judge_file
        print(len(judge_file(sys.argv[1])))
        print({"pandas", "numpy", "labkit.durable", "labkit.restart"} & set(sys.modules))"""
    done = run_python("-c", code, str(answered), cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, "10\nset()\n", "")

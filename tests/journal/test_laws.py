"""Each law: held by the real agent at all nine crash points, and broken by an altered journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.errors import BadInput
from labkit.journal import Journal
from labkit.journal.laws import BROKEN, HELD, NOT_JUDGED, Verdict, judge_file
from labkit.journal.verdicts import judge_effects
from tests.journal.conftest import Tamper, make_killed

POINTS = [
    f"{point}:{i}" for point in ("before_effect", "after_effect", "after_commit") for i in range(3)
]

START = """INSERT INTO events (seq, ts, task_id, run_id, owner, kind, step_idx, step, attempt, data)
    SELECT {seq}, ts, task_id, run_id, owner, '{kind}', step_idx, step, attempt, '{data}'
    FROM events WHERE seq = {like}"""


def event(seq: int, kind: str, *, like: int, data: str = "{}") -> str:
    """The statement that adds an event which is otherwise like another one."""
    return START.format(seq=seq, kind=kind, like=like, data=data)


def verdict(path: Path, law: int, **more: object) -> Verdict:
    return judge_file(str(path), **more)[law - 1]  # type: ignore[arg-type]


def test_the_journal_under_test(killed_twice: Path) -> None:
    """The tests below name events by seq; this is what they stand for."""
    rows = Journal(killed_twice).read("demo")
    assert [(e.seq, e.kind, e.step_idx) for e in rows] == [
        (1, "task_created", None),
        (2, "run_started", None),
        (3, "step_started", 0),
        (4, "step_finished", 0),
        (5, "step_started", 1),
        (6, "step_recovered", 1),
        (7, "run_started", None),
        (8, "step_started", 1),
        (9, "step_finished", 1),
        (10, "step_started", 2),
        (11, "step_recovered", 2),
        (12, "run_started", None),
        (13, "step_started", 2),
        (14, "step_finished", 2),
        (15, "task_done", None),
    ]


@pytest.mark.parametrize(
    "point",
    # Each point, each step: of the nine, `make test` takes three.
    [
        pytest.param(point, marks=[] if number in (0, 4, 8) else pytest.mark.proof)
        for number, point in enumerate(POINTS)
    ],
)
def test_the_real_agent_keeps_its_promises(point: str, tmp_path: Path) -> None:
    database = make_killed(tmp_path, point)
    killed = judge_file(str(database))
    assert [v.law for v in killed if v.verdict == BROKEN] == []
    assert killed[4].verdict == (HELD if point.startswith("after_commit") else NOT_JUDGED)

    (resumed := tmp_path / "resumed").mkdir()
    database = make_killed(resumed, point, "")
    keys = [path.stem for path in (resumed / "artifacts").glob("*.md")]
    assert [v.verdict for v in judge_file(str(database), keys)] == [HELD] * 6


@pytest.mark.parametrize(
    ("law", "statements", "seqs"),
    [
        (1, ["DELETE FROM steps WHERE idx = 2"], (1,)),
        (1, ["UPDATE steps SET output = NULL WHERE idx = 1"], (9,)),
        (1, ["PRAGMA foreign_keys = OFF", "DELETE FROM tasks"], (1,)),
        (2, [event(16, "step_started", like=3)], (4, 16)),
        (3, ["""UPDATE events SET data = '{"recovered":[]}' WHERE seq = 7"""], (6, 7)),
        (3, ["DELETE FROM events WHERE seq = 6"], (7,)),
        (3, ["DELETE FROM events WHERE seq = 5"], (6,)),
        (3, ["DELETE FROM events WHERE seq = 6",
             """UPDATE events SET data = '{"recovered":[]}' WHERE seq = 7"""], (5, 7)),
        (5, ["DELETE FROM events WHERE seq = 13"], (14,)),
        (5, ["DELETE FROM events WHERE seq = 9"], (8,)),
        (5, ["DELETE FROM events WHERE seq = 11"], (10,)),
        (5, ["DELETE FROM events WHERE seq = 2"], (3,)),
        (5, [event(16, "run_started", like=12)], (12, 16)),
        (5, ["UPDATE events SET step_idx = 7 WHERE seq IN (13, 14)"], (13,)),
        (5, ["UPDATE events SET task_id = 'other' WHERE seq > 11"], (12,)),
        (5, [event(16, "task_done", like=15)], (15, 16)),
        (6, ["UPDATE tasks SET status = 'running'"], ()),
        (6, ["UPDATE steps SET attempts = 1 WHERE idx = 1"], ()),
        (6, ["UPDATE steps SET status = 'pending' WHERE idx = 0"], ()),
        (6, ["UPDATE steps SET tool = 'fetch' WHERE idx = 1"], ()),
        (6, ["DELETE FROM events WHERE seq = 15"], ()),
        (6, ["DELETE FROM events WHERE seq = 1"], ()),
        (6, ["INSERT INTO steps SELECT task_id, 3, tool, input, status, output, attempts "
             "FROM steps WHERE idx = 2"], ()),
    ],
)  # fmt: skip
def test_a_law_is_broken(
    law: int, statements: list[str], seqs: tuple[int, ...], tamper: Tamper
) -> None:
    found = verdict(tamper(*statements), law)
    assert found.verdict == BROKEN
    assert seqs in [finding.seqs for finding in found.findings]
    assert found.reason.startswith(found.findings[0].text)


def test_an_unaltered_copy_is_held(tamper: Tamper) -> None:
    """The control of the test above: altering is what breaks, not copying."""
    assert [v.verdict for v in judge_file(str(tamper()), ["demo-2"])] == [HELD] * 6


def test_a_step_that_is_open_is_not_judged(left_open: Path) -> None:
    found = verdict(left_open, 5)
    assert found.verdict == NOT_JUDGED
    assert "step 1 of task demo is open (seq 5)" in found.reason


@pytest.mark.parametrize(
    ("content", "expected", "reason"),
    [
        ("demo-2 wrote the report\n", HELD, "1 effect, each key once"),
        ("demo-2 a\n\ndemo-1 b\n", HELD, "2 effects, each key once"),
        ("demo-2 a\ndemo-1 b\ndemo-2 a\n", BROKEN, "effect demo-2 happened 2 times"),
        ("", NOT_JUDGED, "the witness saw no effect"),
        (
            "# Report\n\n- First line.\n",
            NOT_JUDGED,
            "no line of effects.txt begins with demo, as the keys of this journal do",
        ),
        (None, NOT_JUDGED, "the witness effects.txt does not exist: it saw no effect"),
    ],
)
def test_effects_need_a_witness(
    content: str | None, expected: str, reason: str, killed_twice: Path, tmp_path: Path
) -> None:
    witness = tmp_path / "effects.txt"
    if content is not None:
        witness.write_text(content, encoding="utf-8")
    found = verdict(killed_twice, 4, witness=witness)
    assert (found.verdict, found.reason) == (expected, reason)


def test_a_witness_may_be_keys(killed_twice: Path) -> None:
    assert verdict(killed_twice, 4, witness=iter(["a", "b"])).verdict == HELD
    assert verdict(killed_twice, 4, witness=["a", "b", "a"]).verdict == BROKEN
    assert verdict(killed_twice, 4).verdict == NOT_JUDGED


def test_one_task_is_judged_alone(tamper: Tamper) -> None:
    path = tamper("UPDATE tasks SET status = 'running'", "INSERT INTO tasks "
        "SELECT 'other', goal, 'pending', created_at, updated_at, plan, 0 FROM tasks")  # fmt: skip
    assert "other" in " ".join(f.text for f in verdict(path, 6).findings)
    alone = verdict(path, 6, task="demo").findings
    assert [f.text for f in alone] == ["task demo is running in its table, done by the journal"]


def test_the_verdicts_as_table_and_text(killed_twice: Path) -> None:
    verdicts = Journal(killed_twice).laws()
    assert verdicts.broken == ()
    frame = verdicts.frame()
    assert list(frame.index) == [1, 2, 3, 4, 5, 6]
    assert frame.loc[4, "verdict"] == NOT_JUDGED
    assert repr(verdicts).splitlines()[4] == (
        "5  The journal balances: held (each step_started is closed once, each run has its entry)"
    )


def test_text_of_a_witness_is_escaped(killed_twice: Path) -> None:
    verdicts = Journal(killed_twice).laws(["<img>", "<img>"])
    html = verdicts._repr_html_()
    assert "&lt;img&gt;" in html
    assert "<img" not in html


def test_a_witness_that_is_too_large_is_one_line(tmp_path: Path) -> None:
    with open(tmp_path / "witness", "wb") as file:
        file.truncate((32 << 20) + 1)
    with pytest.raises(BadInput, match=r"cannot be read \(it has more than 32 MB\); give"):
        judge_effects(str(tmp_path / "witness"))

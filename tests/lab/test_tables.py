"""Tables compared, attempts drawn, and what the checks of notebook 03 say to an odd answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from labkit import lab
from labkit.errors import UsageError
from labkit.lab import checks, content
from labkit.lab.exercises import n03
from labkit.lab.places import originals

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "


@pytest.fixture(scope="module", autouse=True)
def _begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One notebook for all: its two journals are made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_HOME", str(tmp_path_factory.mktemp("home")))
        lab.begin("03")
        yield
        lab.end()


def table(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(columns)


def test_the_order_of_rows_and_columns_and_the_dtypes_do_not_count(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = table(a=[1, 2], b=["x", None])
    second = table(b=[pd.NA, "x"], a=[2.0, 1.0]).astype({"a": "float64"}).set_index("b")
    assert lab.compare(first, second) is first
    assert capsys.readouterr().out == "The two tables agree: 2 rows.\n"


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (table(a=[1]), "Only in the first: a 2.\n"),
        (table(a=[1, 2, 2]), "Only in the second: a 2.\n"),
        (table(a=[1, None]), "Only in the first: a 2.\nOnly in the second: a missing.\n"),
        (table(b=[1, 2]), "Their columns differ: a; and b.\n"),
        (table(a=[[1], [2]]), "Only in the first: a 1.\nOnly in the second: a [1].\n"),
    ],
)
def test_tables_that_differ_are_told_with_a_row(
    second: pd.DataFrame, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.compare(table(a=[1, 2]), second)
    assert capsys.readouterr().out == says


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(UsageError, match="list is no table"):
        lab.compare(table(a=[1]), [1])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="two columns have one name"):
        lab.compare(table(a=[1]), pd.concat([table(a=[1]), table(a=[1])], axis=1))
    with pytest.raises(UsageError, match="attempts"):
        lab.draw_attempts(table(a=[1]))


def test_attempts_are_drawn_by_how_their_own_run_ended_them() -> None:
    shown, _ = journals()
    picture = lab.draw_attempts(shown.attempts())
    assert picture.table.loc["letter 0 fetch"].to_dict() == {
        "finished": 1, "error": 3, "no entry": 0,
    }  # fmt: skip
    assert "notes 1 summarize 1 finished, 1 no entry" in repr(picture)
    assert repr(lab.draw_attempts(shown.attempts("nobody"))) == "0 attempts: ."


def journals() -> list[Any]:
    from labkit.lab.checks import Desk
    from labkit.lab.verbs import current_notebook

    return n03._journals(Desk(content.exercise("03.ex1"), current_notebook().open_folder))


def test_the_first_journal_of_the_checks_is_the_notebooks_own() -> None:
    """Else "right on this notebook's journal" would not be true."""
    file = originals() / content.notebook("03").file
    outputs = [
        "".join(output["text"])
        for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]
        for output in cell.get("outputs", [])
        if output.get("name") == "stdout"
    ]
    typed = re.findall(r"^\$ (.*labkit agent [^&\n]*[^&\s])", "".join(outputs), re.MULTILINE)
    played = [
        " ".join([*(f"{k}={v}" for k, v in start.agent.items()), f"labkit {start.command}"])
        for start in n03.SHOWN
    ]
    assert typed == played


def test_the_journals_are_of_real_kills_and_break_no_law() -> None:
    for journal in journals():
        assert not journal.laws().broken
        assert journal.runs().ended.isna().sum() == 3
        assert not journal.events(
            "notes" if "shown" in journal.path else "memo"
        ).ts.is_monotonic_increasing


@pytest.mark.parametrize("exercise", ["03.ex1", "03.ex3"])
@pytest.mark.parametrize(
    ("query", "verdict", "says"),
    [
        (7, "not judged", "This is a int"),
        (None, "not judged", "NoneType"),
        (print, "not judged", "Give the text of the query"),
        (" ", "not judged", "nothing is not a query"),
        ("SELECT 1; SELECT 2", "not judged", "one statement"),
        ("PRAGMA journal_mode=DELETE", "not judged", "PRAGMA is not a query"),
        ("WITH x AS (SELECT 1) DELETE FROM events", "not judged", "read-only"),
        ("SELECT * FROM journal WHERE kind = ?", "not judged", "binding"),
        ("SELECT 1 AS a, 2 AS a", "not judged", "Its columns are a, a"),
        (f"{ENDLESS} SELECT count(*) FROM n", "not judged", "stopped before its end"),
        ("SELECT NULL AS task_id, NULL AS run_id", "not judged", "Its columns are"),
    ],
)
def test_an_odd_query_gets_a_verdict(
    exercise: str, query: Any, verdict: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "stopped" in says:
        monkeypatch.setattr(checks, "LIMIT_S", 0.3)
    judgement = lab.check(exercise, query)
    assert judgement.verdict == verdict
    assert says in judgement.reason
    assert "cannot read this answer" not in judgement.reason


def test_more_columns_than_asked_do_no_harm() -> None:
    query = """
        SELECT task_id, run_id, kind, max(seq) AS last FROM journal WHERE run_id IS NOT NULL
        GROUP BY task_id, run_id HAVING kind NOT IN ('task_done', 'task_failed')"""
    assert lab.check("03.ex1", query).verdict == "held"


def _loop(events: pd.DataFrame) -> None:
    while True:
        pass


def _empty(events: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(columns=["task_id", "step_idx", "starts", "errors", "recoveries"])


def _missing(events: pd.DataFrame) -> pd.DataFrame:
    return _empty(events).reindex([0, 1]).assign(task_id="notes", step_idx=1)


def _lists(events: pd.DataFrame) -> pd.DataFrame:
    return _missing(events).assign(starts=[[2], "2"])


def _texts(events: pd.DataFrame) -> pd.DataFrame:
    """A text and a number that look alike must be told apart in the message."""
    return (
        _empty(events)
        .reindex([0])
        .assign(task_id="notes", step_idx="0", starts=1, errors=0, recoveries=0)
    )


@pytest.mark.parametrize(
    ("answer", "verdict", "says"),
    [
        ("SELECT 1", "not judged", "is no function"),
        (pd.DataFrame(), "not judged", "is no function"),
        (lambda events: None, "not judged", "returns nothing"),
        (lambda events: events.assign(), "not judged", "Its columns are seq"),
        (lambda events: [("notes", 1, 2, 0, 1)], "not judged", "returns a list"),
        (_empty, "broken", "It gives no row."),
        (_missing, "broken", "starts is missing, not 2"),
        (_lists, "broken", "starts is [2], not 2"),
        (_texts, "broken", "task_id notes, step_idx '0', starts 1"),
        (_loop, "not judged", "had not ended"),
    ],
)
def test_an_odd_function_gets_a_verdict(
    answer: Any, verdict: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer is _loop:
        monkeypatch.setattr(checks, "LIMIT_S", 0.3)
    judgement = lab.check("03.ex2", answer)
    assert judgement.verdict == verdict
    assert says in judgement.reason


def test_the_journals_are_made_again_where_they_were_deleted() -> None:
    for path in [Path(journal.path) for journal in journals()]:
        path.rename(path.with_name("gone.db"))
    assert all(Path(journal.path).exists() for journal in journals())


def test_a_timeline_says_killed_of_its_own_tasks_runs_only(tmp_path: Path) -> None:
    """The lab gives runs of two tasks one id, and only one of the two was killed."""
    lab.run("agent create notes plan.json")
    lab.run("agent run notes", AGENT_CRASH_AT="after_effect:0", LABKIT_CLOCK="7")
    assert lab.journal().sql("SELECT max(ts) AS ts FROM journal WHERE run_id > ''").ts[0] < 60
    lab.run("agent create letter plan.json")
    agent = lab.start("agent run letter", AGENT_MAX_ATTEMPTS="1", AGENT_CRASH_AT="after_commit:2")
    agent.finish()
    lab.run("agent run letter")
    assert "1 killed" in repr(lab.timeline("notes"))
    lab.run("agent create memo plan.json")
    lab.run("agent run memo")
    assert "killed" not in repr(lab.timeline("memo"))
    assert lab.run("journal copy state.db mail.db").code == 0

"""JSON Lines: what comes back is what went out."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.errors import BadInput, NotFound
from labkit.journal import Journal

texts = st.text(st.characters(exclude_categories=["Cs"]))  # no lone surrogates
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=8,
)


def test_a_journal_comes_back(killed_twice: Path, tmp_path: Path) -> None:
    journal = Journal(killed_twice)
    journal.to_jsonl(tmp_path / "j.jsonl")
    back = Journal.from_jsonl(tmp_path / "j.jsonl", tmp_path / "back.db")
    assert back.events().equals(journal.events())
    assert back.steps().equals(journal.steps())
    assert back.laws(["demo-2"]) == journal.laws(["demo-2"])
    back.to_jsonl(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "j.jsonl").read_bytes()


def test_each_line_names_its_table_and_shows_values(killed_twice: Path, tmp_path: Path) -> None:
    Journal(killed_twice).to_jsonl(tmp_path / "j.jsonl")
    lines = (tmp_path / "j.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["table"] for row in rows] == ["tasks"] + ["steps"] * 3 + ["events"] * 15
    assert rows[4]["data"] == {"steps": 3}
    assert rows[3]["output"]["deduplicated"] is True


# A busy machine is no fault of the strategy.
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(texts, json_values))
def test_any_data_comes_back(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, object]
) -> None:
    folder = tmp_path_factory.mktemp("data")
    row = {
        "table": "events", "seq": 1, "ts": 0.1, "task_id": "t", "run_id": None,
        "kind": "k", "step_idx": None, "data": data, "owner": None, "step": None, "attempt": None,
    }  # fmt: skip
    (folder / "in.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    journal = Journal.from_jsonl(folder / "in.jsonl", folder / "x.db")
    journal.to_jsonl(folder / "out.jsonl")
    line = (folder / "out.jsonl").read_text("utf-8")
    assert json.loads(line) == row
    assert line.count("\n") == 1


def test_nothing_is_overwritten(killed_twice: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(BadInput, match="taken exists"):
        Journal(killed_twice).to_jsonl(taken)
    with pytest.raises(BadInput, match="taken exists"):
        Journal.from_jsonl(taken, taken)
    assert taken.read_text() == "mine"


GOOD = '{"table":"events","seq":1,"ts":1.0,"task_id":"t","kind":"k","data":{}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "line 1 is not JSON"),
        (b"[1]", "line 1: no row of a journal, it names no table"),
        (b'{"table":"sqlite_schema","name":"x"}', "line 1: no row of a journal, by its names"),
        (b'{"table":"events","seq":1,"ts) VALUES (1); --":1}', "by its names"),
        (GOOD.encode() * 2, "line 1 is not JSON"),
        (f"{GOOD}\n{GOOD}\n".encode(), "line 2: no row of a journal: the journal is append-only"),
        (b'{"table":"tasks","id":"t"}', "line 1: no row of a journal: NOT NULL"),
        (b"\xff", "is not UTF-8"),
        (b'{"table":["events"]}', "line 1: no row of a journal, by its names"),
        (b'{"table":"events"}', "line 1: no row of a journal, by its names"),
        (GOOD.replace("1.0", "1" + "0" * 30).encode(), "line 1: no row of a journal: "),
        (GOOD.replace('"t"', "[1]").encode(), "line 1: no row of a journal: "),
        (GOOD.replace('"t"', r'"\ud800"').encode(), "line 1: no row of a journal: "),
        (GOOD.replace("1.0", "NaN").encode(), "line 1 is not JSON: NaN is no number"),
        (b"[" * 100_000, "line 1 is not JSON"),
    ],
)
def test_what_is_no_journal_makes_no_database(text: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(text)
    with pytest.raises(BadInput) as refused:
        Journal.from_jsonl(tmp_path / "in.jsonl", tmp_path / "x.db")
    assert message in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_missing_export_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nope\.jsonl"):
        Journal.from_jsonl(tmp_path / "nope.jsonl", tmp_path / "x.db")
    assert list(tmp_path.iterdir()) == []


def test_an_import_can_be_written_by_the_agent_again(killed_twice: Path, tmp_path: Path) -> None:
    """It has the agent's own schema, the three triggers included."""
    Journal(killed_twice).to_jsonl(tmp_path / "j.jsonl")
    Journal.from_jsonl(tmp_path / "j.jsonl", tmp_path / "x.db")
    with sqlite3.connect(tmp_path / "x.db") as database, pytest.raises(sqlite3.IntegrityError):
        database.execute("DELETE FROM events")
    database.close()

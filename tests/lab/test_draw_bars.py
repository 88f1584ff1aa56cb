"""The small timeline of rows that a learner found."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from labkit import lab
from labkit.errors import UsageError

COLUMNS = ["run_id", "step_idx", "begin_seq", "end_seq"]


def frame(*rows: tuple[object, ...]) -> pd.DataFrame:
    types = {"run_id": "string", "step_idx": "Int64", "begin_seq": "Int64", "end_seq": "Int64"}
    return pd.DataFrame(rows, columns=COLUMNS).astype(types)


def test_each_run_has_a_lane_and_each_row_a_bar() -> None:
    rows = frame(("aaaaaaa1", 0, 3, 4), ("aaaaaaa1", 1, 5, None), ("bbbbbbb2", 1, 8, 9))
    picture = lab.draw_bars(rows)
    assert repr(picture) == (
        "Bars of 3 attempts in 2 lanes; run aaaaaaa1: step 0 from 3 to 4, "
        "step 1 from 5 without an end; run bbbbbbb2: step 1 from 8 to 9."
    )
    assert picture.table.equals(rows)
    bars: list[Any] = list(picture.axes[0].patches)
    assert [(bar.get_x(), bar.get_width()) for bar in bars] == [(3, 1), (5, 0.5), (8, 1)]
    assert [bar.get_hatch() for bar in bars] == ["", "//", ""]
    names = [label.get_text() for label in picture.axes[0].get_yticklabels()]
    assert names == ["run aaaaaaa1", "run bbbbbbb2"]


def test_no_rows_are_no_bars() -> None:
    assert repr(lab.draw_bars(frame())) == "Bars of 0 attempts in 0 lanes."


@pytest.mark.parametrize("rows", [frame().drop(columns="end_seq"), None, [1]])
def test_what_is_no_table_of_bars_is_refused_in_one_line(rows: pd.DataFrame) -> None:
    with pytest.raises(UsageError, match=r"give a table; it lacks .*end_seq"):
        lab.draw_bars(rows)

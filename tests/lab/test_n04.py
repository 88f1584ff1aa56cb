"""Exercises of notebook 04: a table of bars, however it is built."""

from __future__ import annotations

import pandas as pd
import pytest

from labkit.lab.exercises import n04

TABLE = pd.DataFrame([["aaaaaaa1", 0, 1, 3, 4]], columns=list(n04.COLUMNS))


@pytest.mark.parametrize(
    "table",
    [
        TABLE,
        TABLE.set_index(["run_id", "step_idx", "attempt"]),
        TABLE.set_index("run_id", drop=False),
        TABLE.rename_axis("bar"),
        TABLE.assign(more=1)[[*reversed(TABLE.columns)]],
    ],
)
def test_a_column_may_be_in_the_index(table: pd.DataFrame) -> None:
    frame = n04._as_frame(table)
    assert isinstance(frame, pd.DataFrame)
    assert frame.to_numpy().tolist() == TABLE.to_numpy().tolist()

"""The tables of the durable run as a journal needs them: plain SQL, and no payload, so that it is
the same for a store that is encrypted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from labkit.journal.reading import Reader

__all__ = ["AttemptRow", "ResolutionRow", "RunRow", "RunRows", "RunStepRow", "read_rows"]


class RunRow(NamedTuple):
    run_id: str
    status: str
    version: int
    waiting_reason: str | None
    waiting_step_id: str | None
    error_code: str | None
    lease_owner: str | None
    lease_epoch: int
    cancel_requested: bool


class RunStepRow(NamedTuple):
    """`name` and `effect` are the tool's; `checkpoint` is the id of the attempt that is the step's
    result.
    """

    run_id: str
    idx: int
    step_id: str
    type: str
    name: str | None
    effect: str | None
    status: str
    checkpoint: str | None
    error_code: str | None


class AttemptRow(NamedTuple):
    run_id: str
    step_id: str
    number: int
    attempt_id: str
    status: str
    classification: str | None
    error_code: str | None
    has_output: bool


class ResolutionRow(NamedTuple):
    run_id: str
    action: str
    step_id: str | None
    actor: str | None


class RunRows(NamedTuple):
    runs: list[RunRow]
    steps: list[RunStepRow]
    attempts: list[AttemptRow]
    resolutions: list[ResolutionRow]


def read_rows(reader: Reader, run: str | None = None) -> RunRows:
    """All four tables, or the rows of one run. Raises StorageFault for tables of another kind."""
    where, values = ("TRUE", ()) if run is None else ("run_id = ?", (run,))

    def rows(columns: str, table: str, order: str) -> list[tuple[Any, ...]]:
        sql = f"SELECT {columns} FROM {table} WHERE {where} ORDER BY {order}"
        return list(reader.tuples(sql, values)) if reader.has_journal else []

    return RunRows(
        [RunRow._make((*row[:8], bool(row[8]))) for row in rows(_RUN, "runs", "seq")],
        [RunStepRow(*row) for row in rows(_STEP, "steps", "run_id, idx")],
        [
            AttemptRow._make((*row[:7], bool(row[7])))
            for row in rows(_ATTEMPT, "attempts", "run_id, step_id, number")
        ],
        [
            ResolutionRow(*row)
            for row in rows("run_id, action, step_id, actor", "resolutions", "run_id, version")
        ],
    )


_RUN = """run_id, status, version, waiting_reason, waiting_step_id, error_code, lease_owner,
    lease_epoch, cancel_requested_at IS NOT NULL"""
_STEP = "run_id, idx, step_id, step_type, name, effect, status, checkpoint_attempt_id, error_code"
_ATTEMPT = """run_id, step_id, number, attempt_id, status, classification, error_code,
    output IS NOT NULL"""

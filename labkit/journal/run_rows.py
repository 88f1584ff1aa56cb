"""The tables of the durable run as a journal needs them: plain SQL, and no payload but one.

That one is the frozen snapshot, and only where a tool was tried more than once: it says whether the
tool may be repeated. Where the store is encrypted this stays unknown here.
"""

from __future__ import annotations

import json
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
    """`name` is the tool's; `checkpoint` the id of the attempt that is the step's result."""

    run_id: str
    idx: int
    step_id: str
    type: str
    name: str | None
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
    """`effects`: by run and tool, of the tools that were tried more than once in a step; None for
    a declaration that is sealed.
    """

    runs: list[RunRow]
    steps: list[RunStepRow]
    attempts: list[AttemptRow]
    resolutions: list[ResolutionRow]
    effects: dict[tuple[str, str], str | None]


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
        _effects(rows("run_id, name, " + _SNAPSHOT, f"({_REPEATED}) AS tried", "run_id, name")),
    )


def _effects(rows: list[tuple[Any, ...]]) -> dict[tuple[str, str], str | None]:
    return {(run_id, name): _effect(name, snapshot) for run_id, name, snapshot in rows}


def _effect(tool: str, snapshot: object) -> str | None:
    """A tool that is not declared exactly once may not be repeated."""
    try:
        text = bytes(snapshot).removeprefix(_PLAINTEXT)  # type: ignore[call-overload]
        declared = json.loads(json.loads(text))["tool_declarations"]
        effects = [each["effect"] for each in declared if each["name"] == tool]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return str(effects[0]) if len(effects) == 1 else "NON_IDEMPOTENT"


_RUN = """run_id, status, version, waiting_reason, waiting_step_id, error_code, lease_owner,
    lease_epoch, cancel_requested_at IS NOT NULL"""
_STEP = "run_id, idx, step_id, step_type, name, status, checkpoint_attempt_id, error_code"
_ATTEMPT = """run_id, step_id, number, attempt_id, status, classification, error_code,
    output IS NOT NULL"""
_SNAPSHOT = "(SELECT snapshot FROM runs r WHERE r.run_id = tried.run_id)"
_REPEATED = """SELECT DISTINCT run_id, name FROM steps s WHERE name IS NOT NULL AND EXISTS
    (SELECT 1 FROM attempts a WHERE a.run_id = s.run_id AND a.step_id = s.step_id AND number > 1)"""
_PLAINTEXT = b"plaintext:"  # what the store's codec for development begins with

"""Five questions to begin with, for each system: in words, and the query that answers each."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["RESTART", "RUNS", "Starter", "starters"]


class Starter(NamedTuple):
    title: str
    sql: str


RESTART = (
    Starter(
        "How often was each step started?",
        """\
SELECT task_id, step_idx, step, count(*) AS started
FROM journal WHERE kind = 'step_started'
GROUP BY task_id, step_idx, step ORDER BY task_id, step_idx""",
    ),
    Starter(
        "Which attempts did another run have to move back?",
        """\
SELECT seq, task_id, step_idx, step, attempt, run_id AS moved_back_by
FROM journal WHERE kind = 'step_recovered' ORDER BY seq""",
    ),
    Starter(
        "From where to where did each run write?",
        """\
SELECT task_id, run_id, min(seq) AS first, max(seq) AS last, count(*) AS events
FROM journal WHERE run_id IS NOT NULL
GROUP BY task_id, run_id ORDER BY first""",
    ),
    Starter(
        "Which attempts ended in an error, and in which?",
        """\
SELECT seq, task_id, step_idx, step, attempt, data ->> '$.error' AS error
FROM journal WHERE kind = 'step_error' ORDER BY seq""",
    ),
    Starter(
        "What did each step return?",
        """\
SELECT task_id, idx, tool, status, attempts, substr(output, 1, 60) AS output
FROM steps ORDER BY task_id, idx""",
    ),
)

RUNS = (
    Starter(
        "How does each run stand, and for what does it wait?",
        """\
SELECT run_id, status, waiting_reason, waiting_step_id, error_code, lease_epoch
FROM runs ORDER BY seq""",
    ),
    Starter(
        "Which checkpoint does each step have?",
        """\
SELECT run_id, idx, step_id, step_type, name, effect, status, checkpoint_attempt_id
FROM steps ORDER BY run_id, idx""",
    ),
    Starter(
        "How did each attempt end?",
        """\
SELECT run_id, step_id, number, status, classification, error_code
FROM attempts ORDER BY run_id, step_id, number""",
    ),
    Starter(
        "Under which epochs did each owner write?",
        """\
SELECT task_id, owner, min(seq) AS first, max(seq) AS last, count(*) AS events
FROM journal WHERE owner IS NOT NULL
GROUP BY task_id, owner ORDER BY first""",
    ),
    Starter(
        "What did the application answer, and who?",
        """\
SELECT run_id, version, action, step_id, actor
FROM resolutions ORDER BY run_id, version""",
    ),
)


def starters(*, is_durable: bool) -> tuple[Starter, ...]:
    """Those for durable runs, or for the restart agent."""
    return RUNS if is_durable else RESTART

"""The database of the restart agent: every SQL statement that changes a task, each beside its verb.

The data model. A *task* has a goal and a fixed list of *steps*; a step is the checkpoint boundary. Each process that works on
a task is one *run*: it raises the task's `fence`, and every later write of that run requires the fence to be its own, so
that of two processes at most one can write. *Events* are the journal: append-only, and in the same transaction as the change that they record.

The life of a step: pending -> running (committed before the tool) -> done (committed after it). A kill leaves it running; the
next run moves it back to pending and says so. The one surprise: a step's tool may run twice, so its effect needs a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from labkit import clock
from labkit.database import Database, Schema
from labkit.errors import TakenOver
from labkit.jsonvalues import from_json, to_json

__all__ = [
    "SCHEMA",
    "Outputs",
    "Step",
    "Store",
    "Task",
    "create_task",
    "explain_failure",
    "find_task",
    "list_steps",
    "read_journal",
    "same_plan",
]

SCHEMA = Schema(
    application_id=0x6C6B7231,  # "lkr1"
    version=1,
    script="""
CREATE TABLE IF NOT EXISTS tasks (
    id TEXT PRIMARY KEY, goal TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending',  -- created, retried or interrupted
                          'running',  -- a run has begun: at work, or killed
                          'done', 'failed')),
    created_at REAL NOT NULL, updated_at REAL NOT NULL,  -- Unix seconds
    fence INTEGER NOT NULL DEFAULT 0                     -- the ordinal of the last run
);
CREATE TABLE IF NOT EXISTS steps (
    task_id TEXT NOT NULL REFERENCES tasks (id), idx INTEGER NOT NULL,
    tool TEXT NOT NULL, input TEXT NOT NULL,  -- JSON
    status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'running', 'done', 'failed')),
    output TEXT,                              -- JSON, from the transaction that makes the step done
    attempts INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (task_id, idx)
);
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY CHECK (seq > 0),  -- the order of things; ts may jump back with the clock
    ts REAL NOT NULL, task_id TEXT NOT NULL, run_id TEXT, kind TEXT NOT NULL, step_idx INTEGER,
    data TEXT NOT NULL DEFAULT '{}',          -- JSON
    owner TEXT, step TEXT, attempt INTEGER
);
CREATE TRIGGER IF NOT EXISTS events_keep_update BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER IF NOT EXISTS events_keep_delete BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER IF NOT EXISTS events_keep_replace BEFORE INSERT ON events  -- INSERT OR REPLACE passes the other two
    WHEN EXISTS (SELECT 1 FROM events WHERE seq = NEW.seq)
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE VIEW IF NOT EXISTS journal AS
    SELECT seq, ts, task_id, run_id, owner, kind, step_idx, step, attempt, data FROM events;
""",
)


class Task(NamedTuple):
    id: str
    goal: str
    status: str
    fence: int


class Step(NamedTuple):
    idx: int
    tool: str
    status: str
    attempts: int
    input: Any


def find_task(database: Database, task_id: str) -> Task | None:
    row = next(
        database.rows("SELECT id, goal, status, fence FROM tasks WHERE id = ?", (task_id,)), None
    )
    return Task(*row) if row else None


def list_steps(database: Database, task_id: str) -> list[Step]:
    rows = database.rows(
        "SELECT idx, tool, status, attempts, input FROM steps WHERE task_id = ? ORDER BY idx",
        (task_id,),
    )
    return [Step(*row[:4], from_json(row[4])) for row in rows]


def read_journal(database: Database, task_id: str) -> Iterator[dict[str, Any]]:
    for *row, data in database.rows(
        "SELECT seq, ts, run_id, kind, step_idx, data FROM events WHERE task_id = ? ORDER BY seq",
        (task_id,),
    ):
        yield dict(zip(("seq", "ts", "run", "kind", "step"), row, strict=True)) | from_json(data)


def explain_failure(database: Database, task_id: str) -> str:
    """Why the task failed, from its journal, and what to do."""
    idx, tool, attempt, data = next(database.rows("""SELECT step_idx, step, attempt, data FROM events
        WHERE task_id = ? AND kind = 'task_failed' ORDER BY seq DESC LIMIT 1""", (task_id,)))  # fmt: skip
    error = database.value("""SELECT data FROM events
        WHERE task_id = ? AND kind = 'step_error' AND step_idx = ? ORDER BY seq DESC LIMIT 1""", (task_id, idx))  # fmt: skip
    where, data = f"task {task_id} failed at step {idx} ({tool})", from_json(data)
    if data["outcome"] == "unknown":
        return f"{where}: attempt {attempt}, the last allowed, was cut off, so its outcome is unknown and its effect may exist; look, then `run --retry {task_id}`"
    why = (
        "no other attempt can help"
        if data["reason"] == "permanent"
        else f"{attempt} attempts were used up"
    )
    return f"{where}: {why}: {from_json(error)['error'] if error else ''}; mend the cause, then `run --retry {task_id}`"


def same_plan(database: Database, task: Task, plan: Mapping[str, Any]) -> bool:
    steps = [{"tool": step.tool, "input": step.input} for step in list_steps(database, task.id)]
    return bool(_canonical({"goal": task.goal, "steps": steps}) == _canonical(plan))


def create_task(database: Database, task_id: str, plan: Mapping[str, Any], ts: float) -> bool:
    """Stores the task with its whole plan in one transaction. False, and nothing written, if the task exists."""
    with database.transaction():
        if find_task(database, task_id):
            return False
        database.execute(
            "INSERT INTO tasks (id, goal, created_at, updated_at) VALUES (?, ?, ?, ?)",
            (task_id, plan["goal"], ts, ts),
        )
        for idx, step in enumerate(plan["steps"]):
            database.execute(
                "INSERT INTO steps (task_id, idx, tool, input) VALUES (?, ?, ?, ?)",
                (task_id, idx, step["tool"], to_json(step["input"])),
            )
        _append(database, ts, task_id, "task_created", {"steps": len(plan["steps"])})
    database.check_file()
    return True


class Store:
    """What one run may write. Every verb is one transaction, and raises TakenOver once another run has begun."""

    def __init__(self, database: Database, task_id: str) -> None:
        self.database, self.task_id, self.run_id = database, task_id, ""
        self._fence, self._now, self._run_ids = 0, clock.clock(), clock.run_ids()

    def begin_run(self, *, retry: bool) -> bool:
        """Raises the fence, moves back what a killed run left, and says so. False, and nothing written, if the task has ended."""
        with self.database.transaction():
            task = find_task(self.database, self.task_id)
            if not task or task.status == "done" or (task.status == "failed" and not retry):
                return False
            self._fence = task.fence + 1
            self.run_id = self._run_ids(self._fence)
            self.database.execute(
                "UPDATE tasks SET fence = ? WHERE id = ?", (self._fence, self.task_id)
            )
            recovered = [
                step.idx for step in self._move_back("running", "step_recovered", "attempts")
            ]
            if task.status == "failed":
                self._move_back("failed", "task_retried", "0")
            self._set_task("running")
            self._append("run_started", {"recovered": recovered})
        return True

    def next_step(self, after: int) -> Step | None:
        """The first pending step from index `after` on: the search does not pass over the steps that are done."""
        row = next(self.database.rows("""SELECT idx, tool, status, attempts, input FROM steps
            WHERE task_id = ? AND idx >= ? AND status = 'pending' ORDER BY idx LIMIT 1""", (self.task_id, after)), None)  # fmt: skip
        return Step(*row[:4], from_json(row[4])) if row else None

    def start_step(self, step: Step) -> Step:
        """pending -> running. The attempt counts before the effect, so that a step which kills its process cannot loop forever."""
        started = step._replace(status="running", attempts=step.attempts + 1)
        with self._change(step, started):
            self._append("step_started", {"tool": step.tool, "attempt": started.attempts}, started)
        return started

    def finish_step(self, step: Step, output: str) -> None:
        """running -> done, with the output as JSON: after this commit the step is never run again."""
        with self._change(step, step._replace(status="done"), output):
            self._append("step_finished", {"tool": step.tool}, step)

    def fail_step(
        self, step: Step, error: str, *, permanent: bool, last: bool, interrupted: bool = False
    ) -> None:
        """running -> pending, or failed together with its task when another attempt is not allowed."""
        failed = not interrupted and (permanent or last)
        with self._change(step, step._replace(status="failed" if failed else "pending")):
            self._append(
                "step_error",
                {"error": error, "permanent": permanent, "interrupted": interrupted},
                step,
            )
            if failed:
                self._end(
                    "failed",
                    {"reason": "permanent" if permanent else "max_attempts", "outcome": "failed"},
                    step,
                )
            elif interrupted:
                self._set_task("pending")

    def give_up(self, step: Step, outcome: str) -> None:
        """pending -> failed: every attempt was used, the last one perhaps with an effect that nobody recorded."""
        with self._change(step, step._replace(status="failed")):
            self._end("failed", {"reason": "max_attempts", "outcome": outcome}, step)

    def finish_task(self) -> None:
        with self.database.transaction():
            self._require_fence()
            self._end("done", {})
        self.database.check_file()

    def last_event(self, step: Step) -> dict[str, Any]:
        """The kind and the data of the step's newest event."""
        rows = self.database.rows(
            "SELECT kind, data FROM events WHERE task_id = ? AND step_idx = ? ORDER BY seq DESC LIMIT 1",
            (self.task_id, step.idx),
        )
        kind, data = next(rows)
        return {"kind": kind, **from_json(data)}

    @contextmanager
    def _change(self, old: Step, new: Step, output: str | None = None) -> Iterator[None]:
        with self.database.transaction():
            changed = self.database.execute("""UPDATE steps SET status = ?, attempts = ?, output = ? WHERE task_id = ? AND idx = ? AND status = ?
                AND (SELECT fence FROM tasks WHERE id = task_id) = ?""",
                (new.status, new.attempts, output, self.task_id, new.idx, old.status, self._fence))  # fmt: skip
            if not changed.rowcount:
                self._taken_over()
            yield

    def _move_back(self, status: str, kind: str, attempts: str) -> list[Step]:
        steps = [step for step in list_steps(self.database, self.task_id) if step.status == status]
        for step in steps:
            self.database.execute(
                f"UPDATE steps SET status = 'pending', attempts = {attempts} WHERE task_id = ? AND idx = ?",
                (self.task_id, step.idx),
            )
            self._append(kind, {}, step)
        return steps

    def _end(self, status: str, data: dict[str, Any], step: Step | None = None) -> None:
        self._set_task(status)
        self._append(f"task_{status}", data, step)

    def _set_task(self, status: str) -> None:
        self.database.execute(
            "UPDATE tasks SET status = ?, updated_at = ? WHERE id = ?",
            (status, self._now(), self.task_id),
        )

    def _require_fence(self) -> None:
        if (
            self.database.value("SELECT fence FROM tasks WHERE id = ?", (self.task_id,))
            != self._fence
        ):
            self._taken_over()

    def _taken_over(self) -> None:
        raise TakenOver(
            f"task {self.task_id} was taken over by another run; this one stops, its step will be recovered there"
        )

    def _append(self, kind: str, data: dict[str, Any], step: Step | None = None) -> None:
        _append(self.database, self._now(), self.task_id, kind, data, self.run_id, step)


class Outputs(Mapping[int, Any]):
    """The committed outputs of a task's earlier steps, by index, each read from the database when asked for."""

    def __init__(self, database: Database, task_id: str) -> None:
        self._database, self._task_id = database, task_id

    def __getitem__(self, idx: int) -> Any:
        text = self._database.value(
            "SELECT output FROM steps WHERE task_id = ? AND idx = ? AND status = 'done'",
            (self._task_id, idx),
        )
        if text is None:
            raise KeyError(idx)
        return from_json(text)

    def __iter__(self) -> Iterator[int]:
        return (
            row[0]
            for row in self._database.rows(
                "SELECT idx FROM steps WHERE task_id = ? AND status = 'done' ORDER BY idx",
                (self._task_id,),
            )
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _append(
    database: Database,
    ts: float,
    task_id: str,
    kind: str,
    data: dict[str, Any],
    run_id: str | None = None,
    step: Step | None = None,
) -> None:
    idx, tool, attempt = (step.idx, step.tool, step.attempts) if step else (None, None, None)
    database.execute("""INSERT INTO events (ts, task_id, run_id, kind, step_idx, data, owner, step, attempt)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""", (ts, task_id, run_id, kind, idx, to_json(data), run_id, tool, attempt))  # fmt: skip


def _canonical(plan: Mapping[str, Any]) -> str:
    import json

    return json.dumps(plan, sort_keys=True)  # as text, since 1 == 1.0 == True in Python

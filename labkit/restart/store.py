"""The database of the restart agent: every statement that reads or changes a task, in its verb.

A *task* is a goal and a fixed list of *steps*; a step is the checkpoint boundary: pending -> running
(committed before its tool) -> done (committed after it). A kill leaves it running; the next run moves
it back and says so, hence a tool may run twice. A *run* is one process's pass over a task: it raises
the `fence`, and its later writes require that number, so that of two processes at most one can write.
*Events* are the journal: append-only, each in one transaction with the change that it records.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from labkit.clock import clock, run_ids
from labkit.database import Database, Row, Schema
from labkit.errors import BadInput, Interrupted, PermanentError, TakenOver, TaskFailed, describe
from labkit.jsonvalues import to_json

_STATUS = "status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'done', 'failed'))"
_REFUSE = "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"
SCHEMA: Schema = (0x6C6B7231, 1, (  # "lkr1"; times are Unix seconds; input, output, data are JSON
    f"""CREATE TABLE tasks (id TEXT PRIMARY KEY, goal TEXT NOT NULL, {_STATUS},
        created_at REAL NOT NULL, updated_at REAL NOT NULL, plan TEXT NOT NULL,
        fence INTEGER NOT NULL)  -- the ordinal of the newest run""",
    f"""CREATE TABLE steps (task_id TEXT NOT NULL REFERENCES tasks, idx INTEGER NOT NULL,
        tool TEXT NOT NULL, input TEXT NOT NULL, {_STATUS}, output TEXT,
        attempts INTEGER NOT NULL, PRIMARY KEY (task_id, idx))""",
    """CREATE TABLE events (seq INTEGER PRIMARY KEY CHECK (seq > 0),  -- the order; ts may jump back
        ts REAL NOT NULL, task_id TEXT NOT NULL, run_id TEXT, kind TEXT NOT NULL, step_idx INTEGER,
        data TEXT NOT NULL, owner TEXT, step TEXT, attempt INTEGER)""",
    f"CREATE TRIGGER keep_1 BEFORE UPDATE ON events {_REFUSE}",
    f"CREATE TRIGGER keep_2 BEFORE DELETE ON events {_REFUSE}",
    f"""CREATE TRIGGER keep_3 BEFORE INSERT ON events  -- INSERT OR REPLACE passes the other two
        WHEN EXISTS (SELECT 1 FROM events WHERE seq = NEW.seq) {_REFUSE}""",
    """CREATE VIEW journal AS
        SELECT seq, ts, task_id, run_id, owner, kind, step_idx, step, attempt, data FROM events""",
))  # fmt: skip


def find_task(db: Database, task_id: str) -> Row | None:
    return next(db.rows("SELECT * FROM tasks WHERE id = ?", task_id), None)


def list_steps(db: Database, task_id: str) -> list[Row]:
    sql = "SELECT idx, tool, input, status, attempts FROM steps WHERE task_id = ? ORDER BY idx"
    return list(db.rows(sql, task_id))


def read_journal(db: Database, task_id: str) -> Iterator[dict[str, Any]]:
    columns = "seq, ts, run_id AS run, kind, step_idx AS step, data"
    for row in db.rows(f"SELECT {columns} FROM events WHERE task_id = ? ORDER BY seq", task_id):
        yield {key: row[key] for key in row.keys() if key != "data"} | json.loads(row["data"])


def failure(db: Database, task_id: str) -> TaskFailed:
    """Why the task failed, as its journal says, and what to do."""
    sql = "SELECT json_extract(data, '$.error') FROM events WHERE kind = 'task_failed'"
    error = db.value(f"{sql} AND task_id = ? ORDER BY seq DESC", task_id)
    return TaskFailed(f"task {task_id} failed: {error}; mend it, then `run --retry {task_id}`")


class Store:
    """What one process writes of one task. Each verb is a transaction; those of a run raise TakenOver
    once another run has begun."""

    def __init__(self, db: Database, task_id: str) -> None:
        self.db, self.task_id, self._fence, self._run_id = db, task_id, 0, ""
        self._now, self._run_ids = clock(), run_ids()

    def create(self, plan: Mapping[str, Any]) -> bool:
        """The task and its whole plan. False if it is there. Raises BadInput for another plan."""
        text, now = json.dumps(plan, sort_keys=True), self._now()
        with self.db.transaction():
            if task := find_task(self.db, self.task_id):
                if task["plan"] != text:
                    raise BadInput(f"task {self.task_id} has another plan; use another task id")
                return False
            sql = "INSERT INTO tasks VALUES (?, ?, 'pending', ?, ?, ?, 0)"
            self.db.execute(sql, self.task_id, plan["goal"], now, now, text)
            for idx, step in enumerate(plan["steps"]):
                sql = "INSERT INTO steps VALUES (?, ?, ?, ?, 'pending', NULL, 0)"
                self.db.execute(sql, self.task_id, idx, step["tool"], to_json(step["input"]))
            self._append("task_created", {"steps": len(plan["steps"])})
        self.db.check_file()
        return True

    def begin_run(self, *, retry: bool) -> bool:
        """Raises the fence, moves back what a killed run left. False if the task has ended."""
        with self.db.transaction():
            task = find_task(self.db, self.task_id)
            if not task or task["status"] == "done" or (task["status"] == "failed" and not retry):
                return False
            self._fence = task["fence"] + 1
            self._run_id = self._run_ids(self._fence)
            self.db.execute("UPDATE tasks SET fence = ? WHERE id = ?", self._fence, self.task_id)
            recovered = self._move_back("running", "step_recovered")
            self._move_back("failed", "task_retried")
            self._set_task("running")
            self._append("run_started", {"recovered": recovered})
        return True

    def start_attempt(self, step: Row, attempt: int) -> None:
        """pending -> running; counted before the effect: a step that kills must come to an end."""
        with self.db.transaction():
            self._set_step(step, "pending", "running", attempt)
            self._append("step_started", {"tool": step["tool"], "attempt": attempt}, step, attempt)

    def finish_step(self, step: Row, attempt: int, output: str) -> None:
        """running -> done, with its output: from this commit on it is never run again."""
        with self.db.transaction():
            self._set_step(step, "running", "done", attempt, output)
            self._append("step_finished", {"tool": step["tool"]}, step, attempt)

    def fail_attempt(self, step: Row, attempt: int, error: BaseException, *, last: bool) -> None:
        """running -> pending; or failed, and raises TaskFailed, where no other attempt may follow."""
        permanent, interrupted = isinstance(error, PermanentError), isinstance(error, Interrupted)
        data = {"error": describe(error), "permanent": permanent, "interrupted": interrupted}
        with self.db.transaction():
            self._set_step(step, "running", "pending", attempt)
            self._append("step_error", data, step, attempt)
            if interrupted:
                self._set_task("pending")
            elif permanent or last:
                reason = "permanent" if permanent else "max_attempts"
                self._fail(step, attempt, reason, "failed", describe(error))
        if not interrupted and (permanent or last):
            raise failure(self.db, self.task_id)

    def give_up(self, step: Row, attempt: int) -> NoReturn:
        """pending -> failed: no attempt is left, and one that was cut off may have had its effect."""
        sql = """SELECT kind = 'step_recovered' OR json_extract(data, '$.interrupted') FROM events
            WHERE task_id = ? AND step_idx = ? ORDER BY seq DESC"""
        outcome, why = "failed", "fewer attempts are allowed now"
        if self.db.value(sql, self.task_id, step["idx"]):
            outcome, why = "unknown", "cut off, so its outcome is unknown and its effect may exist"
        with self.db.transaction():
            self._fail(step, attempt, "max_attempts", outcome, why)
        raise failure(self.db, self.task_id)

    def finish_task(self) -> None:
        with self.db.transaction():
            self._set_task("done")
            self._append("task_done", {})
        self.db.check_file()

    def _fail(self, step: Row, attempt: int, reason: str, outcome: str, error: str) -> None:
        error = f"step {step['idx']} ({step['tool']}), attempt {attempt}, {reason}: {error}"
        self._set_step(step, "pending", "failed", attempt)
        self._set_task("failed")
        data = {"reason": reason, "outcome": outcome, "error": error}
        self._append("task_failed", data, step, attempt)

    def _move_back(self, status: str, kind: str) -> list[int]:
        """To pending. A recovered attempt counts; a retried step begins afresh."""
        steps = [step for step in list_steps(self.db, self.task_id) if step["status"] == status]
        for step in steps:
            attempts = step["attempts"] if kind == "step_recovered" else 0
            self._set_step(step, status, "pending", attempts)
            self._append(kind, {}, step, step["attempts"])
        return [step["idx"] for step in steps]

    def _set_step(self, step: Row, old: str, new: str, attempts: int, output: str = "") -> None:
        sql = """UPDATE steps SET status = ?, attempts = ?, output = ? WHERE task_id = ? AND idx = ?
            AND status = ? AND (SELECT fence FROM tasks WHERE id = task_id) = ?"""
        of = (self.task_id, step["idx"], old, self._fence)
        self._require(self.db.execute(sql, new, attempts, output or None, *of))

    def _set_task(self, status: str) -> None:
        sql = "UPDATE tasks SET status = ?, updated_at = ? WHERE id = ? AND fence = ?"
        self._require(self.db.execute(sql, status, self._now(), self.task_id, self._fence))

    def _require(self, changed: int) -> None:
        if not changed:
            raise TakenOver(f"another run has taken over task {self.task_id}; this one stops")

    def _append(self, kind: str, data: Any, step: Row | None = None, n: int | None = None) -> None:
        idx, tool = (step["idx"], step["tool"]) if step else (None, None)
        run = self._run_id or None
        row = (self._now(), self.task_id, run, kind, idx, to_json(data), run, tool, n)
        self.db.execute("INSERT INTO events VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *row)


class Outputs(Mapping[int, Any]):
    """The committed outputs of a task's steps, each loaded when asked for."""

    def __init__(self, db: Database, task_id: str) -> None:
        self._db, self._task_id = db, task_id

    def __getitem__(self, idx: int) -> Any:
        sql = "SELECT output FROM steps WHERE task_id = ? AND idx = ? AND status = 'done'"
        if (text := self._db.value(sql, self._task_id, idx)) is None:
            raise KeyError(idx)
        return json.loads(text)

    def __iter__(self) -> Iterator[int]:
        return (s["idx"] for s in list_steps(self._db, self._task_id) if s["status"] == "done")

    def __len__(self) -> int:
        return sum(1 for _ in self)

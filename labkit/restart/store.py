"""The database of the restart agent: every statement that reads or changes a task, in its verb.

A step is the checkpoint boundary: pending, running (committed before its tool), done (after it). A
kill leaves it running, the next run moves it back: a tool may run twice. A *run* raises the `fence`
and may write only while that is its own: of two processes one can. Each event joins its change."""

import json
from collections.abc import Iterator, Mapping

from labkit import errors
from labkit.clock import clock, run_ids
from labkit.database import Database, Row, Schema, look
from labkit.errors import Any
from labkit.jsonvalues import ENCODE, to_json

_STATUS = "status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'done', 'failed'))"
_REFUSE = "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"
SCHEMA: Schema = (0x6C6B7231, 1, (  # "lkr1"; times are Unix seconds; input, output, data are JSON
    f"""CREATE TABLE tasks (id TEXT PRIMARY KEY, goal TEXT NOT NULL, {_STATUS}, created_at REAL,
        updated_at REAL, plan TEXT NOT NULL, fence INTEGER NOT NULL)""",
    f"""CREATE TABLE steps (task_id TEXT REFERENCES tasks, idx INTEGER, tool TEXT NOT NULL,
        input TEXT, {_STATUS}, output TEXT, attempts INTEGER, PRIMARY KEY (task_id, idx))""",
    """CREATE TABLE events (seq INTEGER PRIMARY KEY CHECK (seq > 0),  -- the order; ts may jump back
        ts REAL, task_id TEXT NOT NULL, run_id TEXT, kind TEXT NOT NULL, step_idx INTEGER,
        data TEXT CHECK (json_type(data) = 'object'), owner TEXT, step TEXT, attempt INTEGER)""",
    """CREATE VIEW journal AS
        SELECT seq, ts, task_id, run_id, owner, kind, step_idx, step, attempt, data FROM events""",
    f"CREATE TRIGGER keep_1 BEFORE UPDATE ON events {_REFUSE}",
    f"CREATE TRIGGER keep_2 BEFORE DELETE ON events {_REFUSE}",
    f"""CREATE TRIGGER keep_3 BEFORE INSERT ON events  -- INSERT OR REPLACE passes the other two
        WHEN EXISTS (SELECT 1 FROM events WHERE seq = NEW.seq) {_REFUSE}"""))  # fmt: skip
CHANGES = {  # what each kind of event does to its step, and to its task
    "task_created": ("", ""), "run_started": ("", "running"), "step_recovered": ("pending", ""),
    "step_started": ("running", ""), "step_finished": ("done", ""), "step_error": ("pending", ""),
    "task_done": ("", "done"), "task_failed": ("failed", "failed"), "task_retried": ("pending", ""),
}  # fmt: skip


def find_task(db: Database, task_id: str) -> Row | None:
    return next(db.rows("SELECT goal, status, plan, fence FROM tasks WHERE id = ?", task_id), None)


def open_task(path: str, task_id: str) -> tuple[Database, Row]:
    db = look(path, SCHEMA)
    if db and task_id.isascii() and (task := find_task(db, task_id)):  # `create` takes no other id
        return db, task
    raise errors.UnknownTask(f"no task {task_id!r:.110} in {path}; `create` it first")


def list_steps(db: Database, task_id: str) -> list[Row]:
    sql = "SELECT idx, tool, input, status, attempts FROM steps WHERE task_id = ? ORDER BY idx"
    return list(db.rows(sql, task_id))


def read_journal(db: Database, task_id: str) -> Iterator[dict[str, Any]]:
    columns = "seq, ts, run_id AS run, kind, step_idx AS step, data"
    rows = db.rows(f"SELECT {columns} FROM events WHERE task_id = ? ORDER BY seq", task_id)
    for event in map(dict, rows):
        yield event | json.loads(event.pop("data"))


def failure(db: Database, task_id: str) -> errors.TaskFailed:
    sql = "SELECT json_extract(data, '$.error') FROM events WHERE kind = 'task_failed'"
    why = db.value(f"{sql} AND task_id = ? ORDER BY seq DESC", task_id)
    return errors.TaskFailed(f"task {task_id} failed: {why}; mend it, then `run --retry {task_id}`")


class Store:  # what one process writes of one task
    def __init__(self, db: Database, task_id: str) -> None:
        self.db, self.task_id, self._fence, self._run_id = db, task_id, 0, ""
        self._now, self._new_id = clock(), run_ids()

    def create(self, plan: Mapping[str, Any]) -> bool:
        """The task and its whole plan. False if it is there. Raises BadInput for another plan."""
        text, now = json.dumps(plan, sort_keys=True), self._now()
        with self.db.transaction():
            if not (task := find_task(self.db, self.task_id)):
                sql = "INSERT INTO tasks VALUES (?, ?, 'pending', ?, ?, ?, 0)"
                self.db.execute(sql, self.task_id, plan["goal"], now, now, text)
                for idx, step in enumerate(plan["steps"]):
                    sql = "INSERT INTO steps VALUES (?, ?, ?, ?, 'pending', NULL, 0)"
                    self.db.execute(sql, self.task_id, idx, step["tool"], to_json(step["input"]))
                self._write("task_created", steps=len(plan["steps"]))
        self.db.check_file()
        other = errors.BadInput(f"task {self.task_id} has another plan; use another task id")
        errors.ensure(not task or task["plan"] == text, other)
        return not task

    def begin_run(self, *, retry: bool) -> bool:
        """Raises the fence, moves back what a killed run left. False if the task has ended."""
        with self.db.transaction():
            task = find_task(self.db, self.task_id)
            if not task or task["status"] in ("done", "" if retry else "failed"):
                return False
            self._fence, self._run_id = task["fence"] + 1, self._new_id(task["fence"] + 1)
            self.db.execute("UPDATE tasks SET fence = ? WHERE id = ?", self._fence, self.task_id)
            steps = list_steps(self.db, self.task_id)
            for step in (running := [s for s in steps if s["status"] == "running"]):
                self._write("step_recovered", step, step["attempts"])
            for step in (s for s in steps if s["status"] == "failed"):
                self._write("task_retried", step, 0)
            self._write("run_started", recovered=[step["idx"] for step in running])
        return True

    def record(self, kind: str, *of: Any, **data: Any) -> None:
        """One transaction: a change and its event. Raises TakenOver once another run has begun."""
        with self.db.transaction():
            self._write(kind, *of, **data)

    def require_attempt(self, step: Row, used: int, allowed: int) -> None:
        """Fails the task, and raises TaskFailed, where no attempt may follow the `used` ones."""
        sql = """SELECT json_extract(data, '$.permanent'), json_extract(data, '$.error'),
            kind = 'step_recovered' OR json_extract(data, '$.interrupted') FROM events
            WHERE task_id = ? AND step_idx = ? ORDER BY seq DESC"""
        last = self.db.rows(sql, self.task_id, step["idx"]) if used else iter(())
        permanent, why, cut_off = next(last, (False, "", False))
        if used and (permanent or used >= allowed):
            outcome = "unknown" if cut_off else "failed"
            reason = "permanent" if permanent else "max_attempts"
            why = "cut off: its outcome is unknown and its effect may exist" if cut_off else why
            why = f"step {step['idx']} ({step['tool']}), attempt {used}, {reason}: {why}"
            self.record("task_failed", step, used, reason=reason, outcome=outcome, error=why)
            raise failure(self.db, self.task_id)

    def _write(self, kind: str, *of: Any, **data: Any) -> None:
        step, n, output = (*of, None, None, None)[:3]
        (of_step, of_task), mine = CHANGES[kind], 1
        if of_step:
            sql = """UPDATE steps SET status = ?, attempts = ?, output = ? WHERE task_id = ?
                AND idx = ? AND (SELECT fence FROM tasks WHERE id = task_id) = ?"""
            mine = self.db.execute(sql, of_step, n, output, self.task_id, step["idx"], self._fence)
        if status := "pending" if data.get("interrupted") else of_task:
            sql = "UPDATE tasks SET status = ?, updated_at = ? WHERE id = ? AND fence = ?"
            mine = self.db.execute(sql, status, self._now(), self.task_id, self._fence)
        if not mine:
            raise errors.TakenOver(f"another run took over task {self.task_id}; this one stops")
        idx, tool, run = step and step["idx"], step and step["tool"], self._run_id or None
        row = (self._now(), self.task_id, run, kind, idx, ENCODE(data), run, tool, n)
        self.db.execute("INSERT INTO events VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *row)


class Outputs(Mapping[int, Any]):
    """The committed outputs of a task's steps, each loaded when asked for."""

    def __init__(self, db: Database, task_id: str) -> None:
        self._db, self._task_id = db, task_id

    def __getitem__(self, idx: int) -> Any:
        sql = "SELECT output FROM steps WHERE task_id = ? AND idx = ? AND status = 'done'"
        text = self._db.value(sql, self._task_id, idx)
        errors.ensure(text, KeyError(idx))
        return json.loads(text)

    def __iter__(self) -> Iterator[int]:
        return (s["idx"] for s in list_steps(self._db, self._task_id) if s["status"] == "done")

    def __len__(self) -> int:
        return sum(1 for _ in self)

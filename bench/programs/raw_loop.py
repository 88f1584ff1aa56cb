"""The floor: the rows, pragmas and triggers of the restart agent in the same transactions, written
by sqlite3 and nothing else: no plan, no fence, no check of anything. Goes on where it was killed.
"""

import os
import sqlite3
import time

from marks import LAST, mark

EVENT = """INSERT INTO events (ts, task_id, run_id, kind, step_idx, data, owner, step, attempt)
    VALUES (?, 't', ?, ?, ?, ?, ?, ?, ?)"""
RUN = os.urandom(4).hex()


def main() -> None:
    is_new = not os.path.exists("state.db")
    db = sqlite3.connect("state.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA foreign_keys=ON")
    if is_new:
        create(db)
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE steps SET status = 'pending' WHERE status = 'running'")
    db.execute("UPDATE tasks SET status = 'running', fence = fence + 1, updated_at = ?", now())
    event(db, RUN, "run_started", None, '{"recovered":[]}')
    db.execute("COMMIT")
    rows = db.execute("SELECT idx FROM steps WHERE status = 'pending' ORDER BY idx").fetchall()
    for (idx,) in rows:
        step(db, idx)
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE tasks SET status = 'done', updated_at = ?", now())
    event(db, RUN, "task_done", None, "{}")
    db.execute("COMMIT")


def step(db: sqlite3.Connection, idx: int) -> None:
    where = "WHERE task_id = 't' AND idx = ?"
    db.execute("BEGIN IMMEDIATE")
    db.execute(f"UPDATE steps SET status = 'running', attempts = attempts + 1 {where}", (idx,))
    event(db, RUN, "step_started", idx, '{"tool":"noop","attempt":1}')
    db.execute("COMMIT")
    mark(idx)
    db.execute("BEGIN IMMEDIATE")
    db.execute(f"UPDATE steps SET status = 'done', output = 'null' {where}", (idx,))
    event(db, RUN, "step_finished", idx, '{"tool":"noop"}')
    db.execute("COMMIT")


def event(db: sqlite3.Connection, run: str | None, kind: str, idx: int | None, data: str) -> None:
    step, attempt = (None, None) if idx is None else ("noop", 1)
    db.execute(EVENT, (time.time(), run, kind, idx, data, run, step, attempt))


def create(db: sqlite3.Connection) -> None:
    from labkit.restart.store import SCHEMA  # only here: a restart of the floor needs no labkit

    db.execute("BEGIN IMMEDIATE")
    for statement in SCHEMA[2]:
        db.execute(statement)
    columns = "id, goal, status, created_at, updated_at, plan, fence"
    task = f"INSERT INTO tasks ({columns}) VALUES ('t', 'g', 'pending', ?, ?, '', 0)"
    db.execute(task, now() + now())
    step = """INSERT INTO steps (task_id, idx, tool, input, status, attempts)
        VALUES ('t', ?, 'noop', '{}', 'pending', 0)"""
    db.executemany(step, [(idx,) for idx in range(LAST + 1)])
    event(db, None, "task_created", None, f'{{"steps":{LAST + 1}}}')
    db.execute("COMMIT")


def now() -> tuple[float]:
    return (time.time(),)


main()

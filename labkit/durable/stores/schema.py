"""The tables of the durable run.

A run has steps, a step has attempts, and each row belongs to its run: every key begins with the
run's id. The columns that hold payloads are BLOBs as the store's codec made them; everything else
can be read and queried by anybody. Times are Unix seconds.

The life of a run: its row is stored CREATED, with the frozen snapshot. Whoever advances it holds
the lease, under an epoch that each acquire raises. An attempt is stored RUNNING, then the call
happens, then one transaction stores the end of the attempt and what follows from it. So a row that
says RUNNING is all that a killed process leaves behind.

The surprising guarantee: a step has its checkpoint exactly when it has SUCCEEDED. A state
"succeeded, but the result is not there yet", in which a recovery might send a second time, cannot
be written, not even by hand: a CHECK holds on every connection, a foreign key only on some."""

from labkit.database import Schema

__all__ = ["APPLICATION_ID", "VERSIONS", "schema"]

APPLICATION_ID = 0x6C6B6431  # "lkd1"

_RUN = "'CREATED', 'RUNNING', 'WAITING', 'SUCCEEDED', 'REJECTED', 'FAILED', 'CANCELLED'"
_STEP = "status TEXT NOT NULL CHECK (status IN ('RUNNING', 'SUCCEEDED', 'FAILED'))"
_REFUSE = "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"

_VERSION_1 = (
    f"""CREATE TABLE runs (
        seq INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE,
        definition_id TEXT NOT NULL, definition_version TEXT NOT NULL,
        status TEXT NOT NULL CHECK (status IN ({_RUN})), version INTEGER NOT NULL,
        waiting_reason TEXT, waiting_step_id TEXT, error_code TEXT,
        lease_owner TEXT, lease_epoch INTEGER NOT NULL DEFAULT 0,
        lease_expires_at REAL NOT NULL DEFAULT 0,  -- 0: free, which is as good as expired
        cancel_requested_by TEXT, cancel_requested_at REAL,
        created_at REAL NOT NULL, updated_at REAL NOT NULL,
        input BLOB NOT NULL, history BLOB NOT NULL, snapshot BLOB NOT NULL, output BLOB,
        CHECK ((status = 'WAITING') = (waiting_reason IS NOT NULL)))""",
    "CREATE INDEX runs_by_status ON runs (status)",
    "CREATE INDEX runs_by_definition ON runs (definition_id)",  # each gives runs in their order,
    "CREATE INDEX runs_by_both ON runs (definition_id, status)",  # so no list sorts all of them
    # What recovery looks for among any number of runs that ended.
    "CREATE INDEX runs_by_lease ON runs (lease_expires_at) WHERE status = 'RUNNING'",
    f"""CREATE TABLE steps (
        run_id TEXT NOT NULL REFERENCES runs (run_id), step_id TEXT NOT NULL,
        idx INTEGER NOT NULL, step_type TEXT NOT NULL, name TEXT, effect TEXT, call BLOB,
        model_purpose TEXT,
        {_STEP}, checkpoint_attempt_id TEXT, error_code TEXT, created_at REAL NOT NULL,
        PRIMARY KEY (run_id, step_id),
        CHECK ((status = 'SUCCEEDED') = (checkpoint_attempt_id IS NOT NULL))) WITHOUT ROWID""",
    f"""CREATE TABLE attempts (
        run_id TEXT NOT NULL, step_id TEXT NOT NULL, number INTEGER NOT NULL,
        attempt_id TEXT NOT NULL, {_STEP}, classification TEXT, error_code TEXT,
        model_purpose TEXT, created_at REAL NOT NULL, finished_at REAL, output BLOB, error BLOB,
        PRIMARY KEY (run_id, step_id, number),
        FOREIGN KEY (run_id, step_id) REFERENCES steps (run_id, step_id)) WITHOUT ROWID""",
    # Steps follow one another, so a run has one open attempt at most.
    "CREATE UNIQUE INDEX one_open_attempt ON attempts (run_id) WHERE status = 'RUNNING'",
    """CREATE VIEW checkpoints AS
        SELECT s.run_id, s.idx, s.step_id, a.attempt_id, s.step_type, a.output,
            a.finished_at AS created_at
        FROM steps s JOIN attempts a
            ON a.run_id = s.run_id AND a.attempt_id = s.checkpoint_attempt_id""",
    """CREATE TABLE resolutions (
        run_id TEXT NOT NULL REFERENCES runs (run_id), version INTEGER NOT NULL,
        action TEXT NOT NULL, step_id TEXT, actor TEXT, reason BLOB, created_at REAL NOT NULL,
        PRIMARY KEY (run_id, version)) WITHOUT ROWID""",
    """CREATE TABLE events (
        seq INTEGER PRIMARY KEY CHECK (seq > 0),  -- the order; ts may jump back
        ts REAL NOT NULL, run_id TEXT NOT NULL, owner TEXT, kind TEXT NOT NULL, step_idx INTEGER,
        step TEXT, attempt INTEGER, data TEXT NOT NULL CHECK (json_type(data) = 'object'))""",
    "CREATE INDEX events_by_run ON events (run_id)",
    """CREATE VIEW journal AS SELECT
        seq, ts, run_id AS task_id, run_id, owner, kind, step_idx, step, attempt, data
        FROM events""",
    f"CREATE TRIGGER keep_1 BEFORE UPDATE ON events {_REFUSE}",
    f"CREATE TRIGGER keep_2 BEFORE DELETE ON events {_REFUSE}",
    f"""CREATE TRIGGER keep_3 BEFORE INSERT ON events  -- INSERT OR REPLACE passes the other two
        WHEN EXISTS (SELECT 1 FROM events WHERE seq = NEW.seq) {_REFUSE}""",
    "CREATE TABLE seal (canary BLOB NOT NULL)",  # one row: opens only under the codec of the file
)  # fmt: skip

VERSIONS = (_VERSION_1,)  # the n-th holds the statements that make version n of version n - 1


def schema() -> Schema:
    """What a new file gets: all the versions, one after the other."""
    statements = tuple(statement for version in VERSIONS for statement in version)
    return APPLICATION_ID, len(VERSIONS), statements

"""Runs in a SQLite file, or in the memory of this process: every verb, with its statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from labkit.database import Database, Row, connect
from labkit.durable import recovery
from labkit.durable.clocks import Clock, SystemClock
from labkit.durable.codec import PayloadCodec
from labkit.durable.errors import (
    DuplicateRunError,
    IllegalRunTransitionError,
    LeaseNotHeldError,
    RunNotFoundError,
    RunStoreIntegrityError,
    StaleRunVersionError,
    StoreBusyError,
    StoreError,
)
from labkit.durable.records import (
    TRANSITIONS,
    Change,
    FailureClassification,
    Hold,
    NewStep,
    Receipt,
    ResolutionAction,
    RunInspection,
    RunRecord,
    RunResolution,
    RunStatus,
    RunSummary,
    StepAttempt,
    StepStatus,
)
from labkit.durable.stores import schema as tables
from labkit.durable.stores.rows import Rows, moment
from labkit.errors import StorageBusy, StorageFault
from labkit.jsonvalues import ENCODE

__all__ = ["SQLiteRunStore"]

CANARY = "labkit"
BUSY_MS = 100  # the runner waits on by itself, without blocking the other runs of its loop
_EVENT_OF = {  # the journal's word for each transition
    RunStatus.WAITING: "run_waiting", RunStatus.SUCCEEDED: "task_done",
    RunStatus.REJECTED: "task_rejected", RunStatus.FAILED: "task_failed",
    RunStatus.CANCELLED: "task_cancelled",
}  # fmt: skip
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class SQLiteRunStore:
    """The runs of one file, which is made if it is missing. Use it in the thread that made it.

    Raises RunStoreIntegrityError for a file that is damaged, newer, of another program, or sealed
    with another key: it is left as it was.
    """

    def __init__(
        self, path: str | Path, payload_codec: PayloadCodec, clock: Clock | None = None
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self._rows, self._path = Rows(payload_codec), str(path)
        self._open_db: Database | None = None
        with self._faults(RunStoreIntegrityError):
            self._open_db = self._connect()

    def _connect(self) -> Database:
        found = connect(self._path, tables.schema(), create=True)
        try:
            found.execute(f"PRAGMA busy_timeout={BUSY_MS}")
            self._migrate(found)
            self._require_codec(found)
        except BaseException:
            found.close()
            raise
        return found

    @staticmethod
    def _migrate(db: Database) -> None:
        """Takes an older file forward, all or nothing. Of several openers, one does it."""
        with db.transaction():
            for version in range(db.value("PRAGMA user_version"), len(tables.VERSIONS)):
                for statement in (*tables.VERSIONS[version], f"PRAGMA user_version={version + 1}"):
                    db.execute(statement)

    def _require_codec(self, db: Database) -> None:
        canary = self._rows.seal(CANARY)
        db.execute("INSERT INTO seal SELECT ? WHERE NOT EXISTS (SELECT 1 FROM seal)", canary)
        if self._rows.open(db.value("SELECT canary FROM seal")) != CANARY:
            raise RunStoreIntegrityError("the sealed canary is another's")

    def close(self) -> None:
        if self._open_db:
            self._open_db.close()
            self._open_db = None

    def __enter__(self) -> SQLiteRunStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what every verb stands on

    @property
    def _db(self) -> Database:
        """After a fault of the storage the file is opened, and looked at, anew."""
        if self._open_db is None:
            self._open_db = self._connect()
        return self._open_db

    @contextmanager
    def _faults(self, kind: type[StoreError] = StoreError) -> Iterator[None]:
        """What the storage cannot do leaves as one of this system's errors, with its cause."""
        try:
            yield
        except StorageBusy as error:
            raise StoreBusyError(str(error)) from error
        except StorageFault as error:
            self.close()
            damaged = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF in _DAMAGE
            raise (RunStoreIntegrityError if damaged else kind)(str(error)) from error
        except sqlite3.ProgrammingError as error:
            raise StoreError(f"{self._path}: {error}; make one store for each thread") from error

    @contextmanager
    def _writing(self) -> Iterator[datetime]:
        """One transaction, and the moment at which it stands."""
        with self._faults():
            self._db.tool_ran = True  # a handler of this process may have touched the files
            with self._db.transaction():
                yield self.clock.now()

    def _find(self, run_id: str, columns: str = "*") -> Row:
        for row in self._db.rows(f"SELECT {columns} FROM runs WHERE run_id = ?", run_id):
            return row
        raise RunNotFoundError(f"no run {run_id!r:.80} in {self._path}; `create_run` it first")

    def _held(self, hold: Hold, now: datetime) -> Row:
        """The run, if the writer may still write it. The version is looked at first."""
        row = self._find(hold.run_id)
        if row["version"] != hold.version:
            raise StaleRunVersionError(
                f"run {hold.run_id} is at version {row['version']}, not {hold.version}"
            )
        if row["lease_epoch"] != hold.epoch or not self._is_leased(row, now):
            raise self._not_held(row, f"the lease of epoch {hold.epoch} is lost")
        return row

    @staticmethod
    def _is_leased(row: Row, now: datetime) -> bool:
        return bool(row["lease_owner"]) and now.timestamp() < row["lease_expires_at"]

    @staticmethod
    def _not_held(row: Row, why: str) -> LeaseNotHeldError:
        owner = row["lease_owner"]
        until = moment(row["lease_expires_at"]) if owner else None
        who = f"{owner} holds it until {until.isoformat()}" if until else "nobody holds it"
        return LeaseNotHeldError(f"run {row['run_id']}: {why}; {who}", owner, until)

    def _event(self, now: datetime, run: Row | RunRecord, kind: str, **of: Any) -> None:
        """`of`: step_idx, step, attempt, and anything else as data. The writer is the lease's."""
        place = [of.pop(name, None) for name in ("step_idx", "step", "attempt")]
        owner = of.pop("owner", None)
        run_id = run.run_id if isinstance(run, RunRecord) else run["run_id"]
        sql = "INSERT INTO events VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)"
        self._db.execute(sql, now.timestamp(), run_id, owner, kind, *place, ENCODE(of))

    @staticmethod
    def _owner(run: Row) -> str:
        return f"{run['lease_owner']}#{run['lease_epoch']}"

    # --- reading

    async def get_run(self, run_id: str) -> RunRecord:
        with self._faults():
            return self._rows.run(self._find(run_id))

    async def inspect_run(self, run_id: str) -> RunInspection:
        with self._faults():
            self._db.execute("BEGIN")
            try:
                return self._inspect(run_id)
            finally:
                with suppress(StorageFault):  # the first error is the one to report
                    self._db.execute("ROLLBACK")

    def _inspect(self, run_id: str) -> RunInspection:
        of = "WHERE run_id = ? ORDER BY"
        rows, db = self._rows, self._db
        steps = [rows.step(r) for r in db.rows(f"SELECT * FROM steps {of} idx", run_id)]
        order = {step.step_id: step.idx for step in steps}
        found = [rows.attempt(r) for r in db.rows(f"SELECT * FROM attempts {of} number", run_id)]
        attempts = sorted(found, key=lambda attempt: (order[attempt.step_id], attempt.number))
        sql = f"SELECT * FROM resolutions {of} version"
        resolutions = [rows.resolution(r) for r in db.rows(sql, run_id)]
        return RunInspection(rows.run(self._find(run_id)), steps, attempts, resolutions)

    async def list_runs(
        self,
        *,
        status: RunStatus | None = None,
        definition_id: str | None = None,
        lease: Literal["expired"] | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[RunSummary]:
        where: dict[str, Any] = {}
        if status is not None:
            where["status = ?"] = RunStatus(status).value
        if definition_id is not None:
            where["definition_id = ?"] = definition_id
        if lease is not None:
            where["status = 'RUNNING' AND lease_expires_at <= ?"] = self.clock.now().timestamp()
        with self._faults():
            if after is not None:
                where["seq > ?"] = self._find(after, "seq")["seq"]
            sql = f"SELECT * FROM runs WHERE {' AND '.join(where) or 'TRUE'} ORDER BY seq LIMIT ?"
            return [self._rows.summary(r) for r in self._db.rows(sql, *where.values(), limit)]

    async def read_journal(
        self, run_id: str | None = None, *, after: int = 0
    ) -> Sequence[dict[str, Any]]:
        where, values = ("run_id = ? AND ", (run_id,)) if run_id is not None else ("", ())
        sql = f"SELECT * FROM journal WHERE {where}seq > ? ORDER BY seq"
        with self._faults():
            return [dict(row) for row in self._db.rows(sql, *values, after)]

    # --- a run's beginning, its lease and its end

    async def create_run(self, run: RunRecord) -> RunRecord:
        with self._writing() as now:
            for row in self._db.rows("SELECT * FROM runs WHERE run_id = ?", run.run_id):
                return self._same(self._rows.run(row), run)
            values = {
                "run_id": run.run_id,
                "definition_id": run.definition_id,
                "definition_version": run.definition_version,
                "status": run.status.value,
                "version": run.version,
                "created_at": run.created_at.timestamp(),
                "updated_at": run.updated_at.timestamp(),
                **self._rows.run_values(run),
            }
            marks = ", ".join("?" * len(values))
            sql = f"INSERT INTO runs ({', '.join(values)}) VALUES ({marks})"
            self._db.execute(sql, *values.values())
            what = {"definition": run.definition_id, "version": run.definition_version}
            self._event(now, run, "task_created", **what)
        return run

    @staticmethod
    def _same(stored: RunRecord, wanted: RunRecord) -> RunRecord:
        def request(run: RunRecord) -> tuple[Any, ...]:
            return run.definition_id, run.definition_version, run.input, run.history

        if request(stored) != request(wanted):
            raise DuplicateRunError(f"run {wanted.run_id} is of another request; use another id")
        return stored

    async def acquire_lease(
        self,
        run_id: str,
        owner: str,
        ttl: timedelta,
        *,
        expected_version: int,
        change: Change | None = None,
    ) -> RunInspection:
        with self._writing() as now:
            run = self._find(run_id)
            if run["version"] != expected_version:
                raise StaleRunVersionError(
                    f"run {run_id} is at version {run['version']}, not {expected_version}"
                )
            run = self._acquire(now, run, owner, ttl)
            if change:
                self._move(now, run, change)
            return self._inspect(run_id)  # a payload that cannot be read undoes all of it

    def _acquire(self, now: datetime, run: Row, owner: str, ttl: timedelta) -> Row:
        if self._is_leased(run, now):
            raise self._not_held(run, "it is being advanced")
        sql = """UPDATE runs SET lease_owner = ?, lease_epoch = lease_epoch + 1,
            lease_expires_at = ? WHERE run_id = ?"""
        self._db.execute(sql, owner, (now + ttl).timestamp(), run["run_id"])
        run = self._find(run["run_id"])
        self._event(now, run, "run_started", owner=self._owner(run), epoch=run["lease_epoch"])
        return run

    async def renew_lease(self, hold: Hold, ttl: timedelta) -> RunSummary:
        with self._writing() as now:
            self._held(hold, now)
            sql = "UPDATE runs SET lease_expires_at = ? WHERE run_id = ?"
            self._db.execute(sql, (now + ttl).timestamp(), hold.run_id)
            return self._rows.summary(self._find(hold.run_id))

    async def release_lease(self, hold: Hold) -> None:
        sql = """UPDATE runs SET lease_owner = NULL, lease_expires_at = 0
            WHERE run_id = ? AND lease_epoch = ?"""
        with self._writing():
            self._db.execute(sql, hold.run_id, hold.epoch)

    async def change_run(self, hold: Hold, change: Change) -> Receipt:
        with self._writing() as now:
            return self._move(now, self._held(hold, now), change)

    def _move(
        self, now: datetime, run: Row, change: Change, *, obeys_cancel: bool = True
    ) -> Receipt:
        """The transition with its journal entry. The lease ends with everything but RUNNING."""
        requested = run["cancel_requested_at"] is not None
        if requested and obeys_cancel and change.to in (RunStatus.SUCCEEDED, RunStatus.FAILED):
            change = Change(RunStatus.CANCELLED)
        if change.to not in TRANSITIONS.get(RunStatus(run["status"]), ()):
            raise IllegalRunTransitionError(
                f"run {run['run_id']} is {run['status']}: it cannot become {change.to}"
            )
        sql = """UPDATE runs SET status = ?, version = version + 1, output = ?, waiting_reason = ?,
            waiting_step_id = ?, error_code = ?, updated_at = ? WHERE run_id = ?"""
        self._db.execute(
            sql,
            change.to.value,
            self._rows.seal(change.output),
            change.waiting_reason,
            change.waiting_step_id,
            change.error_code,
            now.timestamp(),
            run["run_id"],
        )
        if change.to is not RunStatus.RUNNING:
            self._end_advance(now, run, change)
        return Receipt(run["version"] + 1, requested)

    def _end_advance(self, now: datetime, run: Row, change: Change) -> None:
        run_id = run["run_id"]
        free = "UPDATE runs SET lease_owner = NULL, lease_expires_at = 0 WHERE run_id = ?"
        self._db.execute(free, run_id)
        if change.to.is_terminal:
            sql = "UPDATE steps SET status = 'FAILED', error_code = ? WHERE run_id = ?"
            self._db.execute(f"{sql} AND status = 'RUNNING'", change.error_code, run_id)
        said = {"reason": change.waiting_reason, "code": change.error_code}
        data = {name: value for name, value in said.items() if value}
        kind, place = _EVENT_OF[change.to], self._place(run_id, change.waiting_step_id)
        self._event(now, run, kind, owner=self._owner(run), **place, **data)

    # --- attempts

    async def begin_attempt(
        self, hold: Hold, step: NewStep, budget: tuple[int, int] | None
    ) -> tuple[StepAttempt, Receipt] | None:
        with self._writing() as now:
            run = self._held(hold, now)
            if budget and not self._is_within(hold.run_id, step, budget):
                return None
            sql = """INSERT INTO steps SELECT ?, ?, count(*), ?, ?, ?, ?, 'RUNNING', NULL, NULL, ?
                FROM steps WHERE run_id = ? ON CONFLICT (run_id, step_id) DO NOTHING"""
            call = step.call and vars(step.call)
            kept = (step.step_type.value, step.name, self._rows.seal(call), step.purpose)
            key = (hold.run_id, step.step_id)
            self._db.execute(sql, *key, *kept, now.timestamp(), hold.run_id)
            return self._begin(now, run, step), self._receipt(run)

    def _is_within(self, run_id: str, step: NewStep, budget: tuple[int, int]) -> bool:
        sql = """SELECT count(*), count(*) FILTER (WHERE model_purpose = ?) FROM attempts
            WHERE run_id = ? AND model_purpose IS NOT NULL"""
        [(of_run, of_purpose)] = self._db.rows(sql, step.purpose, run_id)
        return bool(of_run < budget[0] and of_purpose < budget[1])

    def _begin(self, now: datetime, run: Row, step: NewStep, **said: Any) -> StepAttempt:
        """The next attempt, RUNNING. The step must be: a checkpoint is never tried again."""
        key = (run["run_id"], step.step_id)
        sql = "SELECT status FROM steps WHERE run_id = ? AND step_id = ?"
        status = self._db.value(sql, *key)
        if status != "RUNNING":
            raise IllegalRunTransitionError(f"step {step.step_id} is {status}: no attempt follows")
        sql = "SELECT count(*) FROM attempts WHERE run_id = ? AND step_id = ?"
        number = self._db.value(sql, *key) + 1
        attempt = StepAttempt(
            run_id=run["run_id"],
            step_id=step.step_id,
            attempt_id=f"{step.step_id}#{number}",
            number=number,
            status=StepStatus.RUNNING,
            model_purpose=step.purpose,
            created_at=now,
        )
        self._insert(attempt)
        place = self._place(*key) | {"attempt": number}
        self._event(now, run, "step_started", owner=self._owner(run), **place, **said)
        return attempt

    def _insert(self, attempt: StepAttempt) -> None:
        sql = """INSERT INTO attempts (run_id, step_id, number, attempt_id, status, model_purpose,
            created_at) VALUES (?, ?, ?, ?, 'RUNNING', ?, ?)"""
        key = (attempt.run_id, attempt.step_id, attempt.number, attempt.attempt_id)
        self._db.execute(sql, *key, attempt.model_purpose, attempt.created_at.timestamp())

    async def record_success(
        self, hold: Hold, attempt: StepAttempt, output: str, *, confirmed: bool = False
    ) -> Receipt:
        with self._writing() as now:
            run = self._held(hold, now)
            self._succeed(now, run, attempt, output)
            return self._receipt(run)

    def _succeed(
        self, now: datetime, run: Row, attempt: StepAttempt, output: str, **said: Any
    ) -> None:
        key = (attempt.run_id, attempt.step_id, attempt.number)
        sql = """UPDATE attempts SET status = 'SUCCEEDED', output = ?, finished_at = ?
            WHERE run_id = ? AND step_id = ? AND number = ? AND status = 'RUNNING'"""
        changed = self._db.execute(sql, self._rows.seal(output), now.timestamp(), *key)
        self._require_one(changed, attempt)
        sql = """UPDATE steps SET status = 'SUCCEEDED', checkpoint_attempt_id = ?
            WHERE run_id = ? AND step_id = ? AND status = 'RUNNING'"""
        self._require_one(self._db.execute(sql, attempt.attempt_id, *key[:2]), attempt)
        place = self._place(*key[:2]) | {"attempt": attempt.number}
        self._event(now, run, "step_finished", owner=self._owner(run), **place, **said)

    async def record_failure(
        self,
        hold: Hold,
        attempt: StepAttempt,
        classification: FailureClassification,
        code: str,
        error: str,
        *,
        change: Change | None,
        recovered: bool = False,
    ) -> Receipt:
        with self._writing() as now:
            run = self._held(hold, now)
            key = (attempt.run_id, attempt.step_id, attempt.number)
            sql = """UPDATE attempts SET status = 'FAILED', classification = ?, error_code = ?,
                error = ?, finished_at = ?
                WHERE run_id = ? AND step_id = ? AND number = ? AND status = 'RUNNING'"""
            of = (classification.value, code, self._rows.seal(error), now.timestamp())
            self._require_one(self._db.execute(sql, *of, *key), attempt)
            kind = "step_recovered" if recovered else "step_error"
            place = self._place(*key[:2]) | {"attempt": attempt.number}
            said = {"classification": classification.value, "code": code}
            self._event(now, run, kind, owner=self._owner(run), **place, **said)
            return self._move(now, run, change) if change else self._receipt(run)

    @staticmethod
    def _require_one(changed: int, attempt: StepAttempt) -> None:
        if changed != 1:
            raise IllegalRunTransitionError(f"attempt {attempt.attempt_id} has ended already")

    @staticmethod
    def _receipt(run: Row) -> Receipt:
        return Receipt(run["version"], run["cancel_requested_at"] is not None)

    def _place(self, run_id: str, step_id: str | None) -> dict[str, Any]:
        sql = "SELECT idx FROM steps WHERE run_id = ? AND step_id = ?"
        return {"step_idx": self._db.value(sql, run_id, step_id), "step": step_id}

    # --- what the application says

    async def resolve_run(
        self,
        run_id: str,
        owner: str,
        ttl: timedelta,
        resolution: RunResolution,
        *,
        expected_version: int,
    ) -> RunInspection:
        with self._writing() as now:
            run = self._find(run_id)
            recovery.require_resolvable(self._rows.summary(run), resolution, expected_version)
            run = self._acquire(now, run, owner, ttl)
            action, step_id = resolution.action, run["waiting_step_id"]
            sql = "INSERT INTO resolutions VALUES (?, ?, ?, ?, ?, ?, ?)"
            said = (resolution.actor, self._rows.seal(resolution.reason), now.timestamp())
            self._db.execute(sql, run_id, run["version"], action.value, step_id, *said)
            data = {"action": action.value} | ({"actor": said[0]} if said[0] else {})
            place = self._place(run_id, step_id)
            self._event(now, run, "run_resolved", owner=self._owner(run), **place, **data)
            self._apply(now, run, resolution)
            return self._inspect(run_id)

    def _apply(self, now: datetime, run: Row, resolution: RunResolution) -> None:
        action = resolution.action
        if action is ResolutionAction.FAIL_RUN:
            self._move(now, run, Change(RunStatus.FAILED, error_code=action), obeys_cancel=False)
        elif action is ResolutionAction.CANCEL_RUN:
            self._move(now, run, Change(RunStatus.CANCELLED))
        else:
            self._move(now, run, Change(RunStatus.RUNNING))
            sql = "SELECT * FROM steps WHERE run_id = ? AND step_id = ?"
            [row] = self._db.rows(sql, run["run_id"], run["waiting_step_id"])
            self._apply_to_step(now, run, self._rows.step(row), resolution)

    def _apply_to_step(self, now: datetime, run: Row, step: Any, resolution: RunResolution) -> None:
        new = NewStep(step.step_id, step.step_type, step.name, step.call)
        if resolution.action is ResolutionAction.RETRY_STEP:
            sql = """UPDATE runs SET cancel_requested_at = NULL, cancel_requested_by = NULL
                WHERE run_id = ?"""
            self._db.execute(sql, run["run_id"])  # who retries wants the run to go on
            self._begin(now, run, new, authorised=True)
        else:
            attempt = self._begin(now, run, new, confirmation=True)
            outcome = recovery.outcome_of(resolution, step.call)
            self._succeed(now, run, attempt, outcome, action=resolution.action.value)

    async def request_cancel(
        self, run_id: str, actor: str | None, *, expected_version: int | None
    ) -> RunSummary:
        with self._writing() as now:
            run = self._find(run_id)
            if expected_version not in (None, run["version"]):
                raise StaleRunVersionError(
                    f"run {run_id} is at version {run['version']}, not {expected_version}"
                )
            if run["status"] != RunStatus.RUNNING:
                raise IllegalRunTransitionError(f"run {run_id} is {run['status']} by now")
            sql = """UPDATE runs SET cancel_requested_by = ?, cancel_requested_at = ?
                WHERE run_id = ? AND cancel_requested_at IS NULL"""
            if self._db.execute(sql, actor, now.timestamp(), run_id):
                self._event(now, run, "cancel_requested", **({"actor": actor} if actor else {}))
            return self._rows.summary(self._find(run_id))

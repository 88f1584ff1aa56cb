"""Runs in a SQLite file, or in the memory of this process: every verb, with its statements."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from labkit.database import Database, Row, connect, look
from labkit.durable import errors, records
from labkit.durable.clocks import Clock, SystemClock
from labkit.durable.codec import PayloadCodec, PlaintextPayloadCodec
from labkit.durable.plain import build
from labkit.durable.records import Change, Claim, Hold, Receipt, RunRecord, RunStatus, StepAttempt
from labkit.durable.resolution import RunResolution, outcome_of, require_resolvable
from labkit.durable.stores import schema as tables
from labkit.durable.stores.rows import METADATA, RUN, Rows, columns
from labkit.errors import BadInput, StorageBusy, StorageFault
from labkit.jsonvalues import ENCODE

__all__ = ["InMemoryRunStore", "SQLiteRunStore"]


CANARY = "labkit"
GUARDED = """lease_owner, version, lease_epoch, run_id, lease_expires_at, status, waiting_step_id,
    cancel_requested_at"""
RUNNING = records.StepStatus.RUNNING
FREE = "lease_owner = NULL, lease_expires_at = 0"  # the lease, given back
BUSY_MS = 100  # the runner waits on by itself, without blocking the other runs of its loop
_ENDS = {RunStatus.WAITING: "run_waiting", RunStatus.SUCCEEDED: "task_done"}  # else task_STATUS


class SQLiteRunStore(AbstractContextManager["SQLiteRunStore"]):
    """The runs of one file, which is made if it is missing. Use it in the thread that made it.

    Raises RunStoreIntegrityError for a file that is damaged, newer, of another program, or sealed
    with another key: it is left as it was."""

    def __init__(
        self, path: str | Path, payload_codec: PayloadCodec, clock: Clock | None = None
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self._rows, self._path = Rows(payload_codec), os.path.abspath(path)
        self._open_db: Database | None = None
        with self._faults(errors.RunStoreIntegrityError):
            self._open_db = self._connect(create=True)

    def _connect(self, *, create: bool) -> Database:
        if not create and not look(self._path, tables.schema()):  # truncated: not made anew either
            raise errors.RunStoreIntegrityError(f"{self._path} has lost its tables; restore it")
        found = connect(self._path, tables.schema(), create=create)
        try:
            self._require_codec(found)  # first: a refused opening leaves the file as it was
            self._migrate(found)
            found.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        except BaseException:
            found.close()
            raise
        return found

    @staticmethod
    def _migrate(db: Database) -> None:
        """Takes an older file forward, all or nothing. Of several openers, one does it."""
        if db.value("PRAGMA user_version") < len(tables.VERSIONS):
            with db.transaction():
                for done in range(db.value("PRAGMA user_version"), len(tables.VERSIONS)):
                    for sql in (*tables.VERSIONS[done], f"PRAGMA user_version={done + 1}"):
                        db.execute(sql)

    def _require_codec(self, db: Database) -> None:
        if not db.value("SELECT count(*) FROM seal"):
            canary = self._rows.seal(CANARY)
            db.execute("INSERT INTO seal SELECT ? WHERE NOT EXISTS (SELECT 1 FROM seal)", canary)
        try:
            if self._rows.open(db.value("SELECT canary FROM seal")) != CANARY:
                raise errors.RunStoreIntegrityError("its canary is another's")
        except errors.RunStoreIntegrityError as error:
            raise errors.RunStoreIntegrityError(f"{self._path}: {error}") from error

    def close(self) -> None:
        if self._open_db:
            self._open_db.close()
            self._open_db = None

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _db(self) -> Database:
        """After a fault of the storage the file is opened, and looked at, anew."""
        if self._open_db is None:
            self._open_db = self._connect(create=False)  # a file that is gone is not made anew
        return self._open_db

    @contextmanager
    def _faults(self, kind: type[errors.StoreError] = errors.StoreError) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._explain(error, kind)
            raise

    def _explain(self, error: BaseException, kind: Any = errors.StoreError) -> None:
        """What the storage cannot do leaves as one of this system's errors, with its cause."""
        if isinstance(error, StorageBusy):
            raise errors.StoreBusyError(str(error)) from error
        if isinstance(error, StorageFault):
            self._recover_from_fault()
            name = getattr(error.__cause__, "sqlite_errorname", "")
            damaged = name in ("SQLITE_CORRUPT", "SQLITE_NOTADB")
            raise (errors.RunStoreIntegrityError if damaged else kind)(str(error)) from error
        if isinstance(error, sqlite3.ProgrammingError):
            hint = "; make one store for each thread" if "thread" in str(error) else ""
            raise errors.StoreError(f"{self._path}: {error}{hint}") from error
        if isinstance(error, (UnicodeEncodeError, OverflowError)):
            raise BadInput(f"an id, a name or a number that cannot be stored: {error}") from error

    def _recover_from_fault(self) -> None:
        self.close()  # which undoes what a transaction had begun

    @contextmanager
    def _writing(self) -> Iterator[datetime]:
        """One transaction, and the moment at which it stands."""
        try:  # not `with self._faults()`: a generator less
            self._db.tool_ran = True  # a handler of this process may have touched the files
            with self._db.transaction():
                yield self.clock.now()
        except BaseException as error:
            self._explain(error)
            raise

    def _find(self, run_id: str, version: int | None = None, what: str = GUARDED) -> Row:
        for run in self._db.rows(f"SELECT {what} FROM runs WHERE run_id = ?", run_id):
            if version not in (None, run["version"]):
                why = f"run {run_id} is at version {run['version']}, not {version}; read it again"
                raise errors.StaleRunVersionError(why)
            return run
        why = f"no run {run_id!r:.80} in {self._path}: check the folder and the id"
        raise errors.RunNotFoundError(why)

    def _held(self, hold: Hold, now: datetime) -> Row:
        """The run, if the writer may still write it. The version is looked at first."""
        run = self._find(hold.run_id, hold.version)
        if run["lease_epoch"] != hold.epoch or not self._is_leased(run, now):
            raise self._not_held(run, f"the lease of epoch {hold.epoch} is lost")
        return run

    @staticmethod
    def _is_leased(run: Row, now: datetime) -> bool:
        return bool(run["lease_owner"]) and now.timestamp() < run["lease_expires_at"]

    @staticmethod
    def _not_held(run: Row, why: str) -> errors.LeaseNotHeldError:
        owner = run["lease_owner"]
        until = build(datetime, run["lease_expires_at"]) if owner else None
        who = f"{owner} holds it until {until.isoformat()}" if until else "nobody holds it"
        return errors.LeaseNotHeldError(f"run {run['run_id']}: {why}; {who}", owner, until)

    def _event(self, now: datetime, run: Any, kind: str, *of: Any, **data: Any) -> None:
        """The journal's entry of a change, in its transaction. `of`: step id, attempt number."""
        owner = run["lease_owner"] and f"{run['lease_owner']}#{run['lease_epoch']}"
        owner = None if kind == "cancel_requested" else owner  # written by anybody
        idx = "SELECT idx FROM steps WHERE run_id = ?2 AND step_id = ?5"
        sql = f"INSERT INTO events VALUES (NULL, ?1, ?2, ?3, ?4, ({idx}), ?5, ?6, ?7)"
        told = {name: value for name, value in data.items() if value is not None}
        place = (run["run_id"], owner, kind, *(*of, None, None)[:2])
        self._db.execute(sql, now.timestamp(), *place, ENCODE(told) if told else "{}")

    async def get_run(self, run_id: str, known: RunRecord | None = None) -> RunRecord:
        with self._faults():
            if known is None:
                return self._rows.read(RunRecord, self._find(run_id, what=RUN))
            row = self._find(run_id, what=f"{METADATA}, output")
            new, output = self._rows.read(records.RunSummary, row), self._rows.open(row["output"])
            return RunRecord(**{**vars(known), **vars(new), "output": output})

    async def summarise_run(self, run_id: str) -> records.RunSummary:
        with self._faults():
            return self._rows.read(records.RunSummary, self._find(run_id, what=METADATA))

    async def inspect_run(self, run_id: str) -> records.RunInspection:
        with self._faults():
            db = self._db
            db.execute("BEGIN")
            try:
                return self._inspect(run_id)
            finally:
                with suppress(StorageFault):  # the first error is the one to report
                    db.execute("ROLLBACK")

    def _inspect(self, run_id: str) -> records.RunInspection:
        def read(kind: Any, table: str, order: str) -> list[Any]:
            sql = f"SELECT {columns(kind)} FROM {table} WHERE run_id = ?1 ORDER BY {order}"
            return [self._rows.read(kind, row) for row in self._db.rows(sql, run_id)]

        run = self._rows.read(RunRecord, self._find(run_id, what=RUN))
        steps = read(records.StepRecord, "steps", "idx")
        tried = "attempts JOIN (SELECT step_id, idx FROM steps WHERE run_id = ?1) USING (step_id)"
        attempts = read(StepAttempt, tried, "idx, number") if steps else []
        checkpoints = read(records.StepCheckpoint, "checkpoints", "idx") if steps else []
        resolutions = read(records.ResolutionRecord, "resolutions", "version")
        return records.RunInspection(run, steps, attempts, checkpoints, resolutions)

    async def list_runs(self, wanted: records.RunFilter) -> list[records.RunSummary]:
        where: dict[str, Any] = {}
        index = ""
        if wanted.status is not None:
            where["status = ?"] = RunStatus(wanted.status).value
        if wanted.definition_id is not None:
            where["definition_id = ?"] = wanted.definition_id
        if wanted.lease is not None:
            index = "INDEXED BY runs_by_lease"  # else all runs are looked through in their order
            where["status = 'RUNNING' AND lease_expires_at <= ?"] = self.clock.now().timestamp()
        with self._faults():
            if wanted.after is not None:
                where["seq > ?"] = self._find(wanted.after, what="seq, version")["seq"]
            sql = f"SELECT {METADATA} FROM runs {index} WHERE {' AND '.join(where) or 'TRUE'}"
            found = self._db.rows(f"{sql} ORDER BY seq LIMIT ?", *where.values(), wanted.limit)
            return [self._rows.read(records.RunSummary, row) for row in found]

    async def read_journal(
        self, run_id: str | None = None, *, after: int = 0
    ) -> Sequence[dict[str, Any]]:
        where, values = ("run_id = ? AND ", (run_id,)) if run_id is not None else ("", ())
        sql = f"SELECT * FROM journal WHERE {where}seq > ? ORDER BY seq"
        with self._faults():
            return [dict(row) for row in self._db.rows(sql, *values, after)]

    async def create_run(self, run: RunRecord) -> RunRecord:
        with self._writing() as now:
            for row in self._db.rows(f"SELECT {RUN} FROM runs WHERE run_id = ?", run.run_id):
                stored = self._rows.read(RunRecord, row)
                for name in ("definition_id", "definition_version", "input", "history"):
                    if getattr(stored, name) != getattr(run, name):
                        why = f"run {run.run_id} has another {name}; use another id"
                        raise errors.DuplicateRunError(why)
                return stored
            sql = """INSERT INTO runs (run_id, definition_id, definition_version, status, version,
                created_at, updated_at, input, history, snapshot)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
            of = (run.definition_id, run.definition_version)
            times = (run.created_at.timestamp(), run.updated_at.timestamp())
            payloads = map(self._rows.seal, (run.input, run.history, run.snapshot))
            self._db.execute(sql, run.run_id, *of, run.status.value, run.version, *times, *payloads)
            created = {"run_id": run.run_id, "lease_owner": None}
            self._event(now, created, "task_created", definition=of[0], version=of[1])
        return run

    async def acquire_lease(
        self, claim: Claim, change: Change | None = None
    ) -> records.RunInspection:
        with self._writing() as now:
            run = self._acquire(now, self._find(claim.run_id, claim.expected_version), claim)
            if change:
                self._move(now, run, change)
            return self._inspect(claim.run_id)  # a payload that cannot be read undoes all of it

    def _acquire(self, now: datetime, run: Row, claim: Claim) -> Row:
        if RunStatus(run["status"]).is_terminal:
            why = f"run {run['run_id']} is {run['status']}: it has ended"
            raise errors.IllegalRunTransitionError(why)
        if self._is_leased(run, now):
            raise self._not_held(run, "it is being advanced")
        sql = """UPDATE runs SET lease_owner = ?, lease_epoch = lease_epoch + 1,
            lease_expires_at = ? WHERE run_id = ? RETURNING """
        until = (now + claim.ttl).timestamp()
        [run] = self._db.rows(sql + GUARDED, claim.owner, until, claim.run_id)
        self._event(now, run, "run_started", epoch=run["lease_epoch"])
        return run

    async def renew_lease(self, hold: Hold, ttl: timedelta) -> records.RunSummary:
        with self._writing() as now:
            self._held(hold, now)
            sql = "UPDATE runs SET lease_expires_at = ? WHERE run_id = ?"
            self._db.execute(sql, (now + ttl).timestamp(), hold.run_id)
            return self._rows.read(records.RunSummary, self._find(hold.run_id, what=METADATA))

    async def release_lease(self, hold: Hold) -> None:
        with self._writing():
            run = self._find(hold.run_id)
            if run["lease_epoch"] != hold.epoch:
                raise self._not_held(run, f"epoch {hold.epoch} is over")
            self._db.execute(f"UPDATE runs SET {FREE} WHERE run_id = ?", hold.run_id)

    async def change_run(self, hold: Hold, change: Change) -> Receipt:
        with self._writing() as now:
            return self._move(now, self._held(hold, now), change)

    def _move(self, now: datetime, run: Row, change: Change, *, by_cancel: bool = True) -> Receipt:
        """The transition with its journal entry. The lease ends with everything but RUNNING."""
        if change.to not in records.TRANSITIONS.get(RunStatus(run["status"]), ()):
            why = f"run {run['run_id']} is {run['status']}: it cannot become {change.to}"
            raise errors.IllegalRunTransitionError(why)
        requested = run["cancel_requested_at"] is not None
        if requested and by_cancel and change.to in (RunStatus.SUCCEEDED, RunStatus.FAILED):
            change = Change(RunStatus.CANCELLED)
        is_over = change.to is not RunStatus.RUNNING
        sql = """UPDATE runs SET version = version + 1, status = ?, output = ?, waiting_reason = ?,
            waiting_step_id = ?, error_code = ?, updated_at = ?"""
        sql += f", {FREE} WHERE run_id = ?" if is_over else " WHERE run_id = ?"
        new = (change.to.value, self._rows.seal(change.output), *change[2:])
        self._db.execute(sql, *new, now.timestamp(), run["run_id"])
        if is_over:
            kind = _ENDS.get(change.to, f"task_{change.to.lower()}")
            at, code = change.waiting_step_id, change.error_code
            self._event(now, run, kind, at, reason=change.waiting_reason, code=code)
        if change.to.is_terminal:
            sql = "UPDATE steps SET status = 'FAILED', error_code = ? WHERE run_id = ?"
            self._db.execute(f"{sql} AND status = 'RUNNING'", change.error_code, run["run_id"])
        return Receipt(run["version"] + 1, requested)

    async def begin_attempt(
        self, hold: Hold, step: records.NewStep, budget: tuple[int, int] | None
    ) -> tuple[StepAttempt | None, Receipt]:
        with self._writing() as now:
            run = self._held(hold, now)
            receipt = self._receipt(run)
            if run["status"] != RunStatus.RUNNING:
                why = f"run {hold.run_id} is {run['status']}: no attempt begins"
                raise errors.IllegalRunTransitionError(why)
            if receipt.cancel_requested or (budget and self._is_used_up(run, step, budget)):
                return None, receipt
            return self._begin(now, run, step), receipt

    def _is_used_up(self, run: Row, step: records.NewStep, budget: tuple[int, int]) -> bool:
        sql = """SELECT count(*) >= ? OR count(*) FILTER (WHERE model_purpose = ?) >= ?
            FROM attempts WHERE run_id = ? AND model_purpose IS NOT NULL"""
        return bool(self._db.value(sql, budget[0], step.purpose, budget[1], run["run_id"]))

    def _begin(self, now: datetime, run: Row, step: records.NewStep, **told: Any) -> StepAttempt:
        """The next attempt, RUNNING. The step must be: a checkpoint is never tried again."""
        key, at = (run["run_id"], step.step_id), now.timestamp()
        sql = """SELECT (SELECT count(*) + 1 FROM attempts WHERE run_id = ?1 AND step_id = ?2),
            EXISTS (SELECT 1 FROM attempts WHERE run_id = ?1 AND status = 'RUNNING'),
            (SELECT status FROM steps WHERE run_id = ?1 AND step_id = ?2),
            (SELECT count(*) FROM steps WHERE run_id = ?1)"""
        [(number, is_open, status, idx)] = self._db.rows(sql, *key)
        if is_open or status not in (None, "RUNNING"):
            why = f"step {key[1]} has its checkpoint or an open attempt: none follows"
            raise errors.IllegalRunTransitionError(why)
        if status is None:
            sql = "INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'RUNNING', NULL, NULL, ?)"
            call = self._rows.seal(step.call)
            kept = (idx, step.step_type, step.name, step.effect, call, step.purpose, at)
            self._db.execute(sql, *key, *kept)
        of = {"run_id": key[0], "step_id": key[1], "number": number, "model_purpose": step.purpose}
        new = StepAttempt(attempt_id=f"{key[1]}#{number}", status=RUNNING, created_at=now, **of)
        sql = "INSERT INTO attempts VALUES (?,?,?,?, 'RUNNING', NULL, NULL, ?, ?, NULL, NULL, NULL)"
        self._db.execute(sql, *key, number, new.attempt_id, step.purpose, at)
        told = {"type": step.step_type, "name": step.name, "effect": step.effect, **told}
        self._event(now, run, "step_started", key[1], number, **told)
        return new

    async def record_success(self, hold: Hold, attempt: StepAttempt, output: str) -> Receipt:
        with self._writing() as now:
            run = self._held(hold, now)
            self._succeed(now, run, attempt, output)
            return self._receipt(run)

    def _succeed(
        self, now: datetime, run: Row, attempt: StepAttempt, output: str, **told: Any
    ) -> None:
        sql = "UPDATE attempts SET status = 'SUCCEEDED', output = ?, finished_at = ?"
        self._end_attempt(sql, run, attempt, self._rows.seal(output), now.timestamp())
        sql = """UPDATE steps SET status = 'SUCCEEDED', checkpoint_attempt_id = ?
            WHERE run_id = ? AND step_id = ?"""
        self._db.execute(sql, attempt.attempt_id, run["run_id"], attempt.step_id)
        self._event(now, run, "step_finished", attempt.step_id, attempt.number, **told)

    async def record_failure(
        self,
        hold: Hold,
        attempt: StepAttempt,
        failed: records.Failed,
        *,
        change: Change | None,
        recovered: bool = False,
    ) -> Receipt:
        with self._writing() as now:
            run = self._held(hold, now)
            sql = """UPDATE attempts SET status = 'FAILED', classification = ?, error_code = ?,
                error = ?, finished_at = ?"""
            kind, code, message = failed
            error = self._rows.seal(message)
            self._end_attempt(sql, run, attempt, kind, code, error, now.timestamp())
            told = {"classification": kind, "code": code}
            event = "step_recovered" if recovered else "step_error"
            self._event(now, run, event, attempt.step_id, attempt.number, **told)
            return self._move(now, run, change) if change else self._receipt(run)

    def _end_attempt(self, sql: str, run: Row, attempt: StepAttempt, *values: Any) -> None:
        sql = f"{sql} WHERE run_id = ? AND step_id = ? AND number = ? AND status = 'RUNNING'"
        key = (run["run_id"], attempt.step_id, attempt.number)
        changed = self._db.execute(sql, *values, *key)
        if changed != 1 or attempt.run_id != run["run_id"]:
            why = f"attempt {attempt.attempt_id} is not running; it ends once"
            raise errors.IllegalRunTransitionError(why)

    @staticmethod
    def _receipt(run: Row) -> Receipt:
        return Receipt(run["version"], run["cancel_requested_at"] is not None)

    async def resolve_run(self, claim: Claim, resolution: RunResolution) -> records.RunInspection:
        with self._writing() as now:
            run, action = self._find(claim.run_id, what=METADATA), resolution.action
            waiting = self._rows.read(records.RunSummary, run)
            require_resolvable(waiting, resolution, claim.expected_version)
            run = self._acquire(now, run, claim)
            sql = "INSERT INTO resolutions VALUES (?, ?, ?, ?, ?, ?, ?)"
            said = (resolution.actor, self._rows.seal(resolution.reason), now.timestamp())
            key = (claim.run_id, waiting.version)
            self._db.execute(sql, *key, action, waiting.waiting_step_id, *said)
            at, actor = waiting.waiting_step_id, resolution.actor
            self._event(now, run, "run_resolved", at, action=action, actor=actor)
            if action is records.ResolutionAction.FAIL_RUN:
                self._move(now, run, Change(RunStatus.FAILED, error_code=action), by_cancel=False)
            elif action is records.ResolutionAction.CANCEL_RUN:
                self._move(now, run, Change(RunStatus.CANCELLED))
            else:
                self._resolve_step(now, run, resolution)
            return self._inspect(claim.run_id)

    def _resolve_step(self, now: datetime, run: Row, said: RunResolution) -> None:
        self._move(now, run, Change(RunStatus.RUNNING))
        key = (run["run_id"], run["waiting_step_id"])
        sql = f"SELECT {columns(records.StepRecord)} FROM steps WHERE run_id = ? AND step_id = ?"
        [row] = self._db.rows(sql, *key)
        step = self._rows.read(records.StepRecord, row)
        new = records.NewStep(step.step_id, step.step_type, step.name, step.effect, step.call)
        if said.action is records.ResolutionAction.RETRY_STEP:
            self._withdraw_cancel(key[0])  # who retries wants the run to go on
            self._begin(now, run, new, authorised=True)
        elif step.call:
            attempt, outcome = self._begin(now, run, new), outcome_of(said, step.call)
            self._succeed(now, run, attempt, outcome, action=said.action)
        else:
            why = f"step {step.step_id} is no tool's: it has no outcome to confirm or reject"
            raise errors.ResolutionNotAllowedError(why)

    async def request_cancel(
        self, run_id: str, actor: str | None, *, expected_version: int | None
    ) -> records.RunSummary:
        with self._writing() as now:
            run = self._find(run_id, expected_version)
            if run["status"] != RunStatus.RUNNING:
                raise errors.IllegalRunTransitionError(f"run {run_id} is {run['status']} by now")
            sql = """UPDATE runs SET cancel_requested_by = ?, cancel_requested_at = ?
                WHERE run_id = ? AND cancel_requested_at IS NULL"""
            if self._db.execute(sql, actor, now.timestamp(), run_id):
                self._event(now, run, "cancel_requested", actor=actor)
            return self._rows.read(records.RunSummary, self._find(run_id, what=METADATA))

    def _withdraw_cancel(self, run_id: str) -> None:
        sql = "UPDATE runs SET cancel_requested_at = NULL, cancel_requested_by = NULL"
        self._db.execute(f"{sql} WHERE run_id = ?", run_id)


class _MemoryDatabase(Database):
    """A connection that has no file, so that there is none to look after."""

    def __init__(self) -> None:
        self.path, self.tool_ran = ":memory:", False
        self._sql = sqlite3.connect(":memory:", isolation_level=None)
        self._sql.row_factory = sqlite3.Row
        for statement in tables.schema()[2]:
            self.execute(statement)

    def check_file(self) -> None:
        self.tool_ran = False


class InMemoryRunStore(SQLiteRunStore):
    """The same verbs and statements on a database without a file, which ends with the process.

    Rejected: a second store over dicts. Every guard would stand twice, and a program tested on the
    one could break on the other."""

    def __init__(
        self, payload_codec: PayloadCodec | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(":memory:", payload_codec or PlaintextPayloadCodec(), clock)

    def _connect(self, *, create: bool) -> Database:
        found = _MemoryDatabase()
        self._require_codec(found)
        return found

    def _recover_from_fault(self) -> None:
        with suppress(StorageFault):  # SQLite may have rolled back by itself
            self._db.execute("ROLLBACK")

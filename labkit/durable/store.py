"""The store of runs as verbs. Each is one transaction: all of it is stored, or nothing.

Every write under a lease names its Hold. It raises StaleRunVersionError if the run has moved on,
LeaseNotHeldError if the lease has expired or another epoch has begun, StoreBusyError if nothing
could be written for now, and any other StoreError if the storage failed."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

from labkit.durable import records
from labkit.durable.clocks import Clock
from labkit.durable.records import Change, Claim, Hold, Receipt, RunRecord, StepAttempt
from labkit.durable.resolution import RunResolution

__all__ = ["RunStore"]


class RunStore(Protocol):
    clock: Clock

    async def create_run(self, run: RunRecord) -> RunRecord:
        """Stores it, or returns the one that is stored under its id from an equal request.
        Raises DuplicateRunError for an id that belongs to another one."""

    async def get_run(self, run_id: str, known: RunRecord | None = None) -> RunRecord:
        """Raises RunNotFoundError. What never changes is taken from a `known` record of it."""

    async def summarise_run(self, run_id: str) -> records.RunSummary:
        """Its metadata alone. Raises RunNotFoundError."""

    async def inspect_run(self, run_id: str) -> records.RunInspection:
        """One consistent snapshot. Raises RunNotFoundError."""

    async def list_runs(self, wanted: records.RunFilter) -> list[records.RunSummary]: ...

    async def read_journal(
        self, run_id: str | None = None, *, after: int = 0
    ) -> Sequence[dict[str, Any]]:
        """The rows of the view `journal` with `seq > after`, of one run or of all."""

    async def acquire_lease(
        self, claim: Claim, change: Change | None = None
    ) -> records.RunInspection:
        """Takes a free or expired lease under a new epoch, with a transition if one is given.
        Raises LeaseNotHeldError while anybody holds it, the same owner included."""

    async def renew_lease(self, hold: Hold, ttl: timedelta) -> records.RunSummary: ...

    async def release_lease(self, hold: Hold) -> None:
        """Frees it. Allowed to an expired lease, as long as nobody has taken it over."""

    async def begin_attempt(
        self, hold: Hold, step: records.NewStep, budget: tuple[int, int] | None
    ) -> tuple[StepAttempt | None, Receipt]:
        """Reserves the next attempt of a step, and stores the step with its first one. None, and
        nothing stored, where a cancel is requested, or the model `budget`, for the run and for the
        purpose, is used up."""

    async def record_success(self, hold: Hold, attempt: StepAttempt, output: str) -> Receipt:
        """Transaction 1: the attempt, its result, the step's checkpoint and the journal."""

    async def record_failure(
        self,
        hold: Hold,
        attempt: StepAttempt,
        failed: records.Failed,
        *,
        change: Change | None,
        recovered: bool = False,
    ) -> Receipt:
        """Transactions 2 and, `recovered`, 4: the attempt's end, the run's, and the journal."""

    async def change_run(self, hold: Hold, change: Change) -> Receipt:
        """A transition by itself; to anything but RUNNING it releases the lease. Where a cancel
        is requested, a run that would succeed or fail is CANCELLED."""

    async def resolve_run(self, claim: Claim, resolution: RunResolution) -> records.RunInspection:
        """Transaction 3: the lease, the resolution, and what it makes of the run and its step."""

    async def request_cancel(
        self, run_id: str, actor: str | None, *, expected_version: int | None
    ) -> records.RunSummary:
        """The one write without an epoch: who asked, when. The version stays as it is."""

"""The lease of one advance: what is known of it, and how it is kept while a call takes long."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TypeVar

from labkit.durable.clocks import Clock
from labkit.durable.errors import LeaseNotHeldError, StoreBusyError
from labkit.durable.records import Hold, Receipt, RunRecord
from labkit.durable.store import RunStore
from labkit.errors import LabkitError

__all__ = ["Held", "patiently"]

PAUSE = timedelta(milliseconds=20)
Result = TypeVar("Result")


async def patiently(
    verb: Callable[[], Awaitable[Result]], clock: Clock, until: Callable[[], datetime]
) -> Result:
    """The verb's result; a busy store is asked again. Raises StoreBusyError at `until`."""
    while True:
        try:
            return await verb()
        except StoreBusyError:
            if clock.now() + PAUSE >= until():
                raise
        await clock.sleep_until(clock.now() + PAUSE)


class Held:
    """A lease in hand. `cancel_requested` is as fresh as the last write or renewal."""

    def __init__(self, store: RunStore, run: RunRecord, ttl: timedelta) -> None:
        self._store, self._ttl = store, ttl
        self.hold = Hold(run.run_id, run.lease_epoch, run.version)
        self.owner = run.lease_owner
        self.expires_at = run.lease_expires_at or store.clock.now()
        self.cancel_requested = run.cancel_requested_at is not None
        self._refused: Exception | None = None

    def note(self, receipt: Receipt) -> None:
        self.hold = self.hold._replace(version=receipt.version)
        self.cancel_requested = receipt.cancel_requested

    async def require(self) -> None:
        """Raises LeaseNotHeldError once it has expired or a renewal was refused. Renews what is
        due: calls that block the loop, each a short one, leave no other time for it."""
        if not self._refused and self._store.clock.now() >= self._renew_at():
            await self._renew()
        if self._refused or self._store.clock.now() >= self.expires_at:
            why = f"run {self.hold.run_id}: the lease of epoch {self.hold.epoch} has expired"
            raise LeaseNotHeldError(f"{why}; resume the run", self.owner, self.expires_at)

    async def write(self, verb: Callable[[], Awaitable[Result]]) -> Result:
        return await patiently(verb, self._store.clock, lambda: self.expires_at)

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """Renews at each third of the time to live, until the block ends or one is refused."""
        renewal = asyncio.create_task(self._renew_for_ever())
        try:
            yield
        finally:
            renewal.cancel()
            await asyncio.wait((renewal,))

    def _renew_at(self) -> datetime:
        return self.expires_at - self._ttl * 2 / 3

    async def _renew_for_ever(self) -> None:
        while not self._refused:
            await self._store.clock.sleep_until(self._renew_at())
            await self._renew()

    async def _renew(self) -> None:
        try:
            run = await self.write(lambda: self._store.renew_lease(self.hold, self._ttl))
        except LabkitError as refusal:
            self._refused = refusal  # nothing more is dispatched; the late result will be refused
        else:
            self.expires_at = run.lease_expires_at or self.expires_at
            self.cancel_requested = run.cancel_requested_at is not None

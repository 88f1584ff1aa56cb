"""The lease of one advance: what is known of it, and how it is kept while a call takes long."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar

from labkit.durable import errors
from labkit.durable.clocks import Clock
from labkit.durable.records import Hold, Receipt, RunRecord
from labkit.durable.store import RunStore

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
        except errors.StoreBusyError:
            if clock.now() + PAUSE >= until():
                raise
        await clock.sleep_until(clock.now() + PAUSE)


class Held:
    """A lease in hand. `cancel_requested` is as fresh as the last write or renewal."""

    def __init__(self, store: RunStore, run: RunRecord, ttl: timedelta) -> None:
        self._store, self._ttl, self._clock = store, ttl, store.clock
        self.hold = Hold(run.run_id, run.lease_epoch, run.version)
        self.owner = run.lease_owner
        self._keep_until(run.lease_expires_at or store.clock.now())
        self.cancel_requested = run.cancel_requested_at is not None
        self._refused: Exception | None = None

    def note(self, receipt: Receipt) -> None:
        self.hold = Hold(self.hold.run_id, self.hold.epoch, receipt.version)
        self.cancel_requested = receipt.cancel_requested

    async def require(self) -> None:
        """Raises LeaseNotHeldError once it has expired or a renewal was refused. Renews what is
        due: calls that block the loop, each a short one, leave no other time for it."""
        if not self._refused and self._clock.now() >= self._renew_at:
            await self._renew()
        if self._refused or self._clock.now() >= self.expires_at:
            why = f"run {self.hold.run_id}: the lease of epoch {self.hold.epoch} is over; resume it"
            raise errors.LeaseNotHeldError(why, self.owner, self.expires_at) from self._refused

    def write(self, verb: Callable[[], Awaitable[Result]]) -> Awaitable[Result]:
        return patiently(verb, self._clock, lambda: self.expires_at)

    async def renewing(self, call: Awaitable[Result]) -> Result:
        """Awaits it, and renews meanwhile at each third of the time to live, until one is refused.
        The task for that begins in the next turn of the loop: a call that ends before has none."""
        tasks: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        begin = loop.call_soon(lambda: tasks.append(loop.create_task(self._renew_for_ever())))
        try:
            return await call
        finally:
            begin.cancel()
            for renewal in tasks:
                renewal.cancel()
                await asyncio.wait(tasks)

    def _keep_until(self, expires_at: datetime) -> None:
        self.expires_at, self._renew_at = expires_at, expires_at - self._ttl * 2 / 3

    async def _renew_for_ever(self) -> None:
        while not self._refused:
            await self._clock.sleep_until(max(self._renew_at, self._clock.now() + PAUSE))
            await self._renew()

    async def _renew(self) -> None:
        with suppress(errors.StoreError):  # a fault: tried again as long as the lease lasts
            try:
                run = await self.write(lambda: self._store.renew_lease(self.hold, self._ttl))
                self._keep_until(run.lease_expires_at or self.expires_at)
                self.cancel_requested = run.cancel_requested_at is not None
            except (errors.LeaseNotHeldError, errors.RunRefused) as refusal:
                self._refused = refusal  # nothing more is dispatched, the late result refused

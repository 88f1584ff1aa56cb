"""The one clock of a store: it decides every lease, so nothing here asks another."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Protocol

from labkit.clock import clock

__all__ = ["Clock", "FakeClock", "SystemClock"]


class Clock(Protocol):
    """`sleep_until` returns at the moment or later, at once if it has passed."""

    def now(self) -> datetime: ...

    async def sleep_until(self, moment: datetime) -> None: ...


class SystemClock:
    """The machine's clock, or what LABKIT_CLOCK says in a scenario of the lab."""

    def __init__(self) -> None:
        self._unix_s = clock()

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._unix_s(), UTC)

    async def sleep_until(self, moment: datetime) -> None:
        while (left := moment - self.now()) > timedelta(0):
            await asyncio.sleep(left.total_seconds())


class FakeClock:
    """Stands still until `advance`, which wakes whoever sleeps until then."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._sleepers: list[tuple[datetime, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._now

    def advance(self, by: timedelta | float) -> None:
        self.set(self._now + (by if isinstance(by, timedelta) else timedelta(seconds=by)))

    def set(self, moment: datetime) -> None:
        self._now = max(self._now, moment)
        for until, woken in self._sleepers:
            if until <= self._now and not woken.done():
                woken.set_result(None)
        self._sleepers = [each for each in self._sleepers if not each[1].done()]

    async def sleep_until(self, moment: datetime) -> None:
        if moment > self._now:
            woken = asyncio.get_running_loop().create_future()
            self._sleepers.append((moment, woken))
            await woken

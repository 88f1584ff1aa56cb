"""Live updates of one advance. They are never stored; the store is the truth."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from labkit.durable.clocks import Clock
from labkit.durable.records import StepType

__all__ = ["Broadcast", "RunUpdate", "RunUpdateType"]


class RunUpdateType(StrEnum):
    STATUS_CHANGED, STEP_STARTED, MODEL_DELTA = "STATUS_CHANGED", "STEP_STARTED", "MODEL_DELTA"
    ATTEMPT_FAILED, STEP_COMPLETED = "ATTEMPT_FAILED", "STEP_COMPLETED"


@dataclass(frozen=True, kw_only=True)
class RunUpdate:
    """`content` is the delta of a MODEL_DELTA. Who shows text replaces it by `attempt_id`: a new
    attempt begins with an empty text, whatever the one before had said."""

    run_id: str
    update_type: RunUpdateType
    step_id: str | None = None
    attempt_id: str | None = None
    step_type: StepType | None = None
    status: str | None = None
    content: str | None = None
    created_at: datetime


class Broadcast:
    """Hands each update to every reader that is there when it comes.

    `is_on`: the advance has begun. A reader may be there before, and must not wait for ever then.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.readers: list[asyncio.Queue[RunUpdate | None]] = []

    def publish(self, kind: RunUpdateType, clock: Clock, **of: Any) -> None:
        for reader in self.readers:
            reader.put_nowait(RunUpdate(update_type=kind, created_at=clock.now(), **of))

    def close(self) -> None:
        self.is_on = False
        for reader in self.readers:
            reader.put_nowait(None)

    async def read(self) -> AsyncIterator[RunUpdate]:
        """What comes from now on, until the advance ends; nothing if none begins now."""
        reader: asyncio.Queue[RunUpdate | None] = asyncio.Queue()
        self.readers.append(reader)
        try:
            await asyncio.sleep(0)  # an advance whose task was made just now begins
            if not self.is_on and reader.empty():
                return
            while (update := await reader.get()) is not None:
                yield update
        finally:
            self.readers.remove(reader)

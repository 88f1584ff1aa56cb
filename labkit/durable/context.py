"""Context: data from outside that the model is shown, read once and kept in a checkpoint."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ContextItem", "ContextProvider", "ContextRequest"]


@dataclass(frozen=True)
class ContextItem:
    item_id: str
    content: str
    source: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ContextRequest:
    input: str


class ContextProvider(ABC):
    @abstractmethod
    async def provide(self, request: ContextRequest) -> Sequence[ContextItem]:
        """May be called again after a crash, and may then see other data."""

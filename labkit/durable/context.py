"""Context: data from outside that the model is shown, read once and kept in a checkpoint."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.durable.plain import build, dump

__all__ = [
    "ContextItem",
    "ContextProvider",
    "ContextRequest",
    "deserialize_items",
    "serialize_items",
]


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


def serialize_items(items: Sequence[ContextItem]) -> str:
    return dump(list(items))


def deserialize_items(text: str) -> tuple[ContextItem, ...]:
    items: tuple[ContextItem, ...] = build(tuple[ContextItem, ...], json.loads(text))
    return items

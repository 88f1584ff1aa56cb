"""A pytest plugin that makes nbval leave HTML and pictures uncompared.

nbval compares every output. A figure's bytes depend on fonts, and a table's HTML carries ids; the
`text/plain` beside them says the same and is compared. An entry point, not a conftest.py: it works
from whatever folder pytest is started in. Every pytest run loads it, so it imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["NOT_COMPARED", "pytest_collectstart"]

NOT_COMPARED = ("text/html", "image/png", "image/jpeg", "image/svg+xml")


def pytest_collectstart(collector: Any) -> None:
    """Only nbval's collector has `skip_compare`; without nbval this does nothing."""
    if hasattr(collector, "skip_compare"):
        collector.skip_compare = (*collector.skip_compare, *NOT_COMPARED)

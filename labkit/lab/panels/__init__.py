"""Panels: widgets over functions that also have a code form. No panel decides or computes.

Read in this order: `parts` (what all panels share), then a panel. Each is shown by
`display(panel)`, or as the last line of a cell, and ended by `panel.close()` or `lab.end()`.

The names load on first use, as those of `labkit.lab` do: ipywidgets is not needed without a panel.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Explorer", "Instructor", "Matrix"]

_HOMES = {
    "Explorer": "explorer",
    "Instructor": "instructor",
    "Matrix": "matrix",
}  # a panel's class, and the module it is in


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

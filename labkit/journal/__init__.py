"""Reads the journal of an agent: frames, laws, stories, timelines. Never writes to it.

Read in this order: `reading` (rows), `fold` (what the events alone say), `verdicts` and `laws` (the
promises judged), `run_rows` and `run_laws` (the same of durable runs), `frames` (the `Journal`),
`story`, `chart` (what a timeline shows), `figure` and `text` (the two that draw it); `explore` and
`starters` (what the journal explorer asks).

The names below load on first use: `labkit journal copy` needs neither pandas nor matplotlib, and a
thousand trials that only ask for the laws need neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.journal.command import copy
    from labkit.journal.figure import timeline, timeline_table
    from labkit.journal.frames import Journal
    from labkit.journal.laws import judge_file
    from labkit.journal.text import timeline_text

__all__ = ["Journal", "copy", "judge_file", "timeline", "timeline_table", "timeline_text"]

_HOMES = {
    "Journal": "frames",
    "copy": "command",
    "judge_file": "laws",
    "timeline": "figure",
    "timeline_table": "figure",
    "timeline_text": "text",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

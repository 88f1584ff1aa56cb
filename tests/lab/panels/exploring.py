"""What the tests of the journal explorer share: to press, choose and read without a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ipywidgets import HTML

from labkit.lab.panels.explorer import Explorer

VIEWS = ["Events", "Timeline", "Replay", "Laws", "SQL"]
DETAILS = ["Row", "JSON", "Neighbours", "Law"]


def said(panel: Explorer) -> str:
    """The status line as somebody reads it."""
    return re.sub(r"<[^>]*>", "", panel.status.value)


def is_fine(panel: Explorer) -> bool:
    return "labkit-failed" not in panel.status.value


def show(panel: Explorer, view: str, detail: str = "") -> None:
    panel.views.buttons.value = view
    if detail:
        panel.events.detail.buttons.value = detail


def choose(panel: Explorer, seq: int) -> None:
    keys = [key for _, key in panel.events.chooser.select.options]
    panel.events.chooser.select.index = keys.index(seq)


def descendants(widget: Any) -> Iterator[Any]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from descendants(child)


def sizes(panel: Explorer) -> dict[str, int]:
    """Characters that each widget holds, pictures apart."""
    held = {
        f"{type(each).__name__} {each._dom_classes} {n}": str(each.get_state())
        for n, each in enumerate(descendants(panel.root))
    }
    return {name: len(s.replace("\\xa0", " ")) for name, s in held.items() if "<img" not in s}


def alt(html: str) -> str:
    found = re.search(r'alt="([^"]*)"', html)
    assert found
    return found[1]


def texts(panel: Explorer) -> Iterator[str]:
    """The HTML that goes to the browser, by widget."""
    yield from (each.value for each in descendants(panel.root) if isinstance(each, HTML))


def visit(panel: Explorer) -> None:
    """Every page, every detail, every question."""
    for view in VIEWS:
        show(panel, view)
    for seq in (4, 5, 7):
        panel.events.chooser.go_to(seq)
        for detail in DETAILS:
            show(panel, "Events", detail)
    for number in range(5):
        panel.sql.starter.index = number + 1


def listed(panel: Explorer) -> list[str]:
    """The journals in the list, and the lines that count them, without the times before them."""
    return [re.sub(r"^\d\d-\d\d \d\d:\d\d  ", "", name) for name, _ in panel.choices.found.options]

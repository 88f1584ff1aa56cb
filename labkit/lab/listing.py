"""Real lines of this package, and files of the run folder, shown in a notebook as they are."""

from __future__ import annotations

import difflib
import inspect
import re
import textwrap
from collections.abc import Callable
from types import ModuleType

__all__ = ["Listing", "show_diff", "show_source"]

Sourced = Callable[..., object] | type | ModuleType


class Listing:
    """A text that a notebook shows in colour and a terminal shows plain."""

    def __init__(self, text: str, language: str) -> None:
        self.text, self.language = text.rstrip("\n"), language

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        # A longer fence than any in the text: what a file holds can never become Markdown.
        longest = max((len(run) for run in re.findall("`+", self.text)), default=0)
        fence = "`" * max(3, longest + 1)
        return f"{fence}{self.language}\n{self.text}\n{fence}"


def show_source(code: Sourced) -> Listing:
    """The lines of a function, a class or a module, as Python runs them."""
    return Listing(_source(code), "python")


def show_diff(before: Sourced, after: Sourced) -> Listing:
    """From one source to the other: lines with - go, lines with + come, the others stay.

    A line that is only indented anew stays.
    """
    old, new = _source(before).splitlines(), _source(after).splitlines()
    match = difflib.SequenceMatcher(None, [x.strip() for x in old], [x.strip() for x in new], False)
    lines: list[str] = []
    for what, old_from, old_to, new_from, new_to in match.get_opcodes():
        if what != "equal":
            lines += [f"-{line}" for line in old[old_from:old_to]]
        mark = " " if what == "equal" else "+"
        lines += [f"{mark}{line}" for line in new[new_from:new_to]]
    return Listing("\n".join(lines), "diff")


def _source(code: Sourced) -> str:
    return textwrap.dedent(inspect.getsource(code))

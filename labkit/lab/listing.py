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
    """What stands in one source and not in the other: lines with - were, lines with + are new."""
    old, new = _source(before).splitlines(), _source(after).splitlines()
    lines = list(difflib.unified_diff(old, new, lineterm="", n=len(old) + len(new)))
    return Listing("\n".join(lines[3:]), "diff")  # the first three say file names and line numbers


def _source(code: Sourced) -> str:
    return textwrap.dedent(inspect.getsource(code))

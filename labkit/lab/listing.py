"""Real lines of this package, and files of the run folder, shown in a notebook as they are."""

from __future__ import annotations

import difflib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from types import ModuleType

from labkit.errors import UsageError

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


def show_source(code: Sourced, only: str = "") -> Listing:
    """The lines of a function, a class or a module, as Python runs them.

    `only` is a regular expression: the other lines become `...`, and comments are left out, so that
    an excerpt is narrow enough for a projector.
    """
    return Listing(_source(code, only), "python")


def show_diff(before: Sourced, after: Sourced, only: str = "") -> Listing:
    """From one source to the other: lines with - go, lines with + come, the others stay.

    A line that is only indented anew stays. `only` is as in `show_source`.
    """
    old, new = _source(before, only).splitlines(), _source(after, only).splitlines()
    match = difflib.SequenceMatcher(None, [x.strip() for x in old], [x.strip() for x in new], False)
    lines: list[str] = []
    for what, old_from, old_to, new_from, new_to in match.get_opcodes():
        if what != "equal":
            lines += [f"-{line}" for line in old[old_from:old_to]]
        mark = " " if what == "equal" else "+"
        lines += [f"{mark}{line}" for line in new[new_from:new_to]]
    return Listing("\n".join(lines), "diff")


def _source(code: Sourced, only: str) -> str:
    try:
        text = textwrap.dedent(inspect.getsource(code))
    except (TypeError, OSError):
        raise UsageError(f"{code!r} has no Python source; give a function or a class") from None
    return "\n".join(_excerpt(text.splitlines(), only)) if only else text


def _excerpt(lines: list[str], only: str) -> Iterator[str]:
    left_out = False
    for line in lines:
        if re.search(only, line):
            yield re.sub(r"  #.*", "", line)
        elif not left_out:
            yield re.sub(r"\S.*", "...", line)
        left_out = not re.search(only, line)

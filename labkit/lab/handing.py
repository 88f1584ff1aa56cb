"""A learner's function reaches an agent as a file of source, since the agent is another process."""

from __future__ import annotations

import builtins
import inspect
import symtable
import textwrap
from collections.abc import Callable
from typing import Any

from labkit.errors import LabkitError, storage_faults
from labkit.lab.folder import Folder
from labkit.restart.plan import BUILT_IN

__all__ = ["TOOLS_FILE", "NotSelfContained", "hand_over", "source_of"]

TOOLS_FILE = "tools.py"
# IPython puts these among the builtins of a notebook; an agent's Python has none of them.
OF_IPYTHON = {"__IPYTHON__", "display", "get_ipython"}


class NotSelfContained(LabkitError):
    """A function needs what only the notebook has; the message names it."""

    exit_code = 65


def hand_over(function: Callable[..., Any], folder: Folder, below: str = "") -> str:
    """Writes the function into a file of the folder and returns the option that names the file.

    `below` is source that follows it there. Raises NotSelfContained for a function that cannot
    work there.
    """
    text = source_of(function)
    _require_self_contained(function, text)
    with storage_faults(f"cannot write {TOOLS_FILE}"):
        (folder.path / TOOLS_FILE).write_text(text + below, encoding="utf-8")
    return f"--tools {TOOLS_FILE}"


def source_of(function: Callable[..., Any]) -> str:
    """The `def` as it was typed. Raises NotSelfContained for what is no plain function."""
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        is_lambda = inspect.isfunction(function)
        what = "a lambda" if is_lambda else f"a value of type {type(function).__name__}"
        raise NotSelfContained(f"{what} is no function made with def")
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        name = function.__name__
        raise NotSelfContained(f"the source of {name} is gone; run its cell again") from None


def _require_self_contained(function: Callable[..., Any], text: str) -> None:
    name = function.__name__
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise NotSelfContained(f"{name} is async; leave the word out, a plain def is called here")
    if inspect.isgeneratorfunction(function):
        raise NotSelfContained(f"{name} has a yield; an agent takes what a return gives")
    if name.startswith("_"):
        raise NotSelfContained(f"{name} begins with _, and an agent does not look at such names")
    if name in BUILT_IN:
        raise NotSelfContained(f"{name} is a tool of the agent already; rename yours")
    if names := ", ".join(inspect.unwrap(function).__code__.co_freevars):
        raise NotSelfContained(f"{name} uses {names} of the function around it; pass it in")
    if names := ", ".join(sorted(_missing(name, text))):
        raise NotSelfContained(f"{name} uses {names} from outside; import or define it inside")


def _missing(name: str, text: str) -> set[str]:
    """The names that the text reads and neither it nor Python defines.

    It is the text that an agent gets, so its decorators, defaults and annotations count too.
    """
    try:
        module = symtable.symtable(text, TOOLS_FILE, "exec")
    except SyntaxError:  # dedent could not find the margin, or this is the inside of a statement
        raise NotSelfContained(f"{name} cannot stand alone; begin its def at the margin") from None
    read, made = _globals(module)
    return read - made - (set(dir(builtins)) - OF_IPYTHON)


def _globals(scope: symtable.SymbolTable) -> tuple[set[str], set[str]]:
    """The global names that are read, and those that are given a value, in all scopes inside."""
    everywhere = scope.get_type() == "module"
    of_module = [s for s in scope.get_symbols() if everywhere or s.is_global()]
    read = {symbol.get_name() for symbol in of_module if symbol.is_referenced()}
    made = {s.get_name() for s in of_module if s.is_assigned() or s.is_imported()}
    for inner in scope.get_children():
        more_read, more_made = _globals(inner)
        read, made = read | more_read, made | more_made
    return read, made

"""A learner's function reaches an agent as a file of source, since the agent is another process."""

from __future__ import annotations

import builtins
import dis
import inspect
import textwrap
from collections.abc import Callable
from types import CodeType
from typing import Any

from labkit.errors import LabkitError, storage_faults
from labkit.lab.folder import Folder

__all__ = ["TOOLS_FILE", "NotSelfContained", "hand_over", "source_of"]

TOOLS_FILE = "tools.py"


class NotSelfContained(LabkitError):
    """A function needs what only the notebook has; the message names it."""

    exit_code = 65


def hand_over(function: Callable[..., Any], folder: Folder) -> str:
    """Writes the function into a file of the folder and returns the option that names the file.

    Raises NotSelfContained for a function that cannot work there.
    """
    text = source_of(function)
    _require_self_contained(function)
    with storage_faults(f"cannot write {TOOLS_FILE}"):
        (folder.path / TOOLS_FILE).write_text(text, encoding="utf-8")
    return f"--tools {TOOLS_FILE}"


def source_of(function: Callable[..., Any]) -> str:
    """The `def` as it was typed. Raises NotSelfContained for what is no plain function."""
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        raise NotSelfContained(f"{function!r} is no function made with def")
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        name = function.__name__
        raise NotSelfContained(f"the source of {name} is gone; run its cell again") from None


def _require_self_contained(function: Callable[..., Any]) -> None:
    name = function.__name__
    if inspect.iscoroutinefunction(function):
        raise NotSelfContained(f"{name} is async; an agent calls a plain def")
    if function.__code__.co_freevars:
        names = ", ".join(function.__code__.co_freevars)
        raise NotSelfContained(f"{name} uses {names} of the function around it; pass it in")
    if missing := sorted(_globals(function.__code__) - set(dir(builtins)) - {name}):
        names = ", ".join(missing)
        raise NotSelfContained(f"{name} uses {names} from outside; import or define it inside")


def _globals(code: CodeType) -> set[str]:
    """The global names a function reads, in functions inside it too."""
    own = {
        str(step.argval) for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"
    } | {str(step.argval) for step in dis.get_instructions(code) if step.opname == "LOAD_NAME"}
    inside = (_globals(const) for const in code.co_consts if isinstance(const, CodeType))
    return own.union(*inside)

"""In a notebook, an error that labkit raises on purpose is one line, as in a terminal.

`labkit.lab` installs it when it is imported in IPython.
"""

from __future__ import annotations

from labkit.errors import Fatal, LabkitError

__all__ = ["show_errors_in_one_line"]


def show_errors_in_one_line() -> None:
    """Leaves the traceback out; the cell still fails, so "Run All" stops and a test sees it.

    IPython asks an exception for `_render_traceback_`. It is given here, since the ground knows no
    notebook. Rejected: `set_custom_exc`, with which nbval does not see that a cell failed.
    """
    for root in (LabkitError, Fatal):
        root._render_traceback_ = _one_line  # type: ignore[union-attr]


def _one_line(error: BaseException) -> list[str]:
    return [f"{type(error).__name__}: {error}"]

"""Every error that labkit raises on purpose, in one tree, each with its exit code.

    LabkitError                  what a caller may catch and mend
    |- UnknownTask          1    no task of this name
    |- TaskFailed           2    attempts used up, or a permanent failure
    |- UsageError          64    the command line or the environment is wrong
    |- BadInput            65    the plan, the task id or a tools file is refused
    |- NotFound            66    an input file or the database does not exist
    |- ToolError                 a step went wrong: journaled, tried again
       |- PermanentError         trying again cannot help: journaled, the task fails
    Fatal (a BaseException)      what a tool must not swallow with `except Exception`
    |- TakenOver            3    another process runs this task
    |- StorageFault        74    disk full, I/O error, damaged, replaced under the process
    |- StorageBusy         75    another process kept the database busy
    |- Interrupted        130    Ctrl-C

The codes from 64 up are those of `sysexits.h` (`os.EX_USAGE` and its neighbours). Two roots, as DBOS has
them: an error that user code may handle, and a signal that must reach the top.
"""

from __future__ import annotations

__all__ = [
    "BadInput",
    "Fatal",
    "Interrupted",
    "LabkitError",
    "NotFound",
    "PermanentError",
    "StorageBusy",
    "StorageFault",
    "TakenOver",
    "TaskFailed",
    "ToolError",
    "UnknownTask",
    "UsageError",
    "describe",
]


class LabkitError(Exception):
    exit_code = 70


class UnknownTask(LabkitError):
    exit_code = 1


class TaskFailed(LabkitError):
    exit_code = 2


class UsageError(LabkitError):
    exit_code = 64


class BadInput(LabkitError):
    exit_code = 65


class NotFound(LabkitError):
    exit_code = 66


class ToolError(LabkitError):
    """A tool raises it (or any other exception) to say that this attempt failed."""


class PermanentError(ToolError):
    """A tool raises it to say that another attempt cannot help; the task fails at once."""


class Fatal(BaseException):
    exit_code = 70


class TakenOver(Fatal):
    exit_code = 3


class StorageFault(Fatal):
    exit_code = 74


class StorageBusy(Fatal):
    exit_code = 75


class Interrupted(Fatal):
    exit_code = 130


def describe(error: BaseException, limit: int = 2000) -> str:
    """The type and message of any exception as valid UTF-8 of at most `limit` characters."""
    try:
        text = str(error)
    except Exception:  # a learner's __str__ may raise; the journal still needs a line
        text = "(its message cannot be printed)"
    name = type(error).__name__
    line = text if isinstance(error, LabkitError) else f"{name}: {text}" if text else name
    return line[:limit].encode("utf-8", "backslashreplace").decode()

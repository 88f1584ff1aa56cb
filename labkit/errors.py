"""Every error that labkit raises on purpose, in one tree, with its exit code (from 64: sysexits.h).

LabkitError                what a caller may catch and mend
|- UnknownTask        1    no task of this name
|- TaskFailed         2    attempts used up, or a permanent failure
|- UsageError        64    the command line or the environment is wrong
|- BadInput          65    the plan, the task id or a tools file is refused
|- NotFound          66    an input file or the database does not exist
|- ToolError               a tool says that this attempt failed
   |- PermanentError       ... and that no other attempt can help
Fatal                      what a tool cannot swallow with `except Exception`
|- TakenOver          3    another process runs this task
|- StorageFault      74    disk full, I/O error, damaged, replaced under the process
|- StorageBusy       75    another process kept the database busy
Interrupted         130    Ctrl-C, a KeyboardInterrupt told from those that a tool raises"""

from collections.abc import Iterator
from contextlib import contextmanager

TYPE_CHECKING = False  # importing `typing` would take a tenth of the time of `status`
if TYPE_CHECKING:
    from typing import Any as Any
else:
    Any = object

__all__ = ["BadInput", "Fatal", "Interrupted", "LabkitError", "NotFound", "PermanentError",
    "StorageBusy", "StorageFault", "TakenOver", "TaskFailed", "ToolError", "UnknownTask",
    "UsageError", "describe", "ensure", "storage_faults"]  # fmt: skip


class _HasCode:
    exit_code = 70

    def __init_subclass__(cls, code: int = 70) -> None:
        cls.exit_code = code


class LabkitError(_HasCode, Exception): ...


class UnknownTask(LabkitError, code=1): ...


class TaskFailed(LabkitError, code=2): ...


class UsageError(LabkitError, code=64): ...


class BadInput(LabkitError, code=65): ...


class NotFound(LabkitError, code=66): ...


class ToolError(LabkitError): ...


class PermanentError(ToolError): ...


class Fatal(_HasCode, BaseException): ...


class TakenOver(Fatal, code=3): ...


class StorageFault(Fatal, code=74): ...


class StorageBusy(Fatal, code=75): ...


class Interrupted(_HasCode, KeyboardInterrupt, code=130): ...


def ensure(holds: object, error: BaseException) -> None:
    if not holds:
        raise error


def describe(error: BaseException) -> str:  # valid UTF-8, at most 2,000 characters
    try:
        text = str.__str__(str(error))  # exactly a str, whatever a learner's class returned
    except BaseException:  # its __str__ raised, perhaps a SystemExit; the journal needs a line
        text = "(its message cannot be printed)"
    line = text if hasattr(type(error), "exit_code") else f"{type(error).__name__}: {text}"
    return line[:2000].encode("utf-8", "backslashreplace").decode()


@contextmanager
def storage_faults(doing: str) -> Iterator[None]:  # never around a tool: its OSError is its own
    try:
        yield
    except OSError as e:  # shutil.Error has a list instead: of each file from, to, and the cause
        why = e.strerror or (e.args[0][0][-1].split(": '")[0] if list in map(type, e.args) else e)
        raise StorageFault(f"{doing}: {why}; mend the storage, try again") from e

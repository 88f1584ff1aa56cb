"""One call to the outside, between two transactions: with its time-out, and what it ended as."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from labkit.durable.errors import FailureClassification, StepFailure
from labkit.durable.records import Failed
from labkit.errors import describe

__all__ = ["attempt_call"]

UNCLASSIFIED_FAILURE, TIMED_OUT = "UNCLASSIFIED_FAILURE", "TIMED_OUT"
_Result = TypeVar("_Result")


async def attempt_call(
    call: Callable[[], Awaitable[_Result]],
    timeout_s: float | None,
    *,
    asserts: type[StepFailure],
    is_safe: bool,
) -> _Result | Failed:
    """The result, or how it failed.

    Only `asserts` says what happened outside: a tool that asks a model in its turn may meet a
    ModelFailure after it has sent its mail. `is_safe`: any other exception leaves nothing in doubt.
    A cancelled task leaves as CancelledError: that is no failure of the call. Anything that no
    program should swallow, such as KeyboardInterrupt, leaves too."""
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return await call()
    except asserts as failure:
        code = failure.code[:100].encode("utf-8", "backslashreplace").decode()
        return Failed(failure.classification, code, describe(failure))
    except TimeoutError as error:
        if limit.expired():
            why = f"no answer within {timeout_s:g} s"
            return Failed(FailureClassification.UNCERTAIN, TIMED_OUT, why)
        return _unexpected(error, is_safe)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _unexpected(error, is_safe)  # the callee was cancelled by somebody else
    except Exception as error:
        return _unexpected(error, is_safe)


def _unexpected(error: BaseException, is_safe: bool) -> Failed:
    kind = FailureClassification.PERMANENT if is_safe else FailureClassification.UNCERTAIN
    return Failed(kind, UNCLASSIFIED_FAILURE, describe(error))

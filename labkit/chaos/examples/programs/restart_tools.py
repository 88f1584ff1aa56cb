"""--tools of the restart agent: the steps of the task, by the names that the plan has."""

from typing import Any

import task


def read_notes(input: Any, ctx: Any, idem_key: str) -> str:
    return task.fetch()


def shorten(input: Any, ctx: Any, idem_key: str) -> str:
    return task.summarize(ctx[0])


def deliver(input: Any, ctx: Any, idem_key: str) -> str:
    return task.send(ctx[1])

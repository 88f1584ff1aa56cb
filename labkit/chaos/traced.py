"""`python -m labkit.chaos.traced MODULE ...`: runs a module and counts its SQL statements.

LABKIT_STATEMENT=N kills the process before its N-th statement, or, if N is one more than there are,
before it ends; 0 kills nothing. The file LABKIT_STATEMENT_MARK gets what was counted: the
statement that was not executed, or all of them, each with a NUL after it.

What a trigger executes is not counted.
"""

from __future__ import annotations

import os
import runpy
import signal
import sqlite3
import sys
from typing import Any

__all__: list[str] = []

CHANGES = ("INSERT", "UPDATE", "DELETE")
END = "the end of the process"
connect = sqlite3.connect
seen: list[str] = []


def _traced_connect(*args: Any, **options: Any) -> sqlite3.Connection:
    connection: sqlite3.Connection = connect(*args, **options)
    connection.set_trace_callback(_reached)
    return connection


def _reached(statement: str) -> None:
    if statement.startswith(CHANGES) and seen and statement == seen[-1]:
        return  # a trigger of that statement: SQLite tells of it with the same text
    seen.append(statement)
    if len(seen) == int(os.environ["LABKIT_STATEMENT"]):
        _mark(statement)
        os.kill(os.getpid(), signal.SIGKILL)


def _mark(text: str) -> None:
    with open(os.environ["LABKIT_STATEMENT_MARK"], "w", encoding="utf-8") as file:
        file.write(text)


def _main() -> None:
    _, module, *rest = sys.argv
    sys.argv[1:] = rest
    sqlite3.connect = _traced_connect  # type: ignore[assignment]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        _reached(END)
        if os.environ["LABKIT_STATEMENT"] == "0":
            _mark("".join(f"{statement}\0" for statement in seen))


if __name__ == "__main__":
    _main()

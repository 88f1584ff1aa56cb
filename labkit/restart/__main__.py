"""The command line: what a user types, and one line with an exit code for whatever comes of it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NoReturn

from labkit import clock
from labkit.database import Database, connect, look
from labkit.errors import (
    BadInput,
    Fatal,
    LabkitError,
    NotFound,
    StorageFault,
    UnknownTask,
    UsageError,
)
from labkit.restart.agent import CTRL_C, read_settings, run
from labkit.restart.plan import TASK_ID, check_task_id, read_plan
from labkit.restart.store import SCHEMA, create_task, find_task, list_steps, read_journal, same_plan
from labkit.restart.tools import load_tools

__all__ = ["main"]


def main(argv: Sequence[str] | None = None, prog: str = "python -m labkit.restart") -> int:
    """Runs one command; returns its exit code. A storage fault ends the process without closing the database."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # a closed descriptor leaves None
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    try:
        args = _parser(prog).parse_args(argv)
        _print(COMMANDS[args.command](args))
        return 0
    except (LabkitError, Fatal) as error:
        _complain(prog, str(error))
        if isinstance(error, StorageFault):
            os._exit(
                error.exit_code
            )  # closing would fsync again, and a repeated fsync can say that all is well
        return error.exit_code
    except KeyboardInterrupt:
        _complain(prog, "interrupted; nothing was lost")
        return 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {' '.join(self.format_usage().split())}")


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=prog, description="A durable agent with a fixed plan.", allow_abbrev=False
    )
    parser.add_argument(
        "--db", default="state.db", metavar="PATH", help="the database (default: state.db)"
    )
    parser.add_argument(
        "--tools",
        action="append",
        default=[],
        metavar="FILE.py",
        help="a file whose functions become tools; repeatable",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # No options here, so that an id like -x is refused as an id (65) and not taken for an option (64).
    create = commands.add_parser(
        "create", help="store a task with its whole plan", prefix_chars="\0", add_help=False
    )
    create.add_argument("task", metavar="TASK_ID")
    create.add_argument("plan", metavar="PLAN.json")
    for name, text in (
        ("run", "carry a task to its end"),
        ("status", "print a task as JSON"),
        ("export", "print a task's journal as JSON Lines"),
    ):
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        command.add_argument("task", metavar="TASK_ID")
        if name == "run":
            command.add_argument(
                "--retry",
                action="store_true",
                help="give the failed step of a failed task fresh attempts",
            )
    return parser


def _create(args: argparse.Namespace) -> Iterable[str]:
    check_task_id(args.task)
    try:
        with open(args.plan, "rb") as file:
            text = file.read()
    except OSError as error:
        raise NotFound(f"{args.plan}: {error.strerror}; check the path of the plan") from None
    plan = read_plan(text, args.plan, load_tools(args.tools))
    ts = clock.clock()()
    database = connect(args.db, SCHEMA, create=True)
    if create_task(database, args.task, plan, ts):
        return [f"task {args.task} is created with {len(plan['steps'])} steps"]
    task = find_task(database, args.task)
    if task and not same_plan(database, task, plan):
        raise BadInput(f"task {args.task} exists with another plan; use another task id")
    return [f"task {args.task} exists with this plan"]


def _run(args: argparse.Namespace) -> Iterable[str]:
    CTRL_C.install()
    settings = read_settings(os.environ)
    _require_possible(args)
    return [run(args.db, args.task, load_tools(args.tools), settings, retry=args.retry)]


def _status(args: argparse.Namespace) -> Iterable[str]:
    database = _open(args)
    task = find_task(database, args.task)
    if not task:
        raise _unknown(args)
    steps = [
        {"idx": s.idx, "tool": s.tool, "status": s.status, "attempts": s.attempts}
        for s in list_steps(database, task.id)
    ]
    return [
        json.dumps(
            {"task": task.id, "goal": task.goal, "status": task.status, "steps": steps},
            ensure_ascii=False,
            indent=2,
        )
    ]


def _export(args: argparse.Namespace) -> Iterable[str]:
    database = _open(args)
    if not find_task(database, args.task):
        raise _unknown(args)
    return (json.dumps(event, ensure_ascii=False) for event in read_journal(database, args.task))


COMMANDS = {"create": _create, "run": _run, "status": _status, "export": _export}


def _open(args: argparse.Namespace) -> Database:
    _require_possible(args)
    database = look(args.db, SCHEMA)
    if database is None:
        raise _unknown(args)
    return database


def _require_possible(args: argparse.Namespace) -> None:
    """An id that `create` refuses names no task; it must not become a part of a path either."""
    if not TASK_ID.fullmatch(args.task):
        raise _unknown(args)


def _unknown(args: argparse.Namespace) -> UnknownTask:
    return UnknownTask(f"no task {args.task!r:.130} in {args.db}; `create` it first")


def _print(lines: Iterable[str]) -> None:
    try:
        for line in lines:
            print(line)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a full disk can still be told
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), 1
        )  # `export | head` has read enough; Python flushes once more at its end
    except OSError as error:
        raise StorageFault(f"cannot write the output: {error.strerror}") from error


def _complain(prog: str, message: str) -> None:
    """One line, without control characters: a message can hold what a tool, a model or a file name said."""
    line = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in message
    )
    with suppress(OSError):
        print(f"{prog}: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

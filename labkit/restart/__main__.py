"""The command line: what a user types, and for whatever comes of it one line and an exit code."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, cast

from labkit import errors
from labkit.database import connect
from labkit.restart.agent import Agent
from labkit.restart.plan import check_task_id, read_plan
from labkit.restart.store import SCHEMA, Store, list_steps, open_task, read_journal
from labkit.restart.tools import load_tools


def main(argv: Sequence[str] | None = None, prog: str = "python -m labkit.restart") -> int:
    """Runs one command and returns its exit code; after a storage fault the process ends here."""
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None where a descriptor is closed
        cast(Any, stream).reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        args = _parse(list(sys.argv[1:] if argv is None else argv), prog)
        lines = COMMANDS[args.command](args)
        errors.ensure(sys.stdout, errors.StorageFault("standard output is closed"))
        with errors.storage_faults("cannot write the output"):
            sys.stdout.writelines(f"{line}\n" for line in lines)
            sys.stdout.flush()  # here, where a full disk can still be told
        return 0
    except (errors.LabkitError, errors.Fatal, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, BrokenPipeError):  # `export | head` has read enough
            os._exit(0)
        text = str(error) or "interrupted"  # which a tool, a model or a file's name may have worded
        line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
        print(f"{prog}: {line}", file=sys.stderr, flush=True)
        if isinstance(error, errors.StorageFault):
            os._exit(error.exit_code)  # a close would fsync again, and a repeated fsync can lie
        return getattr(error, "exit_code", errors.Interrupted.exit_code)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise errors.UsageError(f"{message}; {' '.join(self.format_usage().split())}")


def _parse(argv: list[str], prog: str) -> argparse.Namespace:
    parser = _Parser(prog=prog, allow_abbrev=False)
    parser.add_argument("--db", default="state.db", help="the database (default: state.db)")
    parser.add_argument("--tools", action="append", default=[], help="a file of tools; repeatable")
    parser.add_argument("--retry", action="store_true", help="run: fresh attempts after a failure")
    parser.add_argument("command", choices=COMMANDS, help="store, carry to its end, print, journal")
    parser.add_argument("task", help="the task's id")
    parser.add_argument("plan", nargs="?", help="create: a JSON file with goal and steps")
    if "create" in argv:  # what follows is no option: -x is a bad task id (65), no bad option (64)
        argv.insert(argv.index("create") + 1, "--")
    args = parser.parse_args(argv)
    if (args.command == "create") != bool(args.plan) or (args.retry and args.command != "run"):
        parser.error("PLAN.json goes with create, --retry with run")
    return args


def _create(args: argparse.Namespace) -> Iterable[str]:
    check_task_id(args.task)
    try:
        with open(args.plan, "rb") as file:
            plan = read_plan(file.read(), load_tools(args.tools))
    except OSError as error:
        raise errors.NotFound(f"{args.plan}: {error.strerror}; check the path") from None
    stored = Store(connect(args.db, SCHEMA, create=True), args.task).create(plan)
    return [f"task {args.task} {'is created' if stored else 'exists, with this plan'}"]


def _run(args: argparse.Namespace) -> Iterable[str]:
    return [Agent(args.task, load_tools(args.tools)).run(args.db, retry=args.retry)]


def _status(args: argparse.Namespace) -> Iterable[str]:
    db, task = open_task(args.db, args.task)
    steps = [{key: step[key] for key in STEP} for step in list_steps(db, args.task)]
    status = {"task": task["id"], "goal": task["goal"], "status": task["status"], "steps": steps}
    return [json.dumps(status, ensure_ascii=False, indent=2)]


def _export(args: argparse.Namespace) -> Iterable[str]:
    db, _ = open_task(args.db, args.task)
    return (json.dumps(event, ensure_ascii=False) for event in read_journal(db, args.task))


STEP = ("idx", "tool", "status", "attempts")
COMMANDS = {"create": _create, "run": _run, "status": _status, "export": _export}


if __name__ == "__main__":
    sys.exit(main())

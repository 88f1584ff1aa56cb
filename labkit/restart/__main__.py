"""The command line: what a user types, and for whatever comes of it one line and an exit code."""

import getopt  # not argparse: importing and building it takes longer than the rest of `status`
import json
import os
import sys
from collections.abc import Iterable, Sequence

from labkit import errors
from labkit.database import connect
from labkit.restart.plan import check_task_id, read_plan
from labkit.restart.store import SCHEMA, Store, list_steps, open_task, read_journal

USAGE = """usage: {prog} [--db PATH] [--tools FILE.py]... COMMAND   (PATH is state.db if not given)
  create TASK_ID PLAN.json   store a task with its whole plan
  run [--retry] TASK_ID      carry it to its end; --retry: fresh attempts for a failed step
  status TASK_ID             print it as JSON
  export TASK_ID             print its journal as JSON Lines"""
WORDS = {"create": 2, "run": 1, "status": 1, "export": 1}


def main(argv: Sequence[str] | None = None, prog: str = "python -m labkit.restart") -> int:
    streams: list[errors.Any] = [sys.stdout, sys.stderr]  # None where a descriptor is closed
    for stream in filter(None, streams):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        lines = _obey(sys.argv[1:] if argv is None else argv, prog)
        errors.ensure(sys.stdout and not sys.stdout.closed, errors.StorageFault("stdout is closed"))
        with errors.storage_faults("cannot write the output"):
            sys.stdout.writelines(f"{line}\n" for line in lines)
            sys.stdout.flush()  # here, where a full disk can still be told
        return 0
    except BaseException as error:  # also what a tool left behind, such as a signal handler
        if isinstance(error.__cause__, BrokenPipeError):  # `export | head` has read enough
            os._exit(0)
        code: int = getattr(error, "exit_code", 130 if type(error) is KeyboardInterrupt else 70)
        text = (c if c.isprintable() else ascii(c)[1:-1] for c in errors.describe(error))
        try:
            sys.stderr.write(f"{prog}: {''.join(text)}\n")
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):  # nobody reads it
            sys.stderr = None  # else Python's own flush ends in 120
        if isinstance(error, errors.StorageFault | KeyboardInterrupt):
            os._exit(code)  # no close, which would fsync again, and no wait for a tool's threads
        return code


def _obey(argv: Sequence[str], prog: str) -> Iterable[str]:
    try:
        options, words = getopt.gnu_getopt(argv, "h", ["help", "db=", "tools=", "retry"])
    except getopt.GetoptError as error:
        if "create" in argv and not error.msg.startswith("option --"):
            check_task_id(f"-{error.opt}")  # a task id that is refused (65), no bad option (64)
        raise errors.UsageError(f"{error}; see {prog} --help") from None
    given, (command, *words) = dict(options), words or [""]
    if {"-h", "--help"} & set(given):
        return [USAGE.format(prog=prog)]
    bad = errors.UsageError(f"{command!r}: see {prog} --help for the commands and their words")
    fits = len(words) == WORDS.get(command) and (command == "run" or "--retry" not in given)
    errors.ensure(fits, bad)
    db, tools = given.get("--db", "state.db"), [v for n, v in options if n == "--tools"]
    if command == "run":
        from labkit.restart.agent import Agent

        return [Agent(words[0], tools).run(db, retry="--retry" in given)]
    if command == "create":
        check_task_id(words[0])
        return [_create(db, tools, *words)]
    return _show(command, db, *words)


def _create(db: str, tools: list[str], task_id: str, path: str) -> str:
    from labkit.restart.tools import load_tools

    try:
        with open(path, "rb") as file:
            plan = read_plan(file.read(), load_tools(tools))
    except OSError as error:
        raise errors.NotFound(f"{path}: {error.strerror}; check the path") from None
    stored = Store(connect(db, SCHEMA, create=True), task_id).create(plan)
    return f"task {task_id} {'is created' if stored else 'exists, with this plan'}"


def _show(command: str, path: str, task_id: str) -> Iterable[str]:
    db, task = open_task(path, task_id)
    if command == "export":
        return (json.dumps(event, ensure_ascii=False) for event in read_journal(db, task_id))
    steps = [{k: v for k, v in dict(s).items() if k != "input"} for s in list_steps(db, task_id)]
    status = {"task": task_id, "goal": task["goal"], "status": task["status"], "steps": steps}
    return [json.dumps(status, ensure_ascii=False, indent=2)]


if __name__ == "__main__":
    sys.exit(main())

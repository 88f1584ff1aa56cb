"""The command line: what a user types, and for whatever comes of it one line and an exit code."""

import getopt  # not argparse: importing and building it takes longer than the rest of `status`
import json
import os
import sys
from collections.abc import Iterable, Sequence

from labkit import errors
from labkit.database import connect
from labkit.restart.store import SCHEMA, Store, list_steps, open_task, read_journal

USAGE = """usage: {prog} [--db PATH] [--tools FILE.py]... COMMAND
  create TASK_ID PLAN.json   store a task with its whole plan
  run [--retry] TASK_ID      carry it to its end; --retry: fresh attempts for a failed step
  status TASK_ID             print it as JSON
  export TASK_ID             print its journal as JSON Lines
The database is state.db unless --db says otherwise. The functions in FILE.py become tools."""
WORDS = {"create": 2, "run": 1, "status": 1, "export": 1}
STEP = ("idx", "tool", "status", "attempts")


def main(argv: Sequence[str] | None = None, prog: str = "python -m labkit.restart") -> int:
    """Runs one command and returns its exit code; after a storage fault the process ends here."""
    streams: list[errors.Any] = [sys.stdout, sys.stderr]  # None where a descriptor is closed
    for stream in filter(None, streams):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        lines = _obey(sys.argv[1:] if argv is None else argv, prog)
        errors.ensure(sys.stdout, errors.StorageFault("standard output is closed"))
        with errors.storage_faults("cannot write the output"):
            sys.stdout.writelines(f"{line}\n" for line in lines)
            sys.stdout.flush()  # here, where a full disk can still be told
        return 0
    except (errors.LabkitError, errors.Fatal, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, BrokenPipeError):  # `export | head` has read enough
            os._exit(0)
        text = (c if c.isprintable() else ascii(c)[1:-1] for c in str(error) or "interrupted")
        print(f"{prog}: {''.join(text)}", file=sys.stderr, flush=True)
        if isinstance(error, errors.StorageFault):
            os._exit(error.exit_code)  # a close would fsync again, and a repeated fsync can lie
        return getattr(error, "exit_code", errors.Interrupted.exit_code)


def _obey(argv: Sequence[str], prog: str) -> Iterable[str]:
    """Options, a command, its words: so in `create -x PLAN.json` -x is a bad task id, no option."""
    try:
        options, words = getopt.getopt(argv, "h", ["help", "db=", "tools="])
        command, *words = words or [""]
        flags, words = getopt.gnu_getopt(words, "", ["retry"]) if command == "run" else ([], words)
    except getopt.GetoptError as error:
        raise errors.UsageError(f"{error}; see {prog} --help") from None
    if {"-h", "--help"} & set(dict(options)):
        return [USAGE.format(prog=prog)]
    db, tools = dict(options).get("--db", "state.db"), [v for n, v in options if n == "--tools"]
    bad = errors.UsageError(f"wrong words after {command or 'the options'!r}; see {prog} --help")
    errors.ensure(len(words) == WORDS.get(command), bad)
    if command == "run":
        from labkit.restart.agent import Agent

        return [Agent(words[0], tools).run(db, retry=bool(flags))]
    if command == "create":
        return [_create(db, tools, *words)]
    return _show(command, db, *words)


def _create(db: str, tools: list[str], task_id: str, path: str) -> str:
    from labkit.restart.plan import check_task_id, read_plan
    from labkit.restart.tools import load_tools

    check_task_id(task_id)
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
    steps = [{key: step[key] for key in STEP} for step in list_steps(db, task_id)]
    status = {"task": task["id"], "goal": task["goal"], "status": task["status"], "steps": steps}
    return [json.dumps(status, ensure_ascii=False, indent=2)]


if __name__ == "__main__":
    sys.exit(main())

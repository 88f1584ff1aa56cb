"""`labkit runs`: which runs there are, how one stands, and what goes on with it."""

from __future__ import annotations

import asyncio
import getopt
import json
import os
import sys
from collections.abc import Awaitable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any

from labkit import durable
from labkit.database import Database, look
from labkit.durable import Runner, RunResolution, RunStatus, RunSummary, SystemClock
from labkit.durable.stores.rows import METADATA, Rows
from labkit.durable.stores.schema import schema
from labkit.errors import BadInput, Fatal, LabkitError, NotFound, UsageError, describe, ensure

__all__ = ["main"]

USAGE = """usage: labkit runs COMMAND ...   (FILE is state.db if not given; APP is MODULE:NAME)
  list [--db FILE] [--status STATUS] [--definition ID] [--expired] [--limit N] [--after RUN_ID]
       [--json]                               a line for each run, from the file alone
  show [--db FILE] RUN_ID                     one run as JSON, from the file alone
  resume --app APP [--wait] RUN_ID            go on with it; --wait: once another's lease has ended
  cancel --app APP [--version N] RUN_ID       end it, as soon as that is safe
  resolve --app APP --version N RUN_ID ANSWER [--reason TEXT] [--actor NAME]
     ANSWER: retry --step ID | confirm --step ID (--result TEXT | --result-file FILE)
             | reject --step ID --code CODE --message TEXT | fail | cancel
exit: 0 SUCCEEDED or shown, 2 FAILED, REJECTED or CANCELLED, 3 another advances it, 4 WAITING"""
LISTED, SAID = "status= definition= after=", "step= result= code= message= reason= actor="
COMMANDS = {  # which words follow, which options it takes, and which it needs
    "list": ("", f"db= limit= expired json {LISTED}", ""),
    "show": ("RUN_ID", "db=", ""),
    "resume": ("RUN_ID", "app= wait", "app"),
    "cancel": ("RUN_ID", "app= version=", "app"),
    "resolve": ("RUN_ID ANSWER", f"app= version= result-file= {SAID}", "app version"),
}
ANSWERS = {each.value.split("_")[0].lower(): each for each in durable.ResolutionAction}
del ANSWERS["continue"]  # no run waits for it yet
ASKS = {"confirm": ["result"], "reject": ["code", "message"]}
HOW = {"app": "--app MODULE:NAME", "version": "--version N, which `labkit runs list` shows"}
HOW |= {"ANSWER": f"one of {', '.join(ANSWERS)}", "result": "--result TEXT or --result-file FILE"}
EXIT = {"SUCCEEDED": 0, "RUNNING": 3, "WAITING": 4}
AT = "(SELECT idx FROM steps s WHERE (s.run_id, s.step_id) = (attempts.run_id, attempts.step_id))"
PARTS = {"steps": "idx", "attempts": f"{AT}, number", "resolutions": "version"}  # in order


def main(argv: list[str]) -> int:
    """Runs one command. `labkit.cli` makes a line and an exit code of what it raises."""
    command, words, given = _parse(argv)
    if command in ("", "list", "show"):
        for text in _read(command, words, given) if command else [USAGE]:
            print(_harmless(text))
        return 0
    given["said"] = _resolution(words[1], given) if command == "resolve" else None
    there, runner = {*os.listdir()}, _load(given["app"])
    try:
        code, text = asyncio.run(_tell(runner, _go_on(runner, command, words[0], given), there))
    except (LabkitError, Fatal, KeyboardInterrupt):
        raise
    except BaseException as error:  # of the application's code; its exit is not ours
        raise BadInput(f"--app {given['app']} raised {describe(error)}; mend it") from error
    print(_harmless(text))
    return code


def _parse(argv: list[str]) -> tuple[str, list[str], dict[str, Any]]:
    every = ["help", *" ".join(options for _, options, _ in COMMANDS.values()).split()]
    try:
        "".join(argv).encode()  # no byte that is no UTF-8
        options, words = getopt.gnu_getopt(argv, "h", every)
    except (getopt.GetoptError, UnicodeEncodeError) as error:
        raise UsageError(f"{error}; see labkit runs --help") from None
    given: dict[str, Any] = {name.lstrip("-"): value for name, value in options}
    if {"h", "help"} & given.keys():
        return "", [], {}
    asks, takes, needs = COMMANDS.get("".join(words[:1]), ("? " * len(words), "", ""))
    fits = {*needs.split()} <= given.keys() <= {*takes.replace("=", "").split()}
    ensure(fits and len(words) == len(asks.split()) + 1, UsageError(_unfit(words, given)))
    for name in {"limit", "version"} & given.keys():
        fits = given[name].isascii() and given[name].isdecimal() and len(given[name]) < 19
        ensure(fits and int(given[name]), UsageError(f"--{name} {given[name]}: use 1 or more"))
        given[name] = int(given[name])
    return words[0], words[1:], given


def _unfit(words: list[str], given: dict[str, Any]) -> str:
    asks, _, needs = COMMANDS.get("".join(words[:1]), ("", "", ""))
    if "db" in given and needs:
        return f"{words[0]} takes no --db; the Runner of --app names its file"
    wanted = [*needs.split(), *asks.split()[len(words) - 1 :]]
    lacks = "; and ".join(HOW.get(name, name) for name in wanted if name not in given)
    why = f"give {lacks}" if lacks else "see labkit runs --help for words and options"
    return f"{' '.join(words) or 'no command'}: {why}"


def _resolution(answer: str, given: dict[str, Any]) -> RunResolution:
    ensure(answer in ANSWERS, UsageError(f"no answer {answer}; use {', '.join(ANSWERS)}"))
    said = {name: given[name] for name in SAID.replace("=", "").split() if name in given}
    if path := given.get("result-file"):
        ensure("result" not in said, UsageError("use --result or --result-file, not both"))
        try:
            with open(path, encoding="utf-8") as file:
                said["result"] = file.read()
        except OSError as error:
            raise NotFound(f"{path}: {error.strerror}; check the path") from None
        except UnicodeDecodeError:
            raise BadInput(f"{path} is not UTF-8 text") from None
    wanted = [HOW.get(name, f"--{name} TEXT") for name in ASKS.get(answer, ()) if name not in said]
    ensure(not wanted, UsageError(f"{answer}: give {' and '.join(wanted)}"))
    return RunResolution(ANSWERS[answer], waiting_step_id=said.pop("step", None), **said)


def _load(app: str) -> Runner:
    module, _, name = app.partition(":")
    ensure(module and name, UsageError(f"--app {app}: use MODULE:NAME, as in shop:runner"))
    ensure(not module.endswith(".py"), UsageError(f"--app {app}: write {module[:-3]} without .py"))
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(import_module(module), name, None)
        found = found() if callable(found) and not iscoroutinefunction(found) else found
    except (LabkitError, Fatal, KeyboardInterrupt):
        raise
    except BaseException as error:
        is_away = isinstance(error, ModuleNotFoundError) and error.name == module
        do = f"run it in the folder of {module}.py" if is_away else "mend it"
        raise BadInput(f"--app {app}: {describe(error)}; {do}") from error
    if isinstance(found, Runner):
        return found
    raise BadInput(f"--app {app}: {name} in {module} is no Runner, and gives none; check the name")


async def _tell(runner: Runner, going: Awaitable[RunSummary], there: set[str]) -> tuple[int, str]:
    """The exit code, and how the run stands, with the error of its last attempt if that failed."""
    try:
        run = await going
    except durable.RunNotFoundError as error:  # an application makes its store when imported
        made = [name for name in {*os.listdir()} - there if os.path.exists(f"{name}-wal")]
        if made and not await runner.list_runs(limit=1):
            error.args = (f"{error}; {made[0]} (-wal, -shm) is new and holds no run: remove it",)
        raise
    at, tried = run.waiting_step_id, (await runner.inspect_run(run.run_id)).attempts
    last = [each for each in tried if at in (None, each.step_id)][-1:]
    why = [f"\n{a.attempt_id}  {a.classification}: {a.error!r}" for a in last if a.error]
    return EXIT.get(run.status, 2), "".join([_line(run), *why])


async def _go_on(runner: Runner, command: str, run_id: str, given: dict[str, Any]) -> RunSummary:
    if said := given["said"]:
        at = (await runner.get_run(run_id)).waiting_step_id
        needs = at and said.action.endswith("_STEP") and said.waiting_step_id is None
        ensure(not needs, UsageError(f"give --step {at}, where run {run_id} waits"))
        return await runner.resolve_run(run_id, said, given["version"])
    if command == "cancel":
        return await runner.cancel_run(run_id, given.get("version"))
    while not (run := await runner.get_run(run_id)).status.is_terminal:
        try:
            return await runner.resume_run(run_id)
        except durable.LeaseNotHeldError as held:
            if "wait" not in given or held.expires_at is None:
                held.args = (str(held) + "; or its process died: --wait" * bool(held.owner),)
                raise
            left = max((held.expires_at - runner.store.clock.now()).total_seconds(), 0)
            print(_harmless(f"{held}; waiting {left:.0f} s"), flush=True)
            await runner.store.clock.sleep_until(held.expires_at)
    return run


def _read(command: str, words: list[str], given: dict[str, Any]) -> Iterator[str]:
    path = given.get("db", "state.db")
    ensure(os.path.exists(path), NotFound(f"{path} does not exist; check the folder, or use --db"))
    db = look(path, schema())
    if not db:  # its creation was cut off
        ensure(command == "list", durable.RunNotFoundError("no run is in this file yet"))
        return
    with closing(db):
        db.execute("BEGIN")  # one moment for all that is read
        if command == "show":
            yield _show(db, words[0])
            return
        for run in _select(db, *_wanted(db, given)):
            yield _json(vars(run)) if "json" in given else _line(run)


def _select(db: Database, where: str, values: list[Any]) -> Iterator[RunSummary]:
    rows = Rows(durable.PlaintextPayloadCodec())  # of these columns none went through a codec
    for row in db.rows(f"SELECT {METADATA} FROM runs WHERE {where}", *values):
        yield rows.read(RunSummary, row)


def _wanted(db: Database, given: dict[str, Any]) -> tuple[str, list[Any]]:
    status = given.get("status") and given["status"].upper()
    why = f"--status {status}: use {', '.join(RunStatus)}"
    ensure(status in (None, *RunStatus), UsageError(why))
    where = {"status = ?": status, "definition_id = ?": given.get("definition")}
    if after := given.get("after"):
        where["seq > ?"] = db.value("SELECT seq FROM runs WHERE run_id = ?", after)
        ensure(where["seq > ?"], durable.RunNotFoundError(f"--after {after:.80}: no such run"))
    if "expired" in given:
        where["status = 'RUNNING' AND lease_expires_at <= ?"] = SystemClock().now().timestamp()
    chosen = {sql: value for sql, value in where.items() if value is not None}
    sql = f"{' AND '.join(chosen) or 'TRUE'} ORDER BY seq LIMIT ?"
    return sql, [*chosen.values(), given.get("limit", 100)]


def _show(db: Database, run_id: str) -> str:
    for run in _select(db, "run_id = ?", [run_id]):
        shown = {**vars(run), "allowed_resolutions": durable.allowed_resolutions(run)}
        for table, order in PARTS.items():  # payloads are BLOBs, and no BLOB is asked for
            sql = "SELECT name FROM pragma_table_info(?) WHERE type <> 'BLOB' AND name <> 'run_id'"
            names = [row[0] for row in db.rows(sql, table)]
            sql = f"SELECT {', '.join(names)} FROM {table} WHERE run_id = ? ORDER BY {order}"
            rows = (map(_timed, row) for row in db.rows(sql, run_id))
            shown[table] = [dict(zip(names, row, strict=True)) for row in rows]
        return _json(shown, indent=2)
    raise durable.RunNotFoundError(f"no run {run_id:.80} in this file; see `labkit runs list`")


def _timed(value: Any) -> Any:  # every REAL is a time
    return datetime.fromtimestamp(value, UTC) if isinstance(value, float) else value


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, default=datetime.isoformat, ensure_ascii=False, indent=indent)


def _line(run: RunSummary) -> str:
    allowed = durable.allowed_resolutions(run)
    answers = ", ".join(answer for answer, action in ANSWERS.items() if action in allowed)
    at = f" at {run.waiting_step_id}" if run.waiting_step_id else ""
    until = "until" if run.has_valid_lease(SystemClock().now()) else "ended"
    parts = {
        f"{run.run_id}  {run.status}  {run.definition_id} {run.definition_version}  "
        f"version {run.version}": True,
        f"waits for {run.waiting_reason}{at}; answers: {answers}": run.waiting_reason,
        f"error {run.error_code}": run.error_code,
        f"lease of {run.lease_owner} {until} {run.lease_expires_at}": run.lease_owner,
        "cancel requested": run.cancel_requested_at and not run.status.is_terminal,
    }
    return "  ".join(text for text, is_so in parts.items() if is_so).replace("\n", "\\n")


def _harmless(text: str) -> str:  # nothing that a terminal would obey, and JSON stays JSON
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)

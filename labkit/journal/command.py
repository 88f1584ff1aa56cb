"""`labkit journal copy|story|timeline`: what a terminal needs of a journal."""

from __future__ import annotations

import argparse
import io
import os
import sqlite3
import sys
from typing import NoReturn

from labkit.errors import BadInput, Fatal, LabkitError, NotFound, StorageFault, UsageError
from labkit.files import sync_folder
from labkit.journal.reading import open_journal, plain

__all__ = ["copy", "main"]


def main(argv: list[str]) -> int:
    """Runs one command and returns its exit code; an error is one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal in ASCII must not end in a traceback
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        _run(_parse(argv))
        sys.stdout.flush()
    except (LabkitError, Fatal) as error:
        print(f"labkit journal: {plain(str(error), 1000)}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # `... | head`; the null device takes what Python flushes at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def copy(source: str, target: str) -> None:
    """Makes one file that can be mailed: a plain copy of a `.db` loses the rows that are still in
    its `-wal`.

    One snapshot of the source, which is only read and may be in use, in journal mode DELETE, so
    that the copy needs no second file. The target appears whole or not at all. Raises NotFound for
    a missing source, BadInput where the target exists, StorageFault.
    """
    if os.path.lexists(target):
        raise BadInput(f"{target} exists; choose a new name, nothing was overwritten")
    reader = open_journal(source)
    folder, name = os.path.split(os.path.abspath(target))
    if not os.path.isdir(folder):
        raise NotFound(f"the folder {folder} does not exist; make it first")
    made = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
    try:
        reader.execute("VACUUM INTO ?", made)
        _publish(made, target)
        sync_folder(folder)
    finally:
        reader.close()
        if os.path.lexists(made):
            os.unlink(made)


def _publish(made: str, target: str) -> None:
    with open(made, "rb") as file:  # no connection of this process has it open any more
        version = file.read(20)[18:20]
        os.fsync(file.fileno())
    if version != b"\x01\x01":  # 2 is WAL (SQLite file format, section 1.3.3)
        raise StorageFault(
            f"{target}: SQLite {sqlite3.sqlite_version} copied in WAL mode; update it"
        )
    try:
        os.link(made, target)  # not a rename: it never replaces
    except FileExistsError:
        raise BadInput(f"{target} exists; choose a new name, nothing was overwritten") from None


def _run(args: argparse.Namespace) -> None:
    if args.command == "copy":
        copy(args.source, args.target)
        print(f"{args.target}: one file, journal mode DELETE")
    elif args.command == "story":
        from labkit.journal.story import tell

        print(tell(args.db, args.task))
    else:
        from labkit.journal.text import timeline_text

        print(timeline_text(args.db, args.task, width=args.width))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; `{self.prog} --help` says more")


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="labkit journal", description="Copy or read a journal, without changing it."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    copying = commands.add_parser("copy", help="make one file of a database and its -wal")
    copying.add_argument("source", metavar="SRC")
    copying.add_argument("target", metavar="DST")
    for name, what in (("story", "a task in sentences"), ("timeline", "a task's timeline as text")):
        reading = commands.add_parser(name, help=what)
        reading.add_argument("db", metavar="DB")
        reading.add_argument("task", metavar="TASK")
    reading.add_argument(
        "--width", type=int, default=100, help="columns for the bars (default 100)"
    )
    args = parser.parse_args(argv)
    if args.command == "timeline" and args.width < 1:
        parser.error("--width must be 1 or more")
    return args

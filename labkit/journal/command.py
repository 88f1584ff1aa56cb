"""`labkit journal copy|story|timeline`: what a terminal needs of a journal."""

from __future__ import annotations

import argparse
import os
import sqlite3
from typing import NoReturn

from labkit.errors import BadInput, NotFound, StorageFault, UsageError, storage_faults
from labkit.files import _give_name, sync_folder
from labkit.journal.reading import open_journal

__all__ = ["copy", "main"]


def main(argv: list[str]) -> int:
    """Runs one command. `labkit.cli` makes a line and an exit code of what it raises."""
    _run(_parse(argv))
    return 0


def copy(source: str, target: str) -> None:
    """Makes one file that can be mailed: a plain copy of a `.db` loses the rows that are still in
    its `-wal`.

    One snapshot of the source, which is only read and may be in use, in journal mode DELETE, so
    that the copy needs no second file. The target appears whole or not at all. Raises NotFound for
    a missing source, BadInput where the target exists, StorageFault.
    """
    if not os.path.basename(target):
        raise BadInput(f"{target!r} names no file; give the copy a name")
    if os.path.lexists(target):
        raise BadInput(f"{target} exists; choose a new name, nothing was overwritten")
    folder, name = os.path.split(os.path.abspath(target))
    if not os.path.isdir(folder):
        raise NotFound(f"the folder {folder} does not exist; make it first")
    reader = open_journal(source)
    made = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
    with storage_faults(f"cannot make {target}"):
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
    if not _give_name(made, target):  # never replaces, also where there are no hard links
        raise BadInput(f"{target} exists; choose a new name, nothing was overwritten")


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

    def print_help(self, file: object = None) -> None:  # argparse's own hides a full disk
        print(self.format_help(), end="")


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

"""Publishes one report of three sectors, then says so: a program small enough to see all its disks.

    python -m labkit.lab.scenarios.one_report by_link
    python -m labkit.lab.scenarios.one_report nested artifacts 3

The last line is `nested`, which lacks one fsync, with a fsync of `artifacts` after its call 3.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial

from labkit.files import publish_once, sync_folder
from labkit.lab.scenarios import publishers

__all__ = ["CALLS", "FOLDER", "NAME", "TEXT", "main"]

FOLDER, NAME = "artifacts", "week.md"
INNER, TEMPORARY = f"{FOLDER}/2026", f"{FOLDER}/2026/.{NAME}.tmp"
TEXT = "".join(f"Line {n:02} of the report on the pump in hall B.\n" for n in range(30)).encode()
WAYS = {
    "in_place": publishers.in_place,
    "by_rename": publishers.by_rename,
    "by_link": publishers.by_link,
    "publish_once": publish_once,
}


def main(argv: list[str]) -> int:
    if argv[0] == "nested":
        _nested(*argv[1:])
    else:
        WAYS[argv[0]](FOLDER, NAME, TEXT)
    os.write(1, b"published\n")
    return 0


def _nested(path: str = "", after: str = "") -> None:
    for number, (_, call) in enumerate(CALLS):
        call()
        if path and number == int(after):
            sync_folder(path)


def _create() -> None:
    os.close(os.open(TEMPORARY, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


def _write() -> None:
    file = os.open(TEMPORARY, os.O_WRONLY)
    os.write(file, TEXT)
    os.close(file)


CALLS: tuple[tuple[str, Callable[[], object]], ...] = (
    (f"mkdir {FOLDER}", partial(os.mkdir, FOLDER)),
    ("fsync .", partial(sync_folder, ".")),
    (f"mkdir {INNER}", partial(os.mkdir, INNER)),
    (f"create {TEMPORARY}", _create),
    (f"write {TEMPORARY}", _write),
    (f"fsync {TEMPORARY}", partial(sync_folder, TEMPORARY)),
    (f"link {INNER}/{NAME}", partial(os.link, TEMPORARY, f"{INNER}/{NAME}")),
    (f"unlink {TEMPORARY}", partial(os.unlink, TEMPORARY)),
    (f"fsync {INNER}", partial(sync_folder, INNER)),
)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

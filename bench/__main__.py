"""`python -m bench [--dir FOLDER] [--rounds N] [FIGURE ...]`: measures, and prints one table.

Exits 0 if every figure is reached, 1 if one is missed or not measured, 64 if asked wrongly.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.contenders import PEERS
from bench.figures import FIGURES, Bench, Row, measure_all

IN_MEMORY = {"tmpfs", "ramfs"}
HEAD = ("figure", "to reach", "measured", "", "in full", "beside it")
MISSING = "pip install -e '.[bench]' adds them"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("figure", nargs="*", help=f"only these: {', '.join(FIGURES)}")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="a folder on the disk to use")
    parser.add_argument("--rounds", type=int, default=5, help="a figure is the median of so many")
    args = parser.parse_args()
    kind = file_system(args.dir)
    if unknown := sorted(set(args.figure) - set(FIGURES)):
        return refuse(f"no figure {unknown[0]}; there are {', '.join(FIGURES)}")
    if kind in IN_MEMORY:
        return refuse(f"{args.dir} is {kind}, where a sync costs nothing; give a disk with --dir")
    if args.rounds < 1 or not os.path.isdir(args.dir):
        return refuse("--rounds must be 1 or more, and --dir a folder that exists")
    with tempfile.TemporaryDirectory(prefix="labkit-bench-", dir=args.dir) as folder:
        rows = []
        for row in measure_all(Bench(Path(folder), args.rounds), args.figure):
            print(f"bench: {row.figure}: {shown(row)}", file=sys.stderr)
            rows.append(row)
    print("\n".join([machine(kind), "", *table(rows), "", *notes()]))
    return any(row.verdict != "reached" for row in rows)


def refuse(why: str) -> int:
    print(f"bench: {why}", file=sys.stderr)
    return os.EX_USAGE


def file_system(folder: str) -> str:
    """The type of the file system that holds the folder: ext4, apfs, tmpfs, ..."""
    if sys.platform == "darwin":
        argv = ["mount"]
        mounts = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        found = [(w[2], w[3].strip("(,")) for w in map(str.split, mounts.splitlines())]
    else:
        text = Path("/proc/self/mounts").read_text("utf-8")
        found = [(w[1], w[2]) for w in map(str.split, text.splitlines())]
    path = Path(folder).resolve()
    return max(
        ((place, kind) for place, kind in found if path.is_relative_to(place)),
        key=lambda mount: len(mount[0]),
        default=("", "unknown file system"),
    )[1]


def machine(kind: str) -> str:
    made_of = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    cores = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    load = f"load {os.getloadavg()[0]:.1f}"  # above about 1 other work takes part in every figure
    return f"{date.today()}, {kind}, {cores}, {made_of}, {load}"


def shown(row: Row) -> str:
    return "-" if row.value is None else f"{row.value:.3g} {row.unit}".strip()


def table(rows: list[Row]) -> list[str]:
    """Markdown, and readable as it stands."""
    cells = [
        (r.figure, f"≤ {r.limit:g} {r.unit}".strip(), shown(r), r.verdict, r.detail, r.beside)
        for r in rows
    ]
    widths = [max(map(len, column)) for column in zip(HEAD, *cells, strict=True)]
    ruler = tuple("-" * width for width in widths)
    return [
        "| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in (HEAD, ruler, *cells)
    ]


def notes() -> list[str]:
    """Which peers took part; what was not measured here."""
    peers = [f"{peer.name} {release(peer.package)}" for peer in PEERS if peer.is_installed]
    missing = [peer.name for peer in PEERS if not peer.is_installed]
    lines = ["* quoted, not measured here: that program is not part of this project."]
    lines += [f"Peers: {', '.join(peers)}."] if peers else []
    lines += [f"Not installed: {', '.join(missing)}; {MISSING}."] if missing else []
    return lines


def release(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())

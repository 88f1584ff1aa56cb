"""`labkit doctor`: is this machine ready for the lab, and if not, what to do.

Most trouble with notebooks is one question: which interpreter is behind the kernel? So the first
rows say where this Python and this labkit are, and one row asks Jupyter what `python3` starts.
The rows need no third-party package: a machine without them is what they are for.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from labkit.errors import NotFound, UsageError

__all__ = [
    "MISSING",
    "OK",
    "WARN",
    "Row",
    "check_disk",
    "check_kernel",
    "check_labkit",
    "check_package",
    "check_platform",
    "check_program",
    "check_python",
    "check_sqlite",
    "main",
    "rows",
]

OK, WARN, MISSING = "ok", "warn", "missing"
DISTRIBUTION = "durable-agent-lab"
INSTALL = "make lab, or: pip install -c constraints.txt -e '.[test]'"
# A run of the whole lab leaves far less; below this even SQLite's temporary files get tight.
ENOUGH_MB, TIGHT_MB = 500, 50
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


class Row(NamedTuple):
    """One finding. `todo` is empty exactly when `state` is "ok"."""

    state: str
    what: str
    value: str
    todo: str = ""

    def __str__(self) -> str:
        line = f"{self.state:<8} {self.what:<20} {self.value}"
        return f"{line}\n{'':<8} -> {self.todo}" if self.todo else line


def rows() -> list[Row]:
    """Every check once, the required ones first. Starts no kernel and changes nothing."""
    return [
        check_platform(),
        check_python(),
        check_labkit(),
        *(check_package(wanted) for wanted in _requirements()),
        check_kernel(),
        check_sqlite(),
        check_disk(),
        check_program("strace", ("strace",), "make proof", "apt-get install strace"),
        check_program("Chromium", BROWSERS, "those in a browser", "apt-get install chromium"),
    ]


def check_platform(system: str = sys.platform) -> Row:
    """Linux is tested, macOS written for, everything else refused."""
    value = f"{platform.system()} {platform.machine()}"
    if system.startswith("linux"):
        return Row(OK, "platform", value)
    if system == "darwin":
        return Row(WARN, "platform", value, "written for macOS, not tested; no claim on power cuts")
    return Row(MISSING, "platform", value, "not supported; use Linux, in a virtual machine or WSL")


def check_python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Row:
    """Python 3.11 or newer, and where it is."""
    value = f"{'.'.join(map(str, version))} at {sys.executable}"
    if version >= (3, 11):
        return Row(OK, "Python", value)
    return Row(MISSING, "Python", value, "install Python 3.11 or newer, then run make lab again")


def check_labkit() -> Row:
    """Where labkit is imported from, and whether it is installed for this interpreter."""
    value = str(Path(__file__).parents[1])
    try:
        return Row(OK, "labkit", f"{metadata.version(DISTRIBUTION)} at {value}")
    except metadata.PackageNotFoundError:
        return Row(MISSING, "labkit", f"not installed, imported from {value}", INSTALL)


def check_package(wanted: str) -> Row:
    """A package against its range, as in `check_package("pandas>=3.1,<3.2")`."""
    name = _name(wanted)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Row(MISSING, name, "not installed", INSTALL)
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return Row(WARN, name, f"{version}, not compared with {wanted}", INSTALL)
    if Requirement(wanted).specifier.contains(version, prereleases=True):
        return Row(OK, name, version)
    return Row(MISSING, name, f"{version}, and {wanted} is needed", INSTALL)


def check_kernel(name: str = "python3") -> Row:
    """The interpreter that Jupyter starts for a notebook, which may not be this one."""
    try:
        from jupyter_client.kernelspec import NoSuchKernel
        from jupyter_client.manager import KernelManager
    except ImportError:
        return Row(MISSING, "kernel", "Jupyter is not installed", INSTALL)
    try:
        # Asked of Jupyter itself: it replaces a bare "python" by its own interpreter.
        starts = KernelManager(kernel_name=name).format_kernel_cmd()[0]
    except NoSuchKernel:
        return Row(MISSING, "kernel", f"{name} does not exist", INSTALL)
    except Exception as error:  # whatever Jupyter makes of a damaged kernel.json
        return Row(MISSING, "kernel", f"{name} is damaged ({type(error).__name__})", INSTALL)
    if _same_environment(starts, sys.executable):
        return Row(OK, "kernel", f"{name} starts {starts}")
    todo = f"{sys.executable} -m ipykernel install --sys-prefix --name {name}"
    return Row(WARN, "kernel", f"{name} starts {starts}, not {sys.executable}", todo)


def check_sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> Row:
    """SQLite's version: WAL is needed, and most versions have the WAL-reset race.

    https://sqlite.org/wal.html#walresetbug: two processes that write at the same instant can
    damage the file. Fixed in 3.51.3, and in 3.44.6 and 3.50.7 for those who stay there.
    """
    value = ".".join(map(str, version))
    if version < (3, 7, 0):
        return Row(MISSING, "SQLite", value, "WAL needs 3.7.0; install a newer Python")
    fixed = version >= (3, 51, 3) or any(
        version[:2] == branch[:2] and version >= branch for branch in ((3, 44, 6), (3, 50, 7))
    )
    if fixed:
        return Row(OK, "SQLite", value)
    found = f"{value}: a rare race can damage a file that several processes write (3.7.0 to 3.51.2)"
    todo = "one agent per database is safe; for more, use a Python with SQLite 3.51.3 or newer"
    return Row(WARN, "SQLite", found, todo)


def check_disk(folder: Path | None = None) -> Row:
    """Free space where the runs go, in MB."""
    free_mb = shutil.disk_usage(folder or Path.cwd()).free // 1_000_000
    state = OK if free_mb >= ENOUGH_MB else WARN if free_mb >= TIGHT_MB else MISSING
    todo = "" if state == OK else f"free some space: {ENOUGH_MB} MB are comfortable"
    return Row(state, "disk", f"{free_mb} MB free", todo)


def check_program(what: str, names: Sequence[str], needed_by: str, install: str) -> Row:
    """A program that only some tests need: a warning at most."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        return Row(WARN, what, f"not found; only for tests: {needed_by}", install)
    return Row(OK, what, f"{_first_line(found)}; only for tests: {needed_by}")


def main(argv: list[str]) -> int:
    """Print the rows. Exit code 0, or 1 when something required is missing."""
    if argv in (["-h"], ["--help"]):
        print("usage: labkit doctor\n\nChecks this machine. Exit code 1 when a row says missing.")
        return 0
    if argv:
        raise UsageError(f"doctor takes no argument, not {argv[0]!r}")
    _require_a_folder()
    found = rows()
    print(*found, sep="\n")
    missing = [row.what for row in found if row.state == MISSING]
    print("\nready" if not missing else f"\nnot ready, missing: {', '.join(missing)}")
    return 1 if missing else 0


def _require_a_folder() -> None:
    """Without one, half of what is asked here would fail in a way of its own."""
    try:
        os.getcwd()
    except OSError:
        raise NotFound("the current folder is gone; cd to one that exists") from None


def _requirements() -> list[str]:
    """What the lab itself needs; the extras are not a learner's business."""
    try:
        wanted = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []  # check_labkit says so
    return [line for line in wanted if "extra ==" not in line]


def _name(wanted: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", wanted)
    if found is None:
        raise UsageError(f"{wanted!r} does not begin with a package's name")
    return found.group()


def _same_environment(one: str, other: str) -> bool:
    """Compares folders: `python`, `python3` and `python3.12` of one environment are the same.

    Links are not followed, since every environment's python is a link to the same program.
    """
    folders = {
        os.path.dirname(os.path.abspath(shutil.which(path) or path)) for path in (one, other)
    }
    return len(folders) == 1


def _first_line(program: str) -> str:
    """What `PROGRAM --version` says first, or its path where it says nothing in time."""
    try:
        said = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return program
    return said.stdout.decode("utf-8", "replace").partition("\n")[0].strip() or program

"""Breaks the code on purpose, one line at a time: each named test, green before, must go red.

    python tests/controls.py [WORD ...]     only the controls whose row or test contains a word

A test that stays green over a broken line proves nothing about that line. Each control in
controls.toml is applied to a copy of the package and the tests in a temporary folder; red means an
assertion that fails there, not a package that cannot be imported, a test that cannot be collected
or one that runs out of time. Exit 1 unless every control is red.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
AT_ONCE = 2
WITHOUT = [f"-pno:{plugin}" for plugin in ("cacheprovider", "nbval", "xdist")]
PYTEST = ["-m", "pytest", "-q", "-p", "tests.quick_imports", *WITHOUT, "-m", ""]


class Control(NamedTuple):
    """`old`, one place in `file`, becomes `new`; then `test` must fail."""

    row: str
    test: str
    file: str
    old: str
    new: str


class Result(NamedTuple):
    red: bool
    why: str


def read_controls() -> list[Control]:
    with open(ROOT / "tests" / "controls.toml", "rb") as file:
        return [Control(**entry) for entry in tomllib.load(file)["control"]]


def copy_project(source: Path, folder: Path, *ignored: str) -> None:
    """The times of the files are kept, so what is compiled beside them stays valid."""
    leave_out = shutil.ignore_patterns("*.ipynb", "screenshots", *ignored)
    for name in ("bench", "labkit", "tests"):  # bench: it makes journals for some tests
        shutil.copytree(source / name, folder / name, ignore=leave_out)
    for name in ("pyproject.toml", "conftest.py", "README.md"):
        if (source / name).exists():
            shutil.copy2(source / name, folder)


def break_line(folder: Path, control: Control) -> str:
    """What is wrong with the control itself, or nothing."""
    path = folder / control.file
    text = path.read_text("utf-8")
    if (times := text.count(control.old)) != 1:
        return f"its old text stands {times} times in {control.file}"
    path.write_text(text.replace(control.old, control.new), "utf-8")
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()
    where = f"import {module_of(control.file)} as m; print(m.__file__)"
    imported = python(folder, "-c", where)
    if imported.stdout.strip() != str(path):
        return f"the broken {control.file} cannot be imported: {imported.stderr.strip()[-200:]}"
    return ""


def module_of(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


def python(folder: Path, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
    """This interpreter, with the packages of the copy before those that are installed."""
    environment = {**os.environ, "PYTHONPATH": str(folder), **more}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [sys.executable, *args], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


class End(NamedTuple):
    """How one test ended: passed, failure, error or skipped."""

    test: str
    how: str
    message: str


def run_tests(folder: Path, *args: str, **more: str) -> list[End]:
    report = folder / "report.xml"
    done = python(folder, *PYTEST, f"--junitxml={report}", *args, **more)
    if not report.exists():
        return [End("pytest", "error", done.stdout[-500:] + done.stderr[-500:])]
    return list(read_report(report))


def read_report(report: Path) -> Iterator[End]:
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        ends = [end for end in case if end.tag in ("failure", "error", "skipped")]
        how, message = (ends[0].tag, ends[0].get("message", "")) if ends else ("passed", "")
        yield End(name, how, message)


def judge(ends: list[End]) -> Result:
    """Red: at least one assertion failed, and nothing went wrong beside the point."""
    failures = [end.message for end in ends if end.how == "failure"]
    errors = [end.message for end in ends if end.how == "error"]
    if errors:
        return Result(False, f"an error, no failure: {first_line(errors[0])}")
    if not failures:
        return Result(False, ", ".join(sorted({end.how for end in ends})) or "no test ran")
    first = first_line(failures[0])
    if "Timeout" in first or not first.startswith(("AssertionError", "assert", "Failed")):
        return Result(False, f"it failed otherwise than by an assertion: {first}")
    return Result(True, "red")


def first_line(message: str) -> str:
    return next(iter(message.splitlines()), "")[:200]


def try_control(untouched: Path, control: Control) -> Result:
    with tempfile.TemporaryDirectory(prefix="labkit-control-") as name:
        folder = Path(name).resolve()
        copy_project(untouched, folder)
        if problem := break_line(folder, control):
            return Result(False, problem)
        # What a broken line makes wait in vain, waits less long.
        return judge(run_tests(folder, "-x", control.test, TEST_PATIENCE_S="10"))


def not_green(untouched: Path, controls: list[Control]) -> Iterator[str]:
    """A line for each test that does not pass over the untouched copy. The tests leave it compiled,
    which every control would else do again: that takes longer than most of them.

    What fails once is asked again, by itself, and named in either case. Whether a test is steady is
    for the suites to judge, which allow no second time; here a red must be the broken line's own.
    """
    tests = sorted({control.test for control in controls})
    if first := red_ends(run_tests(untouched, *tests)):
        again = [test for test in tests if is_one_of(test, first)] or tests
        second = {end.test for end in red_ends(run_tests(untouched, *again))}
        for end in first:
            mark = "NOT GREEN" if second else "UNSTEADY"
            yield f"{mark}  {end.test}: {end.how} {first_line(end.message)}"


def red_ends(ends: list[End]) -> list[End]:
    return [end for end in ends if end.how != "passed"]


def is_one_of(test: str, ends: list[End]) -> bool:
    """A report names a test by its module and without its folder's slashes."""
    name = test.replace(".py::", "::").replace("/", ".").replace("::", ".")
    return any(end.test.replace("::", ".").startswith(name) for end in ends)


def main(words: list[str]) -> int:
    controls = [c for c in read_controls() if not words or any(w in c.row + c.test for w in words)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="labkit-controls-") as name:
        untouched = Path(name).resolve()
        copy_project(ROOT, untouched, "__pycache__")
        bad = list(not_green(untouched, controls))
        print(*bad, sep="\n", flush=True)
        lines = list(try_all(untouched, controls))
    # Said again at the end: whoever reads only the last lines of a long run must see what failed.
    print(*bad, *(line for line in lines if line.startswith("NOT")), sep="\n")
    red = sum(line.startswith("red") for line in lines)
    green = not any(line.startswith("NOT") for line in bad)
    took = time.monotonic() - began
    print(f"{len(controls)} controls, {red} red as they must be, {took:.0f} s")
    return 0 if green and red == len(controls) > 0 else 1


def try_all(untouched: Path, controls: list[Control]) -> Iterator[str]:
    """A line for each control, printed as soon as it is known."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = pool.map(lambda control: try_control(untouched, control), controls)
        for control, result in zip(controls, results, strict=True):
            name = control.test.rpartition("::")[2]
            mark = "red" if result.red else f"NOT RED ({result.why})"
            line = f"{mark}  {control.row}: {name}  [{first_line(control.old.strip())}]"
            print(line, flush=True)
            yield line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

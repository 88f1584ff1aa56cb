"""Fixtures for every test of the package."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from labkit.chaos.scenario import scratch

PLAN = """\
{"goal": "Summarize notes into a report",
 "steps": [{"tool": "fetch", "input": {"path": "input/notes.txt"}},
           {"tool": "summarize", "input": {"from": 0}},
           {"tool": "write_artifact", "input": {"from": 1}}]}
"""
NOTES = "First line.\nSecond line.\n\nThird line.\nFourth line.\n"


class Ran(NamedTuple):
    """A command that has ended. `code` is negative after a signal."""

    code: int
    out: str
    err: str


RunAgent = Callable[..., Ran]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with `plan.json` (fetch, summarize, write_artifact) and the notes it names."""
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "notes.txt").write_text(NOTES, encoding="utf-8")
    (tmp_path / "plan.json").write_text(PLAN, encoding="utf-8")
    return tmp_path


@pytest.fixture
def run_agent(folder: Path) -> RunAgent:
    """`run_agent("run", "t", env={...})`: the real command in a real process, in `folder`."""

    def run(*args: str, env: Mapping[str, str] | None = None, cwd: Path = folder) -> Ran:
        return run_python("-m", "labkit.restart", *args, env=env, cwd=cwd)

    return run


@pytest.fixture
def run_labkit(folder: Path) -> RunAgent:
    """`run_labkit("doctor")`: the command `labkit` in a real process, in `folder`."""

    def run(*args: str, env: Mapping[str, str] | None = None, cwd: Path = folder) -> Ran:
        return run_python("-m", "labkit", *args, env=env, cwd=cwd)

    return run


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Python compiles for trials, once for all tests: it takes as long as several of them."""
    return tmp_path_factory.mktemp("compiled")


@contextmanager
def new_root(compiled: Path) -> Iterator[Path]:
    """A folder for workshops of the crash kit, which put their bytecode into `compiled`."""
    with tempfile.TemporaryDirectory(prefix="labkit-chaos-", dir=scratch()) as name:
        root = Path(name)
        (root / "bytecode").symlink_to(compiled)
        yield root


def run_python(
    *args: str, env: Mapping[str, str] | None = None, cwd: Path, timeout_s: float = 50.0
) -> Ran:
    """This interpreter with `args`, without input, to its end; output decoded as UTF-8."""
    done = subprocess.run(
        [sys.executable, *args],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=timeout_s,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `sampled`, the first case runs in `make test` and the others are proof."""
    tried: set[tuple[Path, str]] = set()
    for item in items:
        if item.get_closest_marker("sampled"):
            test = (item.path, item.name.partition("[")[0])
            if test in tried:
                item.add_marker("proof")
            tried.add(test)

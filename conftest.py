"""What holds for every pytest run in this checkout, the notebooks' included.

No setting of the caller's shell reaches an agent, no run touches the learner's progress, and no
process that a test started is alive at the end.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 5.0
PATIENCE_WITH_STRACE_S = 300  # a check of such a notebook makes dozens of trials
HOME, MARK = pytest.StashKey[str](), pytest.StashKey[str]()
MARKED_AS = "labkit_mark"  # in what pytest-xdist gives a worker
USUAL = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}

# Notebooks that cannot run without strace: their cells, and the tests of them and their answers.
NEEDS_STRACE = re.compile(
    r"08-every-write\.ipynb|test_(run|solved)\.py.*\[08\]|test_(its_solution|every_wrong).*\[08\."
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    found = [item for item in items if NEEDS_STRACE.search(item.nodeid)]
    for item in found:
        item.add_marker(pytest.mark.timeout(PATIENCE_WITH_STRACE_S))
    if found and not _may_trace():
        why = (
            "needs Linux with a strace that may trace; on Debian and Ubuntu: apt-get install strace"
        )
        for item in found:
            item.add_marker(pytest.mark.skip(reason=why))


def _may_trace() -> bool:
    argv = ["strace", "-o", os.devnull, "true"]
    try:
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def pytest_configure(config: pytest.Config) -> None:
    # `nohup` and a script's `&` start us with these ignored, and every agent would inherit that.
    for number, usual in USUAL.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    for name in [name for name in os.environ if name.startswith(("AGENT_", "LABKIT_"))]:
        del os.environ[name]
    config.stash[HOME] = os.environ["LABKIT_HOME"] = tempfile.mkdtemp(prefix="labkit-home-")
    given = getattr(config, "workerinput", {})
    config.stash[MARK] = mark = given.get(MARKED_AS) or secrets.token_hex(8)
    # Every child inherits the mark, under a second name too, since some tests set the first one.
    # This process does not carry it in /proc, which shows what a process was started with.
    os.environ["LABKIT_SESSION"] = os.environ["LABKIT_TESTS"] = mark


@pytest.hookimpl(optionalhook=True)  # absent without pytest-xdist
def pytest_configure_node(node: Any) -> None:
    """A worker's mark begins with this process's, which alone looks at the end for what is left.

    It differs from the other worker's: no test takes the other's processes for its own.
    """
    node.workerinput[MARKED_AS] = f"{node.config.stash[MARK]}-{node.gateway.id}"


@pytest.hookimpl(trylast=True)  # the workers have to be down
def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        return
    left = left_alive(session.config.stash[MARK])
    for pid, command in left.items():
        print(f"\nleft alive by a test: {command} (killed now)")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[HOME], ignore_errors=True)


def left_alive(mark: str, patience_s: float = PATIENCE_S) -> dict[int, str]:
    """Processes that carry the mark, by pid; those that are just ending get `patience_s` for it."""
    end = time.monotonic() + patience_s
    while (found := _carrying(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def _carrying(mark: str) -> dict[int, str]:
    """Empty where there is no /proc."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        # A process may end between two reads, and another user's may not be read at all.
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                command = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                found[int(folder.name)] = command.strip()
    return found

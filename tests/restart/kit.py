"""What the tests of the restart agent share: one folder with an agent in it, seen from outside.

The witness lies outside the system under test: tools written for the tests append a line per call
to it, the key first, and the published files are counted by listing their folder. What the journal
says about effects is never taken for evidence.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

NOTES = "First line.\nSecond line.\n\nThird line.\nFourth line.\n"
SUMMARY = "First line.\nSecond line.\nThird line."
BUILT_IN_PLAN: dict[str, Any] = {
    "goal": "Summarize notes into a report",
    "steps": [
        {"tool": "fetch", "input": {"path": "input/notes.txt"}},
        {"tool": "summarize", "input": {"from": 0}},
        {"tool": "write_artifact", "input": {"from": 1}},
    ],
}
WITNESSED_PLAN: dict[str, Any] = {
    "goal": "The same, each call seen by the witness",
    "steps": [
        {"tool": "read_notes", "input": {"path": "input/notes.txt"}},
        {"tool": "shorten", "input": {"from": 0}},
        {"tool": "publish", "input": {"from": 1}},
    ],
}
WITNESS = """\
import os
from labkit.restart import tools

def _seen(key, what):
    file = os.open("witness", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(file, f"{key} {what}\\n".encode())
    os.close(file)
"""
WITNESSED_TOOLS = """
def read_notes(input, ctx, idem_key):
    _seen(idem_key, "read_notes")
    return tools.fetch(input, ctx, idem_key)

def shorten(input, ctx, idem_key):
    _seen(idem_key, "shorten")
    return tools.summarize(input, ctx, idem_key)

def publish(input, ctx, idem_key):
    _seen(idem_key, "publish")
    return tools.write_artifact(input, ctx, idem_key)
"""
WAIT = """
def wait(input, ctx, idem_key):
    print("waiting", flush=True)
    return open("go").read()
"""
CLOSES = {"step_finished", "step_recovered", "step_error"}
# How long a test waits for something that comes at once, before it gives up.
PATIENCE_S = float(os.environ.get("TEST_PATIENCE_S") or 30)

# A mount namespace of our own: what is mounted there, nobody else sees.
UNSHARE = ("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-rm")
READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && cd "$PWD" && shift && exec "$@"
"""


def works(*argv: str) -> bool:
    """A program may be there and yet not be allowed what it does, as in many containers."""
    if not shutil.which(argv[0]):
        return False
    done = subprocess.run(argv, capture_output=True, check=False, cwd=tempfile.gettempdir())
    return done.returncode == 0


needs_strace = pytest.mark.skipif(
    not works("strace", "-o", os.devnull, "true"),
    reason="strace is missing or may not trace; on Debian and Ubuntu: apt-get install strace",
)
needs_namespaces = pytest.mark.skipif(
    not works(*UNSHARE, "sh", "-c", READ_ONLY, "sh", ".", "true"),
    reason="this machine lets us mount nothing; run as root on Linux, or allow user namespaces",
)
needs_dev_full = pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="there is no /dev/full here; Linux has it"
)


class Ran(NamedTuple):
    """A command that has ended. `code` is negative after a signal."""

    code: int
    out: str
    err: str


class Desk:
    """A folder with notes, plans, tools and a database, and the real command started in it."""

    def __init__(self, folder: Path, templates: Path | None = None) -> None:
        self.folder, self.db, self.artifacts = folder, folder / "state.db", folder / "artifacts"
        self._templates = templates
        self.write("input/notes.txt", NOTES)
        self.plan(BUILT_IN_PLAN)
        self._running: list[subprocess.Popen[str]] = []

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def plan(self, plan: Any, name: str = "plan.json") -> Path:
        return self.write(name, plan if isinstance(plan, bytes | str) else json.dumps(plan))

    def tools(self, source: str) -> None:
        """From now on each `create` and `run` gets these tools; they can tell the witness."""
        self.write("tools.py", WITNESS + source)

    def start(
        self, *args: str, env: Mapping[str, str] | None = None, before: Sequence[str] = (),
        stdout: Any = subprocess.PIPE, options: Mapping[str, Any] | None = None,
    ) -> subprocess.Popen[str]:  # fmt: skip
        """The real command in a real process; `before` stands before it, as `strace` does."""
        argv = [*before, sys.executable, "-m", "labkit.restart", *self._with_tools(args)]
        streams = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            argv, cwd=self.folder, env=environment(env), text=True, encoding="utf-8",
            **(streams | dict(options or {})),
        )  # fmt: skip
        self._running.append(process)
        return process

    def run(
        self, *args: str, env: Mapping[str, str] | None = None, before: Sequence[str] = (),
        stdout: Any = subprocess.PIPE,
    ) -> Ran:  # fmt: skip
        return ended(self.start(*args, env=env, before=before, stdout=stdout))

    def create(self, plan: Any = None, task: str = "t") -> None:
        """As the real command does, or as it did for another test: then its database is copied.

        A start of the command costs a tenth of a second, and most tests are about `run`.
        """
        if plan is not None:
            self.plan(plan)
        template = self._template(task)
        if template and template.exists():
            shutil.copytree(template, self.folder, dirs_exist_ok=True)
            return
        created = self.run("create", task, "plan.json")
        assert created.code == 0, created
        if template:  # nobody has the database open now, so plain copies are safe
            template.mkdir()
            for path in self.folder.glob("state.db*"):
                shutil.copy(path, template)

    def _template(self, task: str) -> Path | None:
        """Where the database lies that `create` makes of this plan and these tools."""
        if not self._templates or self.db.exists():
            return None
        tools = self.folder / "tools.py"
        made_of = [task.encode(), (self.folder / "plan.json").read_bytes()]
        made_of += [tools.read_bytes()] if tools.exists() else []
        return self._templates / hashlib.sha256(repr(made_of).encode()).hexdigest()

    def crash(self, where: str, *args: str) -> None:
        """Runs the task into a crash point, and proves that the kill was delivered."""
        assert self.run(*(args or ("run", "t")), env={"AGENT_CRASH_AT": where}).code == -9

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """Read-only; single columns come as values, others as tuples."""
        uri = f"file:{self.db}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=10)) as connection:
            found = connection.execute(sql, values).fetchall()
        return [row[0] if len(row) == 1 else row for row in found]

    def change(self, sql: str) -> None:
        """What another program does to the database."""
        with closing(sqlite3.connect(self.db, timeout=10)) as connection, connection:
            connection.executescript(sql)

    def kinds(self, task: str = "t") -> list[str]:
        return self.rows("SELECT kind FROM events WHERE task_id = ? ORDER BY seq", task)

    def data(self, kind: str) -> list[Any]:
        sql = "SELECT data FROM events WHERE kind = ? ORDER BY seq"
        return [json.loads(data) for data in self.rows(sql, kind)]

    def statuses(self) -> list[str]:
        """The task's, then those of its steps."""
        return self.rows("SELECT status FROM tasks UNION ALL SELECT status FROM steps")

    def calls(self) -> Counter[str]:
        """How often each key's effect happened, as the witness saw it."""
        path = self.folder / "witness"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        return Counter(line.split()[0] for line in lines)

    def published(self) -> dict[str, str]:
        """Name and content of each published file, and of any temporary file left behind."""
        found = sorted(self.artifacts.iterdir()) if self.artifacts.exists() else []
        return {path.name: path.read_text("utf-8") for path in found}

    def pipe(self, name: str) -> Path:
        """A named pipe: who reads it waits for who writes it, so that no test has to sleep."""
        os.mkfifo(self.folder / name)
        return self.folder / name

    def wait_for_row(self, sql: str) -> None:
        """Until the query finds a row."""
        end = time.monotonic() + PATIENCE_S
        while not self.rows(sql):
            assert time.monotonic() < end, f"no row came: {sql}"
            select.select([], [], [], 0.002)

    def require_balanced(self, task: str = "t") -> None:
        """Promise 5: every `step_started` is closed exactly once, before the step starts again."""
        open_steps: set[int] = set()
        sql = "SELECT kind, step_idx FROM events WHERE task_id = ? ORDER BY seq"
        for kind, idx in self.rows(sql, task):
            if kind == "step_started":
                assert idx not in open_steps
                open_steps.add(idx)
            elif kind in CLOSES:
                assert idx in open_steps
                open_steps.remove(idx)
        assert not open_steps

    def end_all(self) -> None:
        """Only what this desk started, and only what a failed test left running."""
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def _with_tools(self, args: Sequence[str]) -> list[str]:
        uses = (self.folder / "tools.py").exists() and {"create", "run"} & set(args)
        return [*(["--tools", "tools.py"] if uses else []), *args]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, without what would steer an agent or its output."""
    steering = ("AGENT_", "LABKIT_RUN_IDS", "LABKIT_CLOCK", "OLLAMA_", "PYTHONUNBUFFERED")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(steering)}
    return {**kept, **(extra or {})}


def ended(process: subprocess.Popen[str]) -> Ran:
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it does not end: {process.args}")
    return Ran(process.returncode, out or "", err)


def refused(ran: Ran, code: int, *words: str) -> None:
    """Exit code, and one line on stderr: what, where, what to do; never a traceback."""
    assert ran.code == code, ran
    assert len(ran.err.splitlines()) == 1, ran.err
    assert "Traceback" not in ran.err
    for word in words:
        assert word in ran.err, ran.err


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def tell(pipe: Path, text: str = "go\n") -> None:
    """Writes to a named pipe whose reader is there, or comes; a missing reader is an error."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            with opened(pipe, os.O_WRONLY | os.O_NONBLOCK) as fd:
                os.write(fd, text.encode())
            return
        except OSError as error:  # ENXIO: nobody reads it yet
            if error.errno != errno.ENXIO or time.monotonic() > end:
                raise
            select.select([], [], [], 0.002)


def read_line(process: subprocess.Popen[str]) -> str:
    """The next line of a process's output."""
    assert process.stdout
    ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
    assert ready, "no line came"
    return process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL from outside, proved delivered."""
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGKILL


class Strace:
    """`strace` as injector of faults into calls of the agent; the trace proves their delivery.

    `faults` are as strace takes them: `link:error=EPERM`, `fdatasync:error=EIO:when=3`. With
    `paths`, below the desk's folder, only calls on the descriptors of these files count.
    """

    def __init__(
        self, desk: Desk, *faults: str, trace: str = "", paths: Sequence[str] = ()
    ) -> None:
        self.file = desk.folder.parent / f"{desk.folder.name}.trace"
        calls = ",".join(f"?{call}" for fault in faults for call in fault.split(":")[0].split(","))
        watched = [str(desk.folder / path) for path in paths]
        self.argv = [
            "strace", "-f", "-y", "-qq", "-o", str(self.file), "-e", f"trace={trace or calls}",
            *(word for fault in faults for word in ("-e", f"inject=?{fault}")),
            *(word for path in watched for word in ("-P", path)),
        ]  # fmt: skip

    def lines(self) -> list[str]:
        return self.file.read_text("utf-8", "replace").splitlines()

    def injected(self) -> list[str]:
        """The calls that got a fault: an injury counts only when it is proved delivered."""
        return [line for line in self.lines() if "(INJECTED)" in line]

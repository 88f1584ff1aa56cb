"""What a careful reader will try: files that are not ours, and storage that fails at any call."""

import json
import os
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.restart.kit import (
    READ_ONLY,
    SUMMARY,
    UNSHARE,
    Desk,
    Strace,
    environment,
    needs_namespaces,
    needs_strace,
    refused,
)

DATABASE = ["state.db", "state.db-wal", "state.db-shm", "state.db-journal"]
QUIET = {"PYTHONDONTWRITEBYTECODE": "1"}  # else Python's own files are among the traced calls
COMMANDS = [("create", "t", "plan.json"), ("run", "t"), ("status", "t"), ("export", "t")]


def garbage(desk: Desk) -> None:
    desk.db.write_bytes(b"Dear diary, " * 1000)


def short_garbage(desk: Desk) -> None:
    desk.db.write_bytes(b"xy")


def header_alone(desk: Desk) -> None:
    desk.db.write_bytes(b"SQLite format 3\0" + bytes(84))


def damaged(desk: Desk) -> None:
    made(desk)
    content = bytearray(desk.db.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    desk.db.write_bytes(content)


def newer(desk: Desk) -> None:
    made(desk)
    desk.change("PRAGMA user_version=1000; PRAGMA wal_checkpoint(TRUNCATE)")


def not_ours(desk: Desk) -> None:
    with closing(sqlite3.connect(desk.db)) as connection:
        connection.execute("CREATE TABLE tasks(id, goal, status)")


def not_ours_without_schema(desk: Desk) -> None:
    with closing(sqlite3.connect(desk.db)) as connection:
        connection.execute("PRAGMA application_id=42")


def not_ours_and_hot(desk: Desk) -> None:
    """Killed in a transaction that has reached the file: who opens it for writing rolls it back."""
    dies = """
import os, signal, sqlite3
connection = sqlite3.connect("state.db", isolation_level=None)
connection.executescript("PRAGMA cache_size=2; CREATE TABLE t(x); BEGIN;")
connection.executemany("INSERT INTO t VALUES (?)", [("x" * 3000,)] * 100)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", dies], cwd=desk.folder).returncode == -9
    assert (desk.folder / "state.db-journal").stat().st_size > 4096


def made(desk: Desk) -> None:
    desk.create()
    desk.change("PRAGMA wal_checkpoint(TRUNCATE)")


STRANGERS = [
    not_ours_and_hot,
    garbage,
    short_garbage,
    header_alone,
    damaged,
    newer,
    not_ours,
    not_ours_without_schema,
]


@pytest.mark.sampled
@pytest.mark.parametrize("args", COMMANDS, ids=[args[0] for args in COMMANDS])
@pytest.mark.parametrize("make", STRANGERS)
def test_a_file_that_is_not_ours(
    desk: Desk, make: Callable[[Desk], None], args: tuple[str, ...]
) -> None:
    """74 with a cause, and nothing written to it, not even the journal mode."""
    make(desk)
    before = content(desk), desk.db.stat().st_mtime_ns
    refused(desk.run(*args), 74, "state.db")
    assert (content(desk), desk.db.stat().st_mtime_ns) == before


def content(desk: Desk) -> dict[str, bytes]:
    """Of the database and its journal; no process has them open."""
    names = ("state.db", "state.db-journal")
    return {
        name: (desk.folder / name).read_bytes() for name in names if (desk.folder / name).exists()
    }


FLIPS = """
import json, os, random, sys
from labkit.restart.__main__ import main

with open("state.db", "rb") as file:
    good = file.read()
chance = random.Random(20)
for n in range(int(sys.argv[1])):
    bad = bytearray(good)
    at = chance.randrange(len(bad) if n % 2 else 4096)
    bad[at] ^= 1 << chance.randrange(8)
    for command in ("status", "export", "run"):
        for name in ("d.db", "d.db-wal", "d.db-shm", "d.db-journal"):
            if os.path.exists(name):
                os.unlink(name)
        with open("d.db", "wb") as file:
            file.write(bad)
        if (child := os.fork()) == 0:
            os.dup2(os.open("out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
            os.dup2(1, 2)
            code = 70
            try:
                code = main(["--db", "d.db", command, "t"])
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with open("out", errors="replace") as file:
            print(json.dumps([at, command, code, file.read()[-300:]]), flush=True)
"""


def flip_bits(desk: Desk, times: int) -> None:
    """One bit of a database of ours is another; each command says so or does not care."""
    made(desk)
    argv = [sys.executable, "-c", FLIPS, str(times)]
    options = {"cwd": desk.folder, "env": environment(), "stdin": subprocess.DEVNULL}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, **options)
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ends) == 3 * times
    assert [end for end in ends if end[2] not in (0, 1, 2, 3, 64, 74, 75)] == []
    assert sum(end[2] == 74 for end in ends) > times / 4  # the damage is seen


def test_a_flipped_bit_of_a_database(desk: Desk) -> None:
    flip_bits(desk, 30)


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_many_flipped_bits_of_a_database(desk: Desk) -> None:
    flip_bits(desk, 1000)


def test_a_folder_is_no_database(desk: Desk) -> None:
    for args in COMMANDS:
        refused(desk.run("--db", "input", *args), 74, "input")


@needs_namespaces
@pytest.mark.parametrize("what", [".", "state.db"], ids=["folder", "file"])
def test_read_only_storage(desk: Desk, what: str) -> None:
    """A read-only mount, since permissions do not bind root."""
    frozen = (*UNSHARE, "sh", "-c", READ_ONLY, "sh", what)
    desk.create()
    desk.crash("after_commit:1")
    before = desk.rows("SELECT * FROM events")
    refused(desk.run("run", "t", before=frozen), 74, "read")
    desk.plan({"goal": "g", "steps": [{"tool": "fetch", "input": {"path": "x"}}]}, "other.json")
    refused(desk.run("create", "u", "other.json", before=frozen), 74, "read")
    assert desk.rows("SELECT * FROM events") == before
    require_healthy_again(desk)


@needs_namespaces
def test_read_only_folder_without_a_database(desk: Desk) -> None:
    frozen = (*UNSHARE, "sh", "-c", READ_ONLY, "sh", ".")
    refused(desk.run("create", "t", "plan.json", before=frozen), 74, "Read-only")
    assert not desk.db.exists()
    desk.create()


@needs_namespaces
def test_read_only_artifacts(desk: Desk) -> None:
    desk.artifacts.mkdir()
    desk.create()
    frozen = (*UNSHARE, "sh", "-c", READ_ONLY, "sh", "artifacts")
    refused(desk.run("run", "t", before=frozen), 74, "artifacts", "Read-only")
    assert desk.statuses() == ["running", "done", "done", "running"]  # as after a kill
    require_healthy_again(desk)


def require_healthy_again(desk: Desk) -> None:
    """On healthy storage the next run completes, and all five promises hold."""
    assert desk.run("run", "t").code == 0
    assert desk.published() == {"t-2.md": SUMMARY}
    assert desk.statuses() == ["done"] * 4
    desk.require_balanced()
    assert desk.rows("PRAGMA integrity_check") == ["ok"]


WAL_WRITE = r"pwrite64\(\d+<[^>]*-wal>"


def fail_at(desk: Desk, fault: str, *args: str) -> bool:
    """False when the process has fewer such calls. After the fault: 74, and not a byte more."""
    strace = Strace(desk, fault, paths=DATABASE, trace="pwrite64,fdatasync,fsync,ftruncate")
    ran = desk.run(*args, before=strace.argv, env=QUIET)
    if not strace.injected():
        assert ran.code == 0
        return False
    before, _, after = "\n".join(strace.lines()).partition("(INJECTED)")
    in_wal_mode = re.search(WAL_WRITE, before)  # before, SQLite rolls back by itself, in one go
    if ran.code == 0:  # closing, when all is committed: SQLite copies its WAL into the database
        assert in_wal_mode
        assert not re.search(WAL_WRITE, after)
        assert set(desk.statuses()) == {"pending" if args[0] == "create" else "done"}
    else:
        refused(ran, 74, "state.db")
        assert not in_wal_mode or after.strip() == ""  # a repeated fsync can lie
    return True


WRITES = ["pwrite64:error=ENOSPC", "pwrite64:error=EIO", "fdatasync:error=EIO"]


def forget(desk: Desk) -> None:
    for old in (*desk.folder.glob("state.db*"), *desk.artifacts.glob("*")):
        old.unlink()


def sweep(desk: Desk, fault: str, every: int) -> int:
    """Each n-th call of a `create`, then of a `run`, fails once; how many did.

    A change to WAL that fails late is hidden by its pragma; the first read after it must show it.
    """
    delivered = 0
    for nth in range(1, 1000, every):
        forget(desk)
        if not fail_at(desk, f"{fault}:when={nth}", "create", "t", "plan.json"):
            break
        delivered += 1
        desk.create()
    for nth in range(1, 1000, every):
        forget(desk)
        desk.create()
        if not fail_at(desk, f"{fault}:when={nth}", "run", "t"):
            break
        delivered += 1
        require_healthy_again(desk)
    return delivered


@pytest.mark.sampled
@needs_strace
@pytest.mark.parametrize("fault", WRITES)
def test_disk_full_or_failing_at_some_writes(desk: Desk, fault: str) -> None:
    assert sweep(desk, fault, every=11) > 1


@needs_strace
@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", WRITES)
def test_disk_full_or_failing_at_any_write(desk: Desk, fault: str) -> None:
    assert sweep(desk, fault, every=1) > 15


PUBLISHING = [
    "write:error=ENOSPC:when=1",
    "write:error=EDQUOT:when=1",
    "fsync:error=EIO:when=1",
    "fsync:error=EIO:when=2",
    "fsync:error=EIO:when=3",
    "link,linkat:error=EIO",
    "link,linkat:error=ENOSPC",
    "mkdir,mkdirat:error=ENOSPC",
    "unlink,unlinkat:error=EROFS:when=1",
]


@pytest.mark.sampled
@needs_strace
@pytest.mark.parametrize("fault", PUBLISHING)
def test_a_fault_while_publishing(desk: Desk, fault: str) -> None:
    """74 at once; the step stays running as after a kill, and the next run completes it."""
    desk.create()
    desk.crash("after_commit:1")
    strace = Strace(desk, fault)
    refused(desk.run("run", "t", before=strace.argv, env=QUIET), 74, "artifacts")
    assert len(strace.injected()) == 1
    assert desk.statuses() == ["running", "done", "done", "running"]
    require_healthy_again(desk)
    assert desk.data("run_started")[-1] == {"recovered": [2]}


LINKS_REFUSED = ["EPERM", "EOPNOTSUPP", "ENOSYS"]


@needs_strace
@pytest.mark.parametrize("error", LINKS_REFUSED)
def test_hard_links_refused_an_exclusive_rename_publishes(desk: Desk, error: str) -> None:
    desk.create()
    strace = Strace(desk, f"link,linkat:error={error}", trace="link,linkat,renameat2")
    killed = {**QUIET, "AGENT_CRASH_AT": "after_effect:2"}
    strace_run = desk.start("run", "t", before=strace.argv, env=killed)
    strace_run.communicate(timeout=30)
    assert strace_run.returncode in (-9, 128 + 9)
    assert len(strace.injected()) == 1
    assert any("RENAME_NOREPLACE" in line and "= 0" in line for line in strace.lines())
    assert desk.published() == {"t-2.md": SUMMARY}

    assert desk.run("run", "t", before=strace.argv, env=QUIET).code == 0

    assert any("RENAME_NOREPLACE" in line and "EEXIST" in line for line in strace.lines())
    assert desk.published() == {"t-2.md": SUMMARY}
    output = desk.rows("SELECT output FROM steps WHERE idx = 2")[0]
    assert json.loads(output)["deduplicated"] is True


@needs_strace
@pytest.mark.parametrize("error", ["EINVAL", "ENOSYS"])
def test_hard_links_and_exclusive_renames_refused_is_74(desk: Desk, error: str) -> None:
    desk.create()
    strace = Strace(desk, "link,linkat:error=EPERM", f"renameat2:error={error}")
    refused(desk.run("run", "t", before=strace.argv, env=QUIET), 74, "artifacts", "link")
    assert len(strace.injected()) == 2
    assert desk.published() == {}
    require_healthy_again(desk)


@needs_strace
def test_hard_links_refused_and_other_content_there(desk: Desk) -> None:
    desk.artifacts.mkdir()
    (desk.artifacts / "t-2.md").write_text("older")
    desk.create()
    strace = Strace(desk, "link,linkat:error=EPERM")
    refused(desk.run("run", "t", before=strace.argv, env=QUIET), 2, "t-2.md", "older task")
    assert len(strace.injected()) == 1
    assert desk.published() == {"t-2.md": "older"}


@needs_strace
def test_a_file_is_durable_before_its_step_is_done(desk: Desk) -> None:
    """Written, synced, named, and its folder synced; likewise each folder that was made for it."""
    desk.create()
    strace = Strace(desk, trace="write,fsync,link,linkat,mkdir,mkdirat,pwrite64")
    env = {**QUIET, "AGENT_ARTIFACTS": "made/for/this"}
    assert desk.run("run", "t", before=strace.argv, env=env).code == 0
    here = re.escape(str(desk.folder.resolve()))
    story = [
        (r"mkdir.*made\"", "make made"),
        (rf"fsync\(\d+<{here}>", "sync its parent"),
        (r"mkdir.*made/for\"", "make for"),
        (rf"fsync\(\d+<{here}/made>", "sync its parent"),
        (r"mkdir.*made/for/this\"", "make this"),
        (rf"fsync\(\d+<{here}/made/for>", "sync its parent"),
        (r"write.*First line", "write the file"),
        (r"fsync.*made/for/this/\.", "sync it"),
        (r"link.*t-2\.md", "name it"),
        (rf"fsync\(\d+<{here}/made/for/this>", "sync its folder"),
        (r"pwrite64.*state\.db-wal", "commit"),
    ]
    lines = iter(strace.lines())
    for pattern, what in story:
        assert any(re.search(pattern, line) for line in lines), f"not in this order: {what}"


@needs_strace
def test_orphaned_temporary_files_are_removed_by_the_next_run_of_their_task(desk: Desk) -> None:
    desk.create(task="t")
    desk.create(task="t-2.md")  # whose files begin like those of the other task
    kill = Strace(desk, "link,linkat:signal=KILL")
    for task in ("t", "t-2.md"):
        killed = desk.run("run", task, before=kill.argv, env=QUIET)
        assert killed.code in (-9, 128 + 9)
    assert len(desk.published()) == 2
    assert desk.run("run", "t").code == 0
    assert sorted(desk.published().values()) == [SUMMARY] * 2
    assert sorted(name.startswith(".t-2.md-2.md.") for name in desk.published()) == [False, True]
    assert desk.run("run", "t-2.md").code == 0
    assert desk.published() == {"t-2.md": SUMMARY, "t-2.md-2.md": SUMMARY}


def older_file(path: Path) -> None:
    path.write_text("older")


def longer_file(path: Path) -> None:
    path.write_text(SUMMARY + "\n")


def folder(path: Path) -> None:
    path.mkdir()


def named_pipe(path: Path) -> None:
    os.mkfifo(path)


def dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("make", [older_file, longer_file, folder, named_pipe, dangling_link])
def test_other_content_under_the_name_is_a_permanent_error(
    desk: Desk, make: Callable[[Path], None]
) -> None:
    """It names the file and where it comes from; nothing is overwritten, nothing waits."""
    desk.artifacts.mkdir()
    there = desk.artifacts / "t-2.md"
    make(there)
    before = there.lstat()
    desk.create()
    refused(desk.run("run", "t"), 2, "artifacts/t-2.md", "older task")
    assert desk.data("step_error")[0]["permanent"] is True
    assert desk.rows("SELECT attempts FROM steps WHERE idx = 2") == [1]
    after = there.lstat()
    assert (after.st_ino, after.st_size, stat.S_IFMT(after.st_mode)) == (
        before.st_ino,
        before.st_size,
        stat.S_IFMT(before.st_mode),
    )
    assert os.listdir(desk.artifacts) == ["t-2.md"]


def test_artifacts_that_are_no_folder(desk: Desk) -> None:
    desk.write("artifacts", "a file")
    desk.create()
    refused(desk.run("run", "t"), 74, "artifacts")
    assert (desk.folder / "artifacts").read_text() == "a file"


# An SQLite that obeys one pragma less. Its default is lowered, since FULL is compiled in.
IGNORING = """
import re, sqlite3

class Ignoring(sqlite3.Connection):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        super().execute("PRAGMA synchronous=NORMAL")

    def execute(self, sql, *rest):
        ignored = re.match(rf"PRAGMA {os.environ['IGNORE']} *=", sql)
        return super().execute("SELECT 1" if ignored else sql, *rest)

_connect = sqlite3.connect
sqlite3.connect = lambda *a, **o: _connect(*a, **{**o, "factory": Ignoring})
"""


@pytest.mark.parametrize("pragma", ["journal_mode", "synchronous", "foreign_keys"])
def test_the_answer_of_each_pragma_is_required(desk: Desk, pragma: str) -> None:
    """SQLite ignores silently what it cannot obey."""
    desk.tools(IGNORING)
    refused(desk.run("create", "t", "plan.json", env={"IGNORE": pragma}), 74, pragma)
    assert desk.run("create", "t", "plan.json", env={"IGNORE": "nothing"}).code == 0


@needs_strace
@pytest.mark.parametrize(
    ("few", "many"), [(50, 250), pytest.param(100, 600, marks=pytest.mark.proof)]
)
def test_at_most_2_05_syncs_per_step(quick_desk: Desk, few: int, many: int) -> None:
    """Counted exactly: `running` and `done` each durable, and nothing more."""
    desk = quick_desk
    desk.tools("def rest(input, ctx, idem_key):\n    return None\n")
    counts = {}
    for steps in (few, many):
        plan = {"goal": "many", "steps": [{"tool": "rest", "input": {}}] * steps}
        desk.create(plan, task=f"t{steps}")
        strace = Strace(desk, trace="fsync,fdatasync,sync,syncfs,sync_file_range,msync")
        assert desk.run("run", f"t{steps}", before=strace.argv, env=QUIET).code == 0
        counts[steps] = len(strace.lines())
    assert 2.0 <= (counts[many] - counts[few]) / (many - few) <= 2.05

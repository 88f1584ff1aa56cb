"""What a careful reader will try: a creation cut off, two runners, lost files, 10,000 steps."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.restart.kit import (
    BUILT_IN_PLAN,
    UNSHARE,
    WAIT,
    Desk,
    ended,
    environment,
    needs_namespaces,
    read_line,
    refused,
    tell,
)

# For each n: SIGKILL to a forked `create` before its n-th SQL statement, then the same `create`
# again. Forks of one process that has imported everything, since two hundred starts take a minute.
# It needs no strace; the sweep of all system calls does.
DIES_AT_STATEMENT = """
import json, os, signal, sqlite3, sys
from labkit.restart.__main__ import main

class Dying(sqlite3.Connection):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.set_trace_callback(count)

def count(statement):
    global left
    left -= 1
    if left == 0:
        signal.raise_signal(signal.SIGKILL)

def agent(die_at, *args):
    global left
    if (child := os.fork()) == 0:
        os.dup2(os.open("out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        code, left = 70, die_at
        try:
            code = main(args)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), open("out").read()

_connect = sqlite3.connect
sqlite3.connect = lambda *a, **o: _connect(*a, **{**o, "factory": Dying})
n, code = 0, -9
while code == -9:
    n += 1
    db = ["--db", f"{n}.db"]
    create = [*db, "create", "t", "plan.json"]
    code, _ = agent(n, *create)
    seen, _ = agent(0, *db, "status", "t")
    print(json.dumps([code, seen, agent(0, *create), agent(0, *create)]), flush=True)
"""


@pytest.mark.proof
def test_create_killed_anywhere_and_created_again(desk: Desk) -> None:
    argv = [sys.executable, "-c", DIES_AT_STATEMENT]
    done = subprocess.run(argv, cwd=desk.folder, env=environment(), capture_output=True, text=True)
    trials = [json.loads(line) for line in done.stdout.splitlines()]
    assert [code for code, *_ in trials] == [-9] * (len(trials) - 1) + [0]
    assert len(trials) > 20
    created, exists = "task t is created\n", "task t exists, with this plan\n"
    for code, seen, again, once_more in trials:
        assert seen == (1 if code else 0)  # unknown before the last COMMIT, and never in part
        assert again == [0, created if code else exists]
        assert once_more == [0, exists]


def test_create_with_another_plan_is_refused(desk: Desk) -> None:
    desk.create()
    before = desk.rows("SELECT * FROM events"), desk.rows("SELECT * FROM steps")
    desk.plan({**BUILT_IN_PLAN, "goal": "another"})
    refused(desk.run("create", "t", "plan.json"), 65, "t has another plan")
    assert (desk.rows("SELECT * FROM events"), desk.rows("SELECT * FROM steps")) == before


def test_create_with_the_same_plan_written_otherwise(desk: Desk) -> None:
    desk.create()
    steps = [dict(reversed(step.items())) for step in BUILT_IN_PLAN["steps"]]
    desk.plan(json.dumps({"steps": steps, "goal": BUILT_IN_PLAN["goal"]}, indent=7).encode())
    again = desk.run("create", "t", "plan.json")
    assert again.code == 0
    assert "exists" in again.out
    assert desk.kinds() == ["task_created"]


def empty_file(path: Path) -> None:
    path.touch()


def no_schema(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("VACUUM")


@pytest.mark.parametrize("leave", [empty_file, no_schema])
def test_create_goes_on_with_an_interrupted_create(desk: Desk, leave: object) -> None:
    assert callable(leave)
    leave(desk.db)
    for command in ("run", "status", "export"):
        refused(desk.run(command, "t"), 1, "t")
    assert (desk.db.stat().st_size == 0) == (leave is empty_file)
    desk.create()
    assert desk.run("run", "t").code == 0


EIGHT = """
import os, sys
from labkit.restart.__main__ import main

worst = 0
for n in range(int(sys.argv[1])):
    os.mkdir(str(n))
    wait, start = os.pipe()
    children = []
    for i in range(8):
        if (child := os.fork()) == 0:
            os.close(start)
            os.read(wait, 1)  # until the parent closes it: all at the same moment
            code = 70
            try:
                code = main(["--db", f"{n}/state.db", "create", f"t{i % 4}", "plan.json"])
            finally:
                os._exit(code)
        children.append(child)
    os.close(wait), os.close(start)
    worst = max([worst, *(os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children)])
sys.exit(worst)
"""


@pytest.mark.proof
def test_8_processes_create_at_the_same_moment_20_times(desk: Desk) -> None:
    """Four tasks, each by two processes. All succeed, whoever comes first."""
    argv = [sys.executable, "-c", EIGHT, "20"]
    options = {"cwd": desk.folder, "env": environment(), "stdin": subprocess.DEVNULL}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=50, **options)
    assert (done.returncode, done.stderr) == (0, "")
    for n in range(20):
        desk.db = desk.folder / str(n) / "state.db"
        assert desk.rows("SELECT id FROM tasks ORDER BY id") == ["t0", "t1", "t2", "t3"]
        assert desk.rows("SELECT kind FROM events") == ["task_created"] * 4
        assert desk.rows("PRAGMA journal_mode") == ["wal"]


TURNS = """
def turn(input, ctx, idem_key):
    print("waiting", flush=True)
    open(os.environ["GATE"]).read()
    _seen(idem_key, "turn")
    return os.environ["GATE"]
"""


def delete_lock(desk: Desk) -> None:
    (lock,) = desk.folder.glob("*.lock")
    lock.unlink()


def two_runners(desk: Desk, *second: str, before: tuple[str, ...] = ()) -> None:
    """The first sits in its tool while the second takes over; then both try to write."""
    gates = {name: desk.pipe(name) for name in ("first", "second")}
    desk.tools(TURNS)
    desk.create({"goal": "g", "steps": [{"tool": "turn", "input": {}}] * 2})
    one = desk.start("run", "t", env={"GATE": "first"})
    assert read_line(one) == "waiting"
    delete_lock(desk)
    two = desk.start(*second, "run", "t", env={"GATE": "second"}, before=before)
    assert read_line(two) == "waiting"
    seen = desk.rows("SELECT * FROM events"), desk.rows("SELECT * FROM steps")

    tell(gates["first"])
    refused(ended(one), 3, "another run")
    assert (desk.rows("SELECT * FROM events"), desk.rows("SELECT * FROM steps")) == seen

    tell(gates["second"])
    assert read_line(two) == "waiting"
    tell(gates["second"])
    assert ended(two).code == 0
    assert desk.rows("SELECT output FROM steps") == ['"second"'] * 2
    assert desk.calls() == {"t-0": 2, "t-1": 1}
    runs = desk.rows("SELECT run_id FROM events WHERE kind = 'step_finished'")
    assert len(set(runs)) == 1
    desk.require_balanced()


def test_two_runners_with_the_lock_file_deleted(desk: Desk) -> None:
    two_runners(desk)


def test_two_runners_through_a_symlinked_database(desk: Desk) -> None:
    (desk.folder / "other").mkdir()
    (desk.folder / "other" / "link.db").symlink_to(desk.db)
    two_runners(desk, "--db", "other/link.db")


@needs_namespaces
def test_two_runners_via_a_second_mount_path(desk: Desk) -> None:
    (desk.folder / "mounted").mkdir()
    script = 'mount --bind . mounted && exec "$@"'
    before = (*UNSHARE, "sh", "-c", script, "sh")
    two_runners(desk, "--db", "mounted/state.db", before=before)


def refused_quickly(desk: Desk, *second: str, before: tuple[str, ...] = ()) -> None:
    desk.pipe("go")
    desk.tools(WAIT)
    desk.create({"goal": "g", "steps": [{"tool": "wait", "input": {}}]})
    assert read_line(desk.start("run", "t")) == "waiting"
    refused(desk.run(*second, "run", "t", before=before), 3, "another process")


def test_two_runners_the_lock_is_named_after_the_resolved_path(desk: Desk) -> None:
    (desk.folder / "link.db").symlink_to(desk.db)
    refused_quickly(desk, "--db", "link.db")


def test_two_runners_one_finished_before_the_other_looked_twice(desk: Desk) -> None:
    """The late one took over; the task is done; the first one's failure must not undo that."""
    gate = desk.pipe("first")
    desk.tools("""
def turn(input, ctx, idem_key):
    if os.environ.get("GATE"):
        print("waiting", flush=True)
        open(os.environ["GATE"]).read()
        raise ValueError("late")
    return None
""")
    desk.create({"goal": "g", "steps": [{"tool": "turn", "input": {}}]})
    one = desk.start("run", "t", env={"GATE": "first"})
    assert read_line(one) == "waiting"
    delete_lock(desk)
    assert desk.run("run", "t").code == 0
    tell(gate)
    refused(ended(one), 3, "another run")
    assert desk.statuses() == ["done", "done"]
    assert desk.kinds()[-1] == "task_done"


PAUSING = """
import sqlite3
_connect, _opened = sqlite3.connect, []

def _pause(*args, **options):
    _opened.append(args)
    if str(len(_opened)) in os.environ.get("PAUSE", "").split(","):
        print("waiting", flush=True)
        open("gate").read()
    return _connect(*args, **options)

sqlite3.connect = _pause

def turn(input, ctx, idem_key):
    if os.environ.get("FAIL"):
        raise ValueError
    print("waiting", flush=True)
    open("go").read()
"""


def test_two_runners_one_fails_and_is_retried_while_the_other_looks(desk: Desk) -> None:
    """Never exit 0 without task_done: who finds the task running again is refused again."""
    gate, go = desk.pipe("gate"), desk.pipe("go")
    desk.tools(PAUSING)
    desk.create({"goal": "g", "steps": [{"tool": "turn", "input": {}}]})
    one = desk.start("run", "t", env={"PAUSE": "2,4"})
    assert read_line(one) == "waiting"  # it has seen a pending task, and has the lock
    delete_lock(desk)
    assert desk.run("run", "t", env={"FAIL": "1"}).code == 2
    tell(gate)
    assert read_line(one) == "waiting"  # it has found a failed task, and looks again
    two = desk.start("run", "--retry", "t")
    assert read_line(two) == "waiting"
    tell(gate)
    refused(ended(one), 3, "another process")
    tell(go)
    assert ended(two).code == 0
    assert desk.kinds()[-1] == "task_done"


def delete(desk: Desk) -> None:
    for path in desk.folder.glob("state.db*"):
        path.unlink()


def replace(desk: Desk) -> None:
    """By a right database of the same task, as a restored backup is one."""
    script = "import sqlite3; sqlite3.connect('state.db').execute(\"VACUUM INTO 'backup.db'\")"
    subprocess.run([sys.executable, "-c", script], cwd=desk.folder, check=True)
    os.replace(desk.folder / "backup.db", desk.db)


def truncate(desk: Desk) -> None:
    os.truncate(desk.db, 100)


def delete_wal(desk: Desk) -> None:
    (desk.folder / "state.db-wal").unlink()


LOSSES = [delete, replace, truncate, delete_wal]


@pytest.mark.parametrize("last_step", [False, True], ids=["in between", "last step"])
@pytest.mark.parametrize("lose", LOSSES)
def test_database_lost_while_running(desk: Desk, lose: object, last_step: bool) -> None:
    """74, never 0."""
    assert callable(lose)
    gate = desk.pipe("go")
    desk.tools(WAIT + "\ndef rest(input, ctx, idem_key):\n    _seen(idem_key, 'rest')\n")
    plan = [{"tool": "wait", "input": {}}] + [{"tool": "rest", "input": {}}] * (not last_step)
    desk.create({"goal": "g", "steps": plan})
    process = desk.start("run", "t")
    assert read_line(process) == "waiting"
    lose(desk)
    tell(gate)
    refused(ended(process), 74, "state.db")
    assert desk.calls() == {}  # at once, and not after the steps that follow


def test_a_wal_behind_a_symlink_is_watched(desk: Desk) -> None:
    """SQLite names it after the file that the link leads to. An agent that looks for it beside the
    link would find none, and stop in each step: so the unharmed run is the proof."""
    desk.create()
    (desk.folder / "link.db").symlink_to("state.db")
    assert desk.run("--db", "link.db", "run", "t").code == 0
    assert desk.kinds()[-1] == "task_done"


def test_database_with_a_second_name_is_refused(desk: Desk) -> None:
    """A hard link has a -wal of its own: under two names SQLite loses what the other wrote."""
    desk.create()
    os.link(desk.db, desk.folder / "other.db")
    for name in ("state.db", "other.db"):
        assert desk.run("--db", name, "status", "t").code == 0  # to read it does no harm
        refused(desk.run("--db", name, "run", "t"), 74, "one name")
    (desk.folder / "other.db").unlink()
    assert desk.run("run", "t").code == 0


def test_database_deleted_before_the_last_commit(desk: Desk) -> None:
    """After it, `os.stat` looks once more: nobody is told `done` about a file that is gone."""
    desk.tools("""
import sqlite3

class Deleting(sqlite3.Connection):
    def execute(self, sql, *rest):
        if sql == "COMMIT" and self.in_transaction and _last(self):
            os.unlink("state.db")
        return super().execute(sql, *rest)

def _last(connection):
    sql = "SELECT count(*) FROM events WHERE kind = 'task_done'"
    return sqlite3.Connection.execute(connection, sql).fetchone()[0]

_connect = sqlite3.connect
sqlite3.connect = lambda *a, **o: _connect(*a, **{**o, "factory": Deleting})
""")
    desk.create()
    refused(desk.run("run", "t"), 74, "state.db is gone")


def test_clock_jumps_back(desk: Desk) -> None:
    """The order is `seq`, never `ts`."""
    desk.create()
    late = {"LABKIT_CLOCK": "2000000000", "AGENT_CRASH_AT": "after_effect:1"}
    assert desk.run("run", "t", env=late).code == -9
    assert desk.run("run", "t", env={"LABKIT_CLOCK": "1000000000"}).code == 0
    times = desk.rows("SELECT ts FROM events WHERE run_id IS NOT NULL ORDER BY seq")
    assert times != sorted(times)
    exported = [json.loads(line) for line in desk.run("export", "t").out.splitlines()]
    assert [event["seq"] for event in exported] == list(range(1, len(exported) + 1))
    assert exported[-1]["kind"] == "task_done"
    desk.require_balanced()


COUNTING = """
import sqlite3

work = 0

def _count():
    global work
    work += 1

class Counting(sqlite3.Connection):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.set_progress_handler(_count, 10)  # ten instructions of SQLite's virtual machine

_connect = sqlite3.connect
sqlite3.connect = lambda *a, **o: _connect(*a, **{**o, "factory": Counting})

def count(input, ctx, idem_key):
    return work
"""


@pytest.mark.proof
def test_10_000_steps_cost_per_step_does_not_grow(quick_desk: Desk) -> None:
    """Counted, not timed: instructions of SQLite from one step's tool to the next one's."""
    desk, total = quick_desk, 10_000
    desk.tools(COUNTING)
    desk.create({"goal": "many", "steps": [{"tool": "count", "input": {}}] * total})
    assert desk.run("run", "t").code == 0
    work = [int(output) for output in desk.rows("SELECT output FROM steps ORDER BY idx")]
    assert len(work) == total

    def per_step(at: int) -> float:
        return (work[at] - work[at - 80]) / 80

    assert per_step(100) > 2  # the counter counts
    assert per_step(total - 1) <= 1.1 * per_step(100)

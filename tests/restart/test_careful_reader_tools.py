"""What a careful reader will try: what a tool returns, raises, forks and starts."""

import os
import re
import select
import signal
import sys
from pathlib import Path

import pytest

from tests.restart.kit import PATIENCE_S, WAIT, Desk, ended, kill, opened, read_line, refused, tell

GIVE = """
import datetime

def _nest(depth):
    root = value = []
    for _ in range(depth):
        value.append([])
        value = value[0]
    return root

VALUES = {
    "nan": lambda: {"x": [float("nan")]},
    "infinity": lambda: {"x": float("-inf")},
    "bytes": lambda: b"x",
    "set": lambda: {1, 2},
    "tuple": lambda: {"pair": (1, 2)},
    "datetime": lambda: datetime.datetime(2026, 1, 1),
    "integer keys": lambda: {1: "x"},
    "mixed keys": lambda: {"a": 1, 2: "x"},
    "a lone surrogate": lambda: "\\ud800",
    "100,000 deep": lambda: _nest(100_000),
    "a cycle": lambda: (lambda x: x.append(x) or x)([]),
}

def give(input, ctx, idem_key):
    _seen(idem_key, "give")
    return VALUES[os.environ["GIVE"]]()
"""
NOT_JSON = {
    "nan": "nan",
    "infinity": "-inf",
    "bytes": "bytes",
    "set": "set",
    "tuple": "output.pair",
    "datetime": "datetime",
    "integer keys": "key",
    "mixed keys": "key",
    "a lone surrogate": "surrogate",
    "100,000 deep": "nested",
    "a cycle": "nested",
}


def one_step(tool: str) -> dict[str, object]:
    return {"goal": "One step", "steps": [{"tool": tool, "input": {}}]}


@pytest.mark.sampled
@pytest.mark.parametrize("name", NOT_JSON)
def test_a_tool_returns_what_is_no_json(desk: Desk, name: str) -> None:
    """A permanent failure that says where and what instead; the effect ran once in all."""
    desk.tools(GIVE)
    desk.create(one_step("give"))
    ran = desk.run("run", "t", env={"GIVE": name})
    refused(ran, 2, "step 0 (give)", NOT_JSON[name])
    assert re.search("use |build it of ", ran.err)  # what to do instead
    assert desk.calls() == {"t-0": 1}
    assert desk.data("step_error")[0]["permanent"] is True
    assert desk.data("task_failed")[0]["reason"] == "permanent"
    assert desk.statuses() == ["failed", "failed"]
    desk.require_balanced()


def test_a_tool_returns_10_mb_and_every_kind_of_json(desk: Desk) -> None:
    """Stored as it is, and the same for the next step, read back from the database."""
    desk.tools("""
NUMBERS = [0, -1, 2**70, 0.1, -0.0, 1e308, 5e-324]
VALUE = {"": None, "b": [True, False], "n": NUMBERS, "é😀": "\\x00"}

def make(input, ctx, idem_key):
    return {**VALUE, "big": "x" * 10_000_000}

def compare(input, ctx, idem_key):
    assert repr(ctx[0]) == repr({**VALUE, "big": "x" * 10_000_000})
    assert (list(ctx), len(ctx), 0 in ctx, 1 in ctx) == ([0], 1, True, False)
    return None
""")
    desk.create({"goal": "g", "steps": [{"tool": n, "input": {}} for n in ("make", "compare")]})
    desk.crash("before_effect:1")
    assert desk.run("run", "t").code == 0
    assert desk.rows("SELECT length(output) > 10000000 FROM steps") == [1, 0]


def test_a_tool_cannot_write_through_the_context(desk: Desk) -> None:
    desk.tools("""
def first(input, ctx, idem_key):
    return {"x": [1]}

def spoil(input, ctx, idem_key):
    ctx[0]["x"].append(2)
    assert ctx[0] == {"x": [1]}
    ctx[0] = None
""")
    desk.create({"goal": "g", "steps": [{"tool": n, "input": {}} for n in ("first", "spoil")]})
    refused(desk.run("run", "t"), 2, "TypeError")
    assert desk.rows("SELECT output FROM steps WHERE idx = 0") == ['{"x":[1]}']


RAISES = {
    "SystemExit(0)": "SystemExit: 0",
    "KeyboardInterrupt()": "KeyboardInterrupt",
    "asyncio.CancelledError()": "CancelledError",
    "GeneratorExit()": "GeneratorExit",
    "Own('mine')": "Own: mine",
    "OSError(errno.ENOSPC, 'No space')": "OSError: [Errno 28] No space",
    "OSError(errno.EIO, 'I/O')": "OSError: [Errno 5] I/O",
    "MemoryError()": "MemoryError",
    "RecursionError('deep')": "RecursionError: deep",
}


FAIL = """
import asyncio, errno

class Own(BaseException): pass

def fail(input, ctx, idem_key):
    _seen(idem_key, "fail")
    raise eval(os.environ["RAISE"])
"""


@pytest.mark.sampled
@pytest.mark.parametrize("error", RAISES)
def test_a_tool_raises_anything(desk: Desk, error: str) -> None:
    """Journaled; never exit 0 without task_done. A tool's errno is no fault of our storage."""
    desk.tools(FAIL)
    desk.create(one_step("fail"))
    refused(desk.run("run", "t", env={"RAISE": error}), 2, RAISES[error])
    errors = desk.data("step_error")
    assert [found["error"].startswith(RAISES[error]) for found in errors] == [True] * 3
    assert not any(found["permanent"] or found["interrupted"] for found in errors)
    assert desk.calls() == {"t-0": 3}
    assert desk.kinds()[-1] == "task_failed"
    desk.require_balanced()


def test_an_error_that_cannot_be_printed_is_journaled_too(desk: Desk) -> None:
    desk.tools("""
class Rude(Exception):
    def __str__(self):
        raise ValueError

def rude(input, ctx, idem_key):
    raise Rude

def wild(input, ctx, idem_key):
    raise ValueError("\\ud800" + "x" * 100_000)
""")
    desk.create(one_step("rude"))
    refused(desk.run("run", "t"), 2, "Rude")
    desk.create(one_step("wild"), task="u")
    refused(desk.run("run", "u"), 2, "ValueError")
    assert max(map(len, desk.rows("SELECT data FROM events"))) < 3000


def test_a_tool_that_fails_once_is_tried_again(desk: Desk) -> None:
    desk.tools("""
def flaky(input, ctx, idem_key):
    _seen(idem_key, "flaky")
    if open("witness").read().count("flaky") == 1:
        raise OSError("not yet")
    return None
""")
    desk.create(one_step("flaky"))
    assert desk.run("run", "t").code == 0
    assert desk.kinds()[2:-1] == ["step_started", "step_error", "step_started", "step_finished"]
    assert desk.rows("SELECT attempts FROM steps") == [2]


def test_a_permanent_error_of_a_tool_is_not_tried_again(desk: Desk) -> None:
    desk.tools("""
from labkit.errors import PermanentError

def refuse(input, ctx, idem_key):
    _seen(idem_key, "refuse")
    raise PermanentError("the account is closed")
""")
    desk.create(one_step("refuse"))
    refused(desk.run("run", "t"), 2, "the account is closed")
    assert desk.calls() == {"t-0": 1}


def interrupt(desk: Desk, env: dict[str, str] | None = None) -> None:
    """Ctrl-C while the tool waits."""
    process = desk.start("run", "t", env=env)
    assert read_line(process) == "waiting"
    process.send_signal(signal.SIGINT)
    refused(ended(process), 130, "interrupted")


def test_ctrl_c_is_journaled_and_exits_130(desk: Desk) -> None:
    go = desk.pipe("go")
    desk.tools(WAIT)
    desk.create(one_step("wait"))
    interrupt(desk)
    assert desk.kinds()[-2:] == ["step_started", "step_error"]
    assert desk.data("step_error")[0]["interrupted"] is True
    assert desk.statuses() == ["pending", "pending"]
    assert desk.rows("SELECT attempts FROM steps") == [1]  # it counts as after a kill
    desk.require_balanced()
    again = desk.start("run", "t")
    assert read_line(again) == "waiting"
    tell(go)
    assert ended(again).code == 0
    assert desk.rows("SELECT attempts FROM steps") == [2]


def test_ctrl_c_while_a_step_is_delayed(desk: Desk) -> None:
    desk.create()
    process = desk.start("run", "t", env={"AGENT_STEP_DELAY": "600"})
    desk.wait_for_row("SELECT seq FROM events WHERE kind = 'step_started'")
    process.send_signal(signal.SIGINT)
    refused(ended(process), 130, "interrupted")
    assert desk.data("step_error")[0]["interrupted"] is True
    assert desk.statuses() == ["pending"] * 4


def test_ctrl_c_does_not_wait_for_a_thread_that_a_tool_left(desk: Desk) -> None:
    desk.pipe("go")
    desk.tools(
        "import threading\n"
        + WAIT
        + """
def leave(input, ctx, idem_key):
    threading.Thread(target=lambda: open("go").read()).start()
"""
    )
    desk.create({"goal": "g", "steps": [{"tool": n, "input": {}} for n in ("leave", "wait")]})
    interrupt(desk)
    assert desk.statuses() == ["pending", "done", "pending"]


def test_ctrl_c_that_a_tool_swallows_still_stops_the_run(desk: Desk) -> None:
    desk.tools("""
import signal

def swallow(input, ctx, idem_key):
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        pass
    return None
""")
    desk.create({"goal": "g", "steps": [{"tool": "swallow", "input": {}}] * 2})
    refused(desk.run("run", "t"), 130, "interrupted")
    assert desk.statuses()[1:] == ["done", "pending"]
    desk.require_balanced()
    assert desk.run("run", "t").code == 0


def test_ctrl_c_on_the_last_attempt_leaves_its_outcome_unknown(desk: Desk) -> None:
    desk.pipe("go")
    desk.tools(WAIT)
    desk.create(one_step("wait"))
    last = {"AGENT_MAX_ATTEMPTS": "1"}
    interrupt(desk, last)
    refused(desk.run("run", "t", env=last), 2, "unknown", "effect may exist")


def test_killed_after_the_effect_of_the_last_allowed_attempt(desk: Desk) -> None:
    """The failure says that the outcome is unknown; the effect may exist, and here it does."""
    desk.create()
    last = {"AGENT_MAX_ATTEMPTS": "2"}
    for _ in range(2):
        assert desk.run("run", "t", env={**last, "AGENT_CRASH_AT": "after_effect:2"}).code == -9
    refused(desk.run("run", "t", env=last), 2, "step 2", "outcome is unknown", "effect may exist")
    assert desk.data("task_failed")[0]["outcome"] == "unknown"
    assert desk.data("task_failed")[0]["reason"] == "max_attempts"
    assert desk.statuses() == ["failed", "done", "done", "failed"]
    assert list(desk.published()) == ["t-2.md"]
    refused(desk.run("run", "t"), 2, "outcome is unknown")
    assert desk.run("run", "--retry", "t").code == 0
    assert desk.data("step_finished")[-1] == {"tool": "write_artifact"}


def test_a_step_that_kills_its_process_each_time_comes_to_an_end(desk: Desk) -> None:
    desk.tools("""
import signal

def die(input, ctx, idem_key):
    _seen(idem_key, "die")
    signal.raise_signal(signal.SIGKILL)
""")
    desk.create(one_step("die"))
    assert [desk.run("run", "t").code for _ in range(5)] == [-9, -9, -9, 2, 2]
    assert desk.calls() == {"t-0": 3}


def test_a_child_that_a_tool_forked_outlives_the_agent(desk: Desk) -> None:
    """The child holds what the agent had open, yet the next run is not blocked."""
    go = desk.pipe("go")
    alive = desk.pipe("alive")
    desk.tools("""
def breed(input, ctx, idem_key):
    _seen(idem_key, "breed")
    if open("witness").read().count("breed") == 1 and os.fork() == 0:
        os.open("alive", os.O_WRONLY)
        os.close(1), os.close(2)
        open("go").read()
        os._exit(0)
    return None
""")
    desk.create(one_step("breed"))
    with opened(alive, os.O_RDONLY | os.O_NONBLOCK) as end_of_child:
        desk.crash("after_effect:0")
        assert desk.run("run", "t").code == 0
        assert desk.calls() == {"t-0": 2}
        tell(go)  # the child waits to be told: it lived all the time
        assert select.select([end_of_child], [], [], PATIENCE_S)[0]


def test_a_forked_child_that_returns_does_not_go_on_as_a_second_agent(desk: Desk) -> None:
    desk.tools("""
def split(input, ctx, idem_key):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    else:
        os.close(1), os.close(2)
    return {"child": child == 0}

def after(input, ctx, idem_key):
    _seen(idem_key, "after")
""")
    desk.create({"goal": "g", "steps": [{"tool": n, "input": {}} for n in ("split", "after")]})
    assert desk.run("run", "t").code == 0
    assert desk.rows("SELECT output FROM steps") == ['{"child":false}', "null"]
    assert desk.calls() == {"t-1": 1}
    desk.require_balanced()


def commanding(desk: Desk) -> tuple[Path, Path]:
    """A tool whose command starts a grandchild, which acts when it is told to."""
    desk.tools("""
def command(input, ctx, idem_key):
    script = 'exec 9>alive; echo up >&9; read word <go; echo t-late >>witness'
    return tools.run_command(["sh", "-c", f"sh -c '{script}' & wait"])[0]
""")
    desk.create(one_step("command"))
    return desk.pipe("go"), desk.pipe("alive")


@pytest.mark.parametrize("how", ["SIGKILL", "Ctrl-C"])
def test_a_command_that_a_tool_started_ends_with_the_agent(desk: Desk, how: str) -> None:
    go, alive = commanding(desk)
    with opened(alive, os.O_RDONLY | os.O_NONBLOCK) as grandchild, opened(go, os.O_RDWR) as order:
        process = desk.start("run", "t")
        assert select.select([grandchild], [], [], PATIENCE_S)[0]
        assert os.read(grandchild, 10) == b"up\n"
        if how == "SIGKILL":
            kill(process)
        else:
            process.send_signal(signal.SIGINT)
            refused(ended(process), 130)
        gone = select.select([grandchild], [], [], 5)[0]  # the end of the pipe: nobody holds it
        os.write(order, b"act\n")
        select.select([grandchild], [], [], 5)
        assert desk.calls() == {}
        assert gone


IGNORING_CHILDREN = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("before", [(), (sys.executable, "-c", IGNORING_CHILDREN)], ids=len)
def test_a_command_gives_status_and_output(desk: Desk, before: tuple[str, ...]) -> None:
    """Also where whoever started the agent ignores the ends of children."""
    desk.tools("""
def command(input, ctx, idem_key):
    status, out, err = tools.run_command(["sh", "-c", "cat; echo out; echo err >&2; exit 7"])
    return [status, out.decode(), err.decode()]

def absent(input, ctx, idem_key):
    tools.run_command(["absent-command"])
""")
    desk.create({"goal": "g", "steps": [{"tool": n, "input": {}} for n in ("command", "absent")]})
    refused(desk.run("run", "t", before=before), 2, "FileNotFoundError", "absent-command")
    assert desk.rows("SELECT output FROM steps WHERE idx = 0") == ['[7,"out\\n","err\\n"]']


def test_a_source_that_gives_no_text_is_a_permanent_error(desk: Desk) -> None:
    """Known only at `run`, where the source is a learner's tool."""
    desk.tools("""
VALUES = {"number": {"text": 1}, "list": ["text"], "other": {"summary": "x"}}

def give(input, ctx, idem_key):
    return VALUES[os.environ["GIVE"]]
""")
    summarize = {"tool": "summarize", "input": {"from": 0}}
    desk.create({"goal": "g", "steps": [{"tool": "give", "input": {}}, summarize]})
    for number, name in enumerate(("number", "list", "other")):
        desk.create(task=f"t{number}")
        refused(desk.run("run", f"t{number}", env={"GIVE": name}), 2, "step 0", "text")
        assert desk.kinds(f"t{number}").count("step_error") == 1

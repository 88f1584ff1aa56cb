"""`labkit runs`: each command, each exit code, one line for each error, and never a payload."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from labkit import cli
from tests.conftest import Ran, run_python

START = 1767225600
SECRETS = ("Where is my order?", "Be kind.", "found it", "looked into the mailbox", "Sent.")
KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
SEND = "model-2.tool-1"
APP = ("--app", "shop:runner")


class Desk:
    """A folder with the program `shop.py`, where commands are typed; `at` is the time, in seconds
    after the start. `shop` and `process` are processes of their own; `runs` is the same command
    inside this one, since a hundred processes take minutes.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, said: pytest.CaptureFixture[str]):
        self.folder, self._patch, self._said = folder, patch, said
        if not (folder / "shop.py").exists():
            shutil.copy(Path(__file__).with_name("shop.py"), folder)

    def shop(self, *words: str, at: int = 0, **env: str) -> Ran:
        return run_python("shop.py", *words, env=environment(at, env), cwd=self.folder)

    def process(self, *words: str, at: int = 0, **env: str) -> Ran:
        env = environment(at, env)
        return run_python("-m", "labkit", "runs", *words, env=env, cwd=self.folder)

    def runs(self, *words: str, at: int = 0, **env: str) -> Ran:
        self._said.readouterr()
        with self._patch.context() as patch:
            patch.chdir(self.folder)
            patch.setattr(sys, "path", [*sys.path])  # the command adds the folder to it
            for name, value in environment(at, env).items():
                patch.setenv(name, value)
            code = cli.main(["runs", *words])
        for name in ("shop", "ready", "odd", "broken", "leaves", "needs"):
            sys.modules.pop(name, None)
        return Ran(code, *self._said.readouterr())

    def kill_in(self, tool: str, run_id: str = "r1", **env: str) -> None:
        """A run whose process was killed at time 10, in the tool, after its effect."""
        assert self.shop("create", run_id, **env).code == 0
        killed = self.shop("go", run_id, "worker-a", at=10, DIE_IN=tool, **env)
        assert killed.code == -signal.SIGKILL

    def shown(self, run_id: str = "r1", **env: str) -> dict[str, object]:
        ran = self.runs("show", run_id, **env)
        assert (ran.code, ran.err) == (0, "")
        shown: dict[str, object] = json.loads(ran.out)
        return shown

    def sent(self) -> int:
        return (self.folder / "witness.txt").read_text("utf-8").count(" send\n")

    def resolve(self, *words: str, at: int = 100) -> Ran:
        version = str(self.shown()["version"])
        return self.runs("resolve", *APP, "--version", version, "r1", *words, at=at)


def environment(at: int, more: dict[str, str]) -> dict[str, str]:
    return {"LABKIT_CLOCK": f"{START + at}+0.001", **more}


MakeDesk = Callable[[str], Desk]


@pytest.fixture(scope="session")
def left(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder in which run r1 was killed in a tool, made once for each tool."""

    @cache
    def make(tool: str) -> Path:
        folder = tmp_path_factory.mktemp(tool)
        with pytest.MonkeyPatch.context() as patch:
            Desk(folder, patch, None).kill_in(tool)  # type: ignore[arg-type]
        return folder

    return make


@pytest.fixture
def desk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Desk:
    """An empty folder."""
    return Desk(tmp_path, monkeypatch, capsys)


@pytest.fixture
def desk_of(
    left: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> MakeDesk:  # fmt: skip
    """`desk_of("send")`: a copy of the folder in which run r1 was killed in that tool."""

    def copy(tool: str) -> Desk:
        shutil.copytree(left(tool), tmp_path, dirs_exist_ok=True)
        return Desk(tmp_path, monkeypatch, capsys)

    return copy


@pytest.fixture
def waiting(desk_of: MakeDesk) -> Desk:
    """Run r1 waits: it was killed in the tool `send`, after the effect."""
    desk = desk_of("send")
    assert desk.runs("resume", *APP, "r1", at=60).code == 4
    return desk


def refused(ran: Ran, code: int, *parts: str) -> None:
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("labkit runs: ")
    assert ran.err.count("\n") == 1
    assert [part for part in parts if part not in ran.err] == []


# What the file alone says.


@pytest.mark.parametrize("sealed", [{}, {"SEALED": KEY}], ids=["plaintext", "encrypted"])
def test_list_and_show_read_the_file_alone(desk: Desk, sealed: dict[str, str]) -> None:
    """Without the application, and without the key."""
    desk.kill_in("send", **sealed)
    os.unlink(desk.folder / "shop.py")
    before = (desk.folder / "state.db").read_bytes()
    listed = desk.process("list", at=20)
    assert listed == (0, listed.out, "")
    assert listed.out.startswith("r1  RUNNING  support 1.0  version 2  lease of worker-a until ")
    shown = json.loads(desk.process("show", "r1").out)
    assert shown["lease_expires_at"].startswith("2026-01-01T00:00:40.")
    steps, attempts = shown["steps"], shown["attempts"]
    assert [step["step_id"] for step in steps] == ["model-1", "model-1.tool-1", "model-2", SEND]
    assert [step["effect"] for step in steps] == [None, "READ_ONLY", None, "NON_IDEMPOTENT"]
    assert [a["status"] for a in attempts] == ["SUCCEEDED"] * 3 + ["RUNNING"]
    assert shown["allowed_resolutions"] == []
    assert (desk.folder / "state.db").read_bytes() == before


def test_no_payload_is_shown(waiting: Desk) -> None:
    """The control: the same words are in the file, which is plaintext."""
    answer = ("--reason", "looked into the mailbox", "--actor", "ann")
    ran = waiting.resolve("confirm", "--step", SEND, "--result", "found it", *answer)
    assert ran.code == 0
    every = ["list", "--json"], ["list"], ["show", "r1"]
    told = ran.out + "".join(waiting.runs(*words).out for words in every)
    assert "ann" in told
    assert [secret for secret in SECRETS if secret in told] == []
    stored = b"".join(path.read_bytes() for path in waiting.folder.glob("state.db*"))
    assert [secret for secret in SECRETS if secret.encode() not in stored] == []


def test_the_list_is_chosen(desk: Desk) -> None:
    for name in ("a", "b", "c"):
        desk.shop("create", name)
    assert desk.shop("go", "b").code == 0
    desk.kill_in("look_up", "d")

    def ids(*words: str, at: int = 20) -> list[str]:
        ran = desk.runs("list", "--json", *words, at=at)
        assert ran.code == 0, ran.err
        return [json.loads(line)["run_id"] for line in ran.out.splitlines()]

    assert ids() == ["a", "b", "c", "d"]
    assert ids("--status", "CREATED") == ids("--status", "created") == ["a", "c"]
    assert ids("--status", "SUCCEEDED", "--definition", "support") == ["b"]
    assert ids("--definition", "other") == []
    assert ids("--limit", "2", "--after", "a") == ["b", "c"]
    assert ids("--expired") == []
    assert ids("--expired", at=60) == ["d"]
    line = desk.runs("list", "--expired", at=60).out
    assert "lease of worker-a ended 2026-01-01 00:00:40" in line


def test_what_waits_says_for_what_and_how_to_answer(waiting: Desk) -> None:
    line = waiting.runs("list").out
    assert f"waits for UNCERTAIN_NON_IDEMPOTENT at {SEND}; answers: retry, confirm, reject" in line
    shown = waiting.shown()
    assert shown["waiting_step_id"] == SEND
    assert shown["allowed_resolutions"] == [
        "RETRY_STEP", "CONFIRM_STEP", "REJECT_STEP", "FAIL_RUN", "CANCEL_RUN"
    ]  # fmt: skip


def test_a_file_whose_creation_was_cut_off_holds_no_run(desk: Desk) -> None:
    (desk.folder / "state.db").touch()
    assert desk.runs("list") == (0, "", "")
    refused(desk.runs("show", "r1"), 1, "no run")
    assert (desk.folder / "state.db").stat().st_size == 0


def test_an_id_cannot_speak_to_the_terminal(desk: Desk) -> None:
    desk.shop("create", "a\x1b[2J\x9b2J\nb  SUCCEEDED")
    line = desk.runs("list").out
    assert line.startswith("a\\u001b[2J\\u009b2J\\nb  SUCCEEDED  CREATED")
    assert line.count("\n") == 1
    as_json = desk.runs("list", "--json").out
    assert "\x9b" not in as_json
    assert json.loads(as_json)["run_id"] == "a\x1b[2J\x9b2J\nb  SUCCEEDED"
    refused(desk.runs("show", "\x1b[2J"), 1, "\\x1b[2J")


# What goes on with a run.


def test_0_a_run_is_carried_to_its_end(desk_of: MakeDesk) -> None:
    desk = desk_of("look_up")
    ran = desk.runs("resume", *APP, "r1", at=60)
    assert ran == (0, "r1  SUCCEEDED  support 1.0  version 3\n", "")
    assert desk.runs("resume", *APP, "r1", at=60) == ran  # it has ended, and is not begun again
    assert desk.sent() == 1


def test_a_run_that_was_only_created_is_begun(desk: Desk) -> None:
    desk.shop("create", "r1")
    assert desk.runs("resume", *APP, "r1").code == 0


def test_3_another_holds_the_lease(desk_of: MakeDesk) -> None:
    desk = desk_of("look_up")
    ran = desk.runs("resume", *APP, "r1", at=20)
    refused(ran, 3, "worker-a", "2026-01-01T00:00:40", "or its process died: --wait")
    assert desk.shown()["status"] == "RUNNING"


def test_resume_waits_for_the_lease_and_says_how_long(desk_of: MakeDesk) -> None:
    desk = desk_of("look_up")
    ran = desk.runs("resume", *APP, "--wait", "r1", at=20, IMPATIENT="1")
    first, last = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert "worker-a holds it until 2026-01-01T00:00:40" in first
    assert first.endswith("; waiting 20 s")
    assert "process died" not in first
    assert last.startswith("r1  SUCCEEDED")


def test_4_an_uncertain_effect_waits_and_is_not_repeated(waiting: Desk) -> None:
    for _ in range(2):
        ran = waiting.runs("resume", *APP, "r1", at=70)
        assert (ran.code, ran.err) == (4, "")
        assert "WAITING" in ran.out
    assert waiting.sent() == 1


ODD = """
import shop
good = shop.act
async def act(request):
    await good(request)
    if request.tool_name == "send":
        raise TypeError("no text,\\n\\x1b[2J a dict")
    return "done"
shop.act = act
runner = shop.runner()
"""


def test_what_waits_or_failed_says_why_in_one_line(desk: Desk) -> None:
    (desk.folder / "odd.py").write_text(ODD, "utf-8")
    desk.shop("create", "r1")
    why = f"{SEND}#1  UNCERTAIN: 'TypeError: no text,\\n\\x1b[2J a dict'"
    for _ in range(2):
        ran = desk.runs("resume", "--app", "odd:runner", "r1")
        assert (ran.code, ran.err, ran.out.splitlines()[1:]) == (4, "", [why])
    ran = desk.resolve("fail")
    assert (ran.code, ran.err, ran.out.splitlines()[1:]) == (2, "", [why])
    assert desk.runs("list").out.count("\n") == 1  # the file alone: an error is a payload


def test_a_store_made_in_the_wrong_folder_is_said(desk: Desk) -> None:
    refused(
        desk.runs("resume", *APP, "r1"), 1, "no run 'r1' in ", "check the folder and the id",
        "; state.db (-wal, -shm) is new and holds no run",
    )  # fmt: skip
    again = desk.runs("cancel", *APP, "r1")
    refused(again, 1, "check the folder and the id")
    assert "is new" not in again.err


@pytest.mark.parametrize(
    ("words", "code", "sent"),
    [
        (["retry", "--step", SEND], 0, 2),
        (["confirm", "--step", SEND, "--result", "found it"], 0, 1),
        (["confirm", "--step", SEND, "--result-file", "found.txt"], 0, 1),
        (["reject", "--step", SEND, "--code", "NOT_SENT", "--message", "it is empty"], 0, 1),
        (["fail"], 2, 1),
        (["cancel", "--step", SEND, "--reason", "too late", "--actor", "ann"], 2, 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_answer(waiting: Desk, words: list[str], code: int, sent: int) -> None:
    (waiting.folder / "found.txt").write_text("found it\n", "utf-8")
    ran = waiting.resolve(*words)
    assert (ran.code, ran.err) == (code, "")
    assert waiting.sent() == sent
    [resolution] = waiting.shown()["resolutions"]  # type: ignore[misc]
    assert resolution["action"].lower().startswith(words[0])


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["retry"], 64, "give --step model-2.tool-1"),
        (["confirm", "--result", "found it"], 64, "give --step model-2.tool-1"),
        (["retry", "--step", "model-1"], 65, "not at model-1"),
        (["confirm", "--step", SEND], 64, "confirm: give --result TEXT or --result-file FILE"),
        (["reject", "--step", SEND], 64, "reject: give --code TEXT and --message TEXT"),
        (["reject", "--step", SEND, "--code", "C"], 64, "reject: give --message TEXT"),
        (["reject", "--step", SEND, "--code", "", "--message", ""], 65, "a code and a message"),
        (["continue"], 64, "no answer continue; use retry, confirm, reject, fail, cancel"),
        (["forget"], 64, "no answer forget; use retry, confirm, reject, fail, cancel"),
        (["confirm", "--step", SEND, "--result-file", "no.txt"], 66, "no.txt: No such file"),
        (["confirm", "--step", SEND, "--result-file", "x.bin"], 65, "x.bin is not UTF-8"),
        (["confirm", "--result", "a", "--result-file", "x.bin"], 64, "not both"),
    ],
)  # fmt: skip
def test_an_answer_that_does_not_fit_changes_nothing(
    waiting: Desk, words: list[str], code: int, part: str
) -> None:
    (waiting.folder / "x.bin").write_bytes(b"\xff")
    before = waiting.shown()
    refused(waiting.resolve(*words), code, part)
    assert waiting.shown() == before


def test_an_answer_to_an_older_state_is_refused(waiting: Desk) -> None:
    version = str(int(str(waiting.shown()["version"])) - 1)
    ran = waiting.runs("resolve", *APP, "--version", version, "r1", "fail", at=100)
    refused(ran, 65, f"not {version}")
    assert waiting.runs("resume", *APP, "r1", at=100).code == 4


def test_2_cancel_ends_a_run(desk: Desk) -> None:
    desk.shop("create", "r1")
    refused(desk.runs("cancel", *APP, "--version", "7", "r1"), 65, "version 1, not 7")
    ran = desk.runs("cancel", *APP, "r1")
    assert ran == (2, "r1  CANCELLED  support 1.0  version 2\n", "")
    assert desk.runs("resume", *APP, "r1").code == 2
    refused(desk.runs("cancel", *APP, "r1"), 65, "has ended")


def test_3_a_cancel_of_what_another_advances_is_stored(desk_of: MakeDesk) -> None:
    desk = desk_of("look_up")
    ran = desk.runs("cancel", *APP, "r1", at=20)
    assert (ran.code, ran.err) == (3, "")
    assert "cancel requested" in ran.out
    ran = desk.runs("resume", *APP, "r1", at=60)
    assert ran.code == 2
    assert "cancel requested" not in ran.out
    assert desk.shown()["status"] == "CANCELLED"


def test_130_ctrl_c_leaves_a_run_that_anybody_can_go_on_with(desk: Desk) -> None:
    desk.shop("create", "r1")
    argv = [sys.executable, "-m", "labkit", "runs", "resume", *APP, "r1"]
    env = {**os.environ, **environment(10, {"HANG_IN": "look_up"})}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, cwd=desk.folder, env=env, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "hanging\n"
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "labkit runs: interrupted\n")
    assert desk.shown()["lease_owner"] is None
    assert desk.runs("resume", *APP, "r1", at=11).code == 0


# What is wrong is one line.

MISTAKES: list[tuple[list[str], int, str]] = [
    ([], 64, "no command"),
    (["forget", "r1"], 64, "forget r1"),
    (["list", "r1"], 64, "list r1"),
    (["show"], 64, "show: give RUN_ID"),
    (["list", "--status", "DONE"], 64, "--status DONE: use CREATED, RUNNING"),
    (["list", "--limit", "0"], 64, "--limit 0"),
    (["list", "--limit", "9" * 30], 64, "use 1 or more"),
    (["list", "--wait"], 64, "list"),
    (["list", "--nope"], 64, "--nope not recognized"),
    (["list", "--after", "nobody"], 1, "--after nobody: no such run"),
    (["show", "nobody"], 1, "no run nobody"),
    (["--db", "no.db", "list"], 66, "no.db does not exist; check the folder"),
    (["show", "--db", "shop.py", "r1"], 74, "file is not a database"),
    (["show", "--db", "other.db", "r1"], 74, "other.db belongs to another program"),
    (["resume", "r1"], 64, "resume r1: give --app MODULE:NAME"),
    (["resume", "--db", "state.db", *APP, "r1"], 64, "resume takes no --db; the Runner of --app"),
    (["resume", "--app", "shop.py:runner", "r1"], 64, "write shop without .py"),
    (["resume", "--app", "shop", "r1"], 64, "use MODULE:NAME"),
    (["resume", "--app", "nope:runner", "r1"], 65, "'nope'; run it in the folder of nope.py"),
    (["resume", "--app", "needs:runner", "r1"], 65, "No module named 'nope'; mend it"),
    (["resume", "--app", "shop:nope", "r1"], 65, "nope in shop is no Runner"),
    (["resume", "--app", "shop:os", "r1"], 65, "os in shop is no Runner"),
    (["resume", "--app", "shop:act", "r1"], 65, "--app shop:act: act in shop is no Runner"),
    (["resume", "--app", "broken:runner", "r1"], 65, "--app broken:runner: ZeroDivisionError"),
    (["resume", "--app", "leaves:runner", "r1"], 65, "--app leaves:runner: SystemExit"),
    (["resume", *APP, "nobody"], 1, "no run 'nobody'"),
    (["resolve", *APP, "r1", "fail"], 64, "resolve r1 fail: give --version N"),
    (["resolve", *APP, "--version", "1", "r1"], 64, "resolve r1: give one of retry, confirm"),
    (["resolve", *APP, "--version", "x", "r1", "fail"], 64, "--version x: use 1 or more"),
    (["resolve", *APP, "--version", "1", "r1", "fail"], 65, "only a WAITING"),
]


@pytest.mark.parametrize(("words", "code", "part"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_one_line_and_a_code(
    words: list[str], code: int, part: str, desk_of: MakeDesk
) -> None:
    desk = desk_of("look_up")
    (desk.folder / "broken.py").write_text("1 / 0\n", "utf-8")
    (desk.folder / "needs.py").write_text("import nope\n", "utf-8")
    (desk.folder / "leaves.py").write_text("raise SystemExit(0)\n", "utf-8")
    sqlite3.connect(desk.folder / "other.db").executescript("CREATE TABLE t (x)").connection.close()
    before = desk.shown(), sorted(path.name for path in desk.folder.glob("*.*"))
    refused(desk.runs(*words), code, part)
    assert (desk.shown(), sorted(path.name for path in desk.folder.glob("*.*"))) == before


def test_the_wrong_key_is_74(desk: Desk) -> None:
    desk.kill_in("look_up", SEALED=KEY)
    refused(desk.runs("resume", *APP, "r1", at=60), 74)
    assert desk.runs("resume", *APP, "r1", at=60, SEALED=KEY).code == 0


@pytest.mark.parametrize("words", [("--help",), ("list", "-h"), ("resume", "--help")], ids=str)
def test_help_names_every_command(words: tuple[str, ...], desk: Desk) -> None:
    ran = desk.runs(*words)
    assert (ran.code, ran.err) == (0, "")
    for name in ("list", "show", "resume", "cancel", "resolve", "exit: "):
        assert f"\n  {name} " in ran.out or f"\n{name}" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100


def test_an_app_may_be_a_runner_or_a_function(desk: Desk) -> None:
    (desk.folder / "ready.py").write_text("import shop\nrunner = shop.runner()\n", "utf-8")
    desk.shop("create", "r1")
    assert desk.runs("resume", "--app", "ready:runner", "r1").code == 0


def test_an_application_that_raises_is_told(desk: Desk) -> None:
    desk.shop("create", "r1")
    text = "import shop\nrunner = shop.runner()\nrunner.store.acquire_lease = None\n"
    (desk.folder / "odd.py").write_text(text, "utf-8")
    refused(desk.runs("resume", "--app", "odd:runner", "r1"), 65, "--app odd:runner raised Type")

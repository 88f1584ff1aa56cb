"""Journals of the real agents, killed for real; and copies of them that a test may alter."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from labkit.journal.command import copy
from tests.conftest import NOTES, PLAN, run_python
from tests.journal.every_kind import make_every_kind

Tamper = Callable[..., Path]


def make_killed(folder: Path, *crashes: str) -> Path:
    """Task `demo`: a run for each crash point, killed there; "" is a run without a crash.

    Ids and times are set as the lab sets them, so that every test sees the same rows.
    """
    (folder / "input").mkdir()
    (folder / "input" / "notes.txt").write_text(NOTES, encoding="utf-8")
    (folder / "plan.json").write_text(PLAN, encoding="utf-8")
    ids = ",".join(f"{n:08x}" for n in range(1, 10))
    commands = [("create", "demo", "plan.json"), *(("run", "demo") for _ in crashes)]
    for minute, (command, crash) in enumerate(zip(commands, ("", *crashes), strict=True)):
        env = {"LABKIT_RUN_IDS": ids, "LABKIT_CLOCK": str(1767225600 + 60 * minute)}
        env |= {"AGENT_CRASH_AT": crash} if crash else {}
        done = run_python("-m", "labkit.restart", *command, env=env, cwd=folder)
        assert done.code == (-9 if crash else 0), done.err
    return folder / "state.db"


@pytest.fixture(scope="session")
def killed_twice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run 1 dies before the effect of step 1, run 2 after that of step 2, run 3 ends the task."""
    crashes = ("before_effect:1", "after_effect:2", "")
    return make_killed(tmp_path_factory.mktemp("killed"), *crashes)


@pytest.fixture(scope="session")
def left_open(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed before the effect of step 1, and not run again."""
    return make_killed(tmp_path_factory.mktemp("open"), "before_effect:1")


SHOP = Path(__file__).parents[1] / "durable" / "shop.py"


def make_run(folder: Path, *commands: tuple[str, str, str], **env: str) -> Path:
    """Durable run `r1`: for each command and owner the tool in which that process is killed, "" for
    none. A minute lies between two of them, so that no lease is left.
    """
    shutil.copy(SHOP, folder)
    for minute, (command, owner, dies_in) in enumerate((("create", "", ""), *commands)):
        clock = {"LABKIT_CLOCK": f"{1767225600 + 60 * minute}+0.001", "DIE_IN": dies_in, **env}
        done = run_python("shop.py", command, "r1", owner, env=clock, cwd=folder)
        assert done.code == (-signal.SIGKILL if dies_in else 0), done.err
    return folder / "state.db"


@pytest.fixture(scope="session")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed in a tool that may be repeated, then in one that may not; it waits, then goes on."""
    kills = (("go", "ann", "look_up"), ("go", "bob", "send"))
    rest = (("go", "ann", ""), ("confirm", "bob", ""))
    return make_run(tmp_path_factory.mktemp("answered"), *kills, *rest)


@pytest.fixture(scope="session")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of `every_kind`, all in one file."""
    path = tmp_path_factory.mktemp("kinds") / "runs.db"
    asyncio.run(make_every_kind(path))
    return path


@pytest.fixture
def tamper(killed_twice: Path, tmp_path: Path) -> Tamper:
    """`tamper("DELETE FROM steps", ...)`: a copy of `killed_twice`, altered as by hand."""

    def alter(*statements: str, source: Path = killed_twice) -> Path:
        path = tmp_path / "altered.db"
        copy(str(source), str(path))
        database = sqlite3.connect(path)
        for trigger in database.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'"):
            database.execute(f"DROP TRIGGER {trigger[0]}")
        for name in ("ignore_check_constraints = ON", "foreign_keys = OFF"):
            database.execute(f"PRAGMA {name}")
        for statement in statements:
            database.executescript(statement)
        database.commit()
        database.close()
        return path

    return alter

"""`labkit journal copy|story|timeline`: exit codes, one line for each error, and whole copies."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import NoReturn

import pytest

from labkit import cli, files
from labkit.errors import BadInput, NotFound, StorageFault
from labkit.journal import Journal
from labkit.journal.command import copy
from tests.conftest import RunAgent, run_python


def main(argv: list[str]) -> int:
    """As a terminal has it: what the command raises becomes a line and an exit code."""
    return cli.main(["journal", *argv])


def mode_of(path: Path) -> bytes:
    """Bytes 18 and 19 of the file: 1 for a rollback journal, 2 for WAL."""
    return path.read_bytes()[18:20]


def test_a_copy_has_the_rows_of_the_wal(left_open: Path, tmp_path: Path) -> None:
    """The control: the .db alone, as one would mail it, has lost all that the killed run wrote."""
    assert left_open.with_name("state.db-wal").stat().st_size > 0
    (tmp_path / "alone.db").write_bytes(left_open.read_bytes())
    assert len(Journal(tmp_path / "alone.db").events()) == 1

    copy(str(left_open), str(tmp_path / "copy.db"))
    assert len(Journal(tmp_path / "copy.db").events()) == 5


def test_a_copy_is_one_file_of_the_same_kind(killed_twice: Path, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    target = tmp_path / "to" / "copy.db"
    assert main(["copy", str(killed_twice), str(target)]) == 0
    assert mode_of(killed_twice) == b"\x02\x02"
    assert mode_of(target) == b"\x01\x01"
    assert [path.name for path in target.parent.iterdir()] == ["copy.db"]
    marks = []
    for path in (killed_twice, target):
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            names = ("application_id", "user_version")
            marks.append([database.execute(f"PRAGMA {name}").fetchone() for name in names])
        database.close()
    assert marks[0] == marks[1] != [(0,), (0,)]


def test_the_agent_goes_on_with_a_copy(left_open: Path, folder: Path, run_agent: RunAgent) -> None:
    copy(str(left_open), str(folder / "copy.db"))
    assert run_agent("--db", "copy.db", "run", "demo").code == 0
    assert Journal(folder / "copy.db").laws(["demo-2"]).broken == ()


def test_a_copy_is_made_while_the_source_is_written(killed_twice: Path, tmp_path: Path) -> None:
    """The writer holds its lock: readers of a WAL do not wait for it."""
    copy(str(killed_twice), str(tmp_path / "busy.db"))
    writer = sqlite3.connect(tmp_path / "busy.db", isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE tasks SET status = 'failed'")
    copy(str(tmp_path / "busy.db"), str(tmp_path / "copy.db"))
    writer.execute("COMMIT")
    writer.close()
    assert list(Journal(tmp_path / "copy.db").sql("SELECT status FROM tasks")["status"]) == ["done"]


def test_refusals_make_nothing(killed_twice: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken.db"
    taken.write_text("mine")
    with pytest.raises(BadInput, match=r"taken\.db exists"):
        copy(str(killed_twice), str(taken))
    with pytest.raises(NotFound, match="does not exist, and was not created"):
        copy(str(tmp_path / "nope.db"), str(tmp_path / "copy.db"))
    with pytest.raises(NotFound, match="make it first"):
        copy(str(killed_twice), str(tmp_path / "no" / "copy.db"))
    for nameless in ("", f"{tmp_path}/", f"{tmp_path}/no/"):
        with pytest.raises(BadInput, match="names no file"):
            copy(str(killed_twice), nameless)
    (tmp_path / "loose").symlink_to("nowhere")
    with pytest.raises(BadInput, match="loose exists"):
        copy(str(killed_twice), str(tmp_path / "loose"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loose", "taken.db"]
    assert taken.read_text() == "mine"


def refuse(*_: object) -> NoReturn:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_a_copy_is_made_where_there_are_no_hard_links(
    killed_twice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory card: `link` is refused there, and a name that is taken stays."""
    monkeypatch.setattr(files.os, "link", refuse)
    copy(str(killed_twice), str(tmp_path / "copy.db"))
    assert len(Journal(tmp_path / "copy.db").events()) == len(Journal(killed_twice).events())
    with pytest.raises(BadInput, match=r"copy\.db exists"):
        copy(str(killed_twice), str(tmp_path / "copy.db"))
    assert os.listdir(tmp_path) == ["copy.db"]


def test_a_disk_that_fails_is_told(
    killed_twice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.os, "fsync", refuse)
    with pytest.raises(StorageFault, match=r"cannot make .*copy\.db: Operation not permitted"):
        copy(str(killed_twice), str(tmp_path / "copy.db"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("argv", "code", "line"),
    [
        (["copy", "nope.db", "x.db"], 66, "nope.db does not exist, and was not created"),
        (["copy", "state.db", "state.db"], 65, "state.db exists"),
        (["copy", "state.db"], 64, "the following arguments are required: DST"),
        (["copy", "notes", "x.db"], 74, "file is not a database"),
        (["story", "state.db", "nope"], 1, "no task 'nope' in this journal"),
        (["timeline", "state.db", "nope"], 1, "no task 'nope' in this journal"),
        (["timeline", "state.db", "demo", "--width", "0"], 64, "--width must be 1 or more"),
        (["timeline", "state.db", "demo", "--width", "x"], 64, "invalid int value: 'x'"),
        (["erase", "state.db"], 64, "invalid choice: 'erase'"),
        ([], 64, "the following arguments are required: COMMAND"),
    ],
)  # fmt: skip
def test_errors_are_one_line_and_a_code(
    argv: list[str], code: int, line: str, killed_twice: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    copy(str(killed_twice), str(tmp_path / "state.db"))
    (tmp_path / "notes").write_text("no database, just text, and enough of it" * 10)
    monkeypatch.chdir(tmp_path)
    assert main(argv) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("labkit journal: ")
    assert line in err
    assert err.count("\n") == 1
    assert sorted(os.listdir()) == ["notes", "state.db"]


def test_story_and_timeline_are_printed(
    killed_twice: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["story", str(killed_twice), "demo"]) == 0
    assert main(["timeline", str(killed_twice), "demo"]) == 0
    out = capsys.readouterr().out
    assert "Run 00000001 left no further entry" in out
    assert "run 00000003" in out


def test_a_copy_needs_neither_pandas_nor_matplotlib(killed_twice: Path, tmp_path: Path) -> None:
    code = """if True:
        import sys
        from labkit.journal import copy, judge_file, timeline_text
        copy(sys.argv[1], "copy.db"); judge_file("copy.db"); timeline_text("copy.db", "demo")
        print({"pandas", "numpy", "matplotlib"} & set(sys.modules))"""
    done = run_python("-c", code, str(killed_twice), cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, "set()\n", "")


def test_a_closed_pipe_ends_quietly(killed_twice: Path, tmp_path: Path) -> None:
    code = """if True:
        import os, sys
        from labkit.cli import main
        read, write = os.pipe()
        os.close(read)
        os.dup2(write, 1)
        sys.exit(main(["journal", "story", sys.argv[1], "demo"]))"""
    done = run_python("-c", code, str(killed_twice), cwd=tmp_path)
    assert (done.code, done.err) == (0, "")


def test_output_is_utf8_in_any_locale(folder: Path, run_agent: RunAgent) -> None:
    (folder / "input" / "notes.txt").unlink()
    (folder / "plan.json").write_text(
        '{"goal": "g", "steps": [{"tool": "fetch", "input": {"path": "input/заметки.txt"}}]}',
        encoding="utf-8",
    )
    assert run_agent("create", "t", "plan.json").code == 0
    assert run_agent("run", "t").code == 2
    code = "import sys; from labkit.cli import main; sys.exit(main(['journal', *sys.argv[1:]]))"
    env = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = run_python("-c", code, "story", "state.db", "t", env=env, cwd=folder)
    assert done.code == 0
    assert "заметки" in done.out

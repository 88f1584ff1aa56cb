"""`labkit reset`: a fresh copy; the old one is moved aside, never deleted, whatever goes wrong."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from labkit import cli
from labkit.lab import content, keeping, places, workbook
from tests.lab.copies import FIRST, change, looks_like_one, make_checkout, notebook, read, run_it


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_checkout(tmp_path, monkeypatch)


@pytest.fixture
def copied(checkout: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The copy of notebook 00, with a learner's change in it."""
    workbook.open_command(["00"])
    path = checkout / "workbook" / FIRST
    change(path)
    capsys.readouterr()
    return path


def aside(copy: Path) -> list[bytes]:
    folder = copy.parent / "old"
    return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.exists() else []


def is_fresh(copy: Path) -> bool:
    return read(copy) == workbook.cleared(notebook("lab.begin()"))


def test_reset_moves_the_copy_aside_and_says_where(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = copied.read_bytes()
    assert cli.main(["reset", "00"]) == 0
    name = f"00-start-here.{date.today()}.1.ipynb"
    assert capsys.readouterr().out.splitlines() == [
        f"workbook/{FIRST}: fresh copy",
        f"  the old one is workbook/old/{name}",
        f"Your answers and what held are kept; {places.command()} progress shows them.",
        "Open in JupyterLab? File > Reload Notebook from Disk; if it asks, choose Revert.",
    ]
    assert aside(copied) == [mine]
    assert is_fresh(copied)
    assert NotebookNotary().check_signature(nbformat.read(copied, 4))


def test_each_reset_of_a_day_has_its_own_number(copied: Path) -> None:
    mine = [copied.read_bytes()]
    cli.main(["reset", "0"])
    mine.append(change(copied, "a second idea"))
    cli.main(["reset", "00", "00"])
    assert aside(copied) == mine
    assert is_fresh(copied)


def test_a_copy_that_was_only_run_is_made_fresh_too(copied: Path) -> None:
    cli.main(["reset", "00"])
    run_it(copied)
    cli.main(["reset", "00"])
    assert len(aside(copied)) == 2
    assert is_fresh(copied)


def test_a_fresh_copy_and_a_missing_one_move_nothing(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied.unlink()
    cli.main(["reset", "00"])
    assert f"workbook/{FIRST}: fresh copy; there was none" in capsys.readouterr().out
    cli.main(["reset", "00"])
    said = capsys.readouterr().out
    assert "it is as fresh as a new one; nothing was moved" in said
    assert workbook.IN_JUPYTERLAB not in said
    assert aside(copied) == []
    assert is_fresh(copied)


def test_reset_in_a_checkout_without_a_workbook_makes_one(checkout: Path) -> None:
    assert cli.main(["reset", "05", "00"]) == 0
    assert is_fresh(checkout / "workbook" / FIRST)


@pytest.mark.parametrize("text", ["", "{", "\x00", looks_like_one(cells=[1])], ids=repr)
def test_what_is_no_notebook_is_moved_aside_too(copied: Path, text: str) -> None:
    copied.write_text(text)
    assert cli.main(["reset", "00"]) == 0
    assert aside(copied) == [text.encode()]
    assert is_fresh(copied)


def test_a_folder_in_the_place_of_a_copy_is_moved_aside(copied: Path) -> None:
    copied.unlink()
    copied.mkdir()
    (copied / "inside").write_text("mine")
    assert cli.main(["reset", "00"]) == 0
    [moved] = (copied.parent / "old").iterdir()
    assert (moved / "inside").read_text() == "mine"
    assert is_fresh(copied)


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_moved_and_leads_where_it_led(copied: Path, relative: bool, there: bool) -> None:
    elsewhere = copied.parent.parent / "elsewhere.ipynb"
    copied.rename(elsewhere)
    mine = elsewhere.read_bytes()
    copied.symlink_to(Path("../elsewhere.ipynb") if relative else elsewhere)
    if not there:
        elsewhere.unlink()
    assert cli.main(["reset", "00"]) == 0
    [moved] = (copied.parent / "old").iterdir()
    assert moved.is_symlink()
    assert not copied.is_symlink()
    assert is_fresh(copied)
    assert moved.exists() is there
    if there:
        assert moved.read_bytes() == elsewhere.read_bytes() == mine


def test_reset_keeps_the_progress(copied: Path, home: Path) -> None:
    home.mkdir()
    (home / "progress.json").write_text('{"predictions": {"00.q1": "b"}}')
    cli.main(["reset", "00"])
    assert (home / "progress.json").read_text() == '{"predictions": {"00.q1": "b"}}'


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        ([], 64, "give the number of a notebook"),
        (["00", "77"], 66, "there is no notebook '77'"),
        (["--all", "00"], 64, "give numbers or --all, not both"),
        (["--all"], 64, "--all asks first, and no terminal can answer"),
        (["--force"], 66, "there is no notebook '--force'"),
    ],
)
def test_a_wrong_reset_changes_nothing(
    argv: list[str], code: int, words: str, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = copied.read_bytes()
    assert cli.main(["reset", *argv]) == code
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert not said.out
    assert (copied.read_bytes(), aside(copied)) == (mine, [])


def test_the_help_of_reset_changes_nothing(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = copied.read_bytes()
    assert cli.main(["reset", "--help"]) == 0
    assert "workbook/old/" in capsys.readouterr().out
    assert copied.read_bytes() == mine


# The command in a process of its own: with a terminal, killed, on a full disk, twice at once.

COMMAND = """if True:
    import sys
    from pathlib import Path
    from labkit import cli
    from labkit.lab import workbook
    workbook.originals = lambda: Path(sys.argv[1])
    workbook._trust = lambda done: None  # slow, and in another test
    {}
    sys.exit(cli.main(sys.argv[2:]))"""


def command(copy: Path, *argv: str, first: str = "pass") -> list[str]:
    folder = str(copy.parent.parent / "notebooks")
    return [sys.executable, "-c", COMMAND.format(first), folder, *argv]


def in_a_terminal(argv: list[str], typed: bytes, **more: str) -> tuple[int, str]:
    environ = {name: value for name, value in os.environ.items() if name != "JPY_PARENT_PID"}
    master, terminal = pty.openpty()
    try:
        os.write(master, typed)
        ran = subprocess.run(
            argv,
            stdin=terminal,
            env={**environ, **more},
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.returncode, ran.stdout
    finally:
        os.close(master)
        os.close(terminal)


@pytest.mark.parametrize("typed", [b"yes\n", b" YES \n"])
def test_reset_all_asks_and_a_yes_resets_all(copied: Path, typed: bytes) -> None:
    code, said = in_a_terminal(command(copied, "reset", "--all"), typed)
    assert code == 0
    assert "Move 1 copy aside and make fresh ones? Type yes: " in said
    assert all((copied.parent / entry.file).is_file() for entry in content.notebooks())
    assert len(aside(copied)) == 1  # the one that was changed
    assert is_fresh(copied)


@pytest.mark.parametrize("typed", [b"y\n", b"no\n", b"\n", b"yes please\n", b"\x04"])
def test_anything_but_yes_changes_nothing(copied: Path, typed: bytes) -> None:
    mine = copied.read_bytes()
    code, said = in_a_terminal(command(copied, "reset", "--all"), typed)
    assert code == 0
    assert said.splitlines()[-1].endswith("Nothing was changed.")
    assert (copied.read_bytes(), aside(copied)) == (mine, [])


def test_a_cell_of_a_notebook_is_not_asked(copied: Path) -> None:
    """IPython gives `!labkit reset --all` a terminal that nobody can type into."""
    mine = copied.read_bytes()
    code, said = in_a_terminal(command(copied, "reset", "--all"), b"yes\n", JPY_PARENT_PID="1")
    assert (code, said) == (64, "")
    assert (copied.read_bytes(), aside(copied)) == (mine, [])


@pytest.mark.parametrize("where", ["the input is a pipe", "the input is closed"])
def test_without_a_terminal_a_yes_is_no_answer(copied: Path, where: str) -> None:
    mine = copied.read_bytes()
    argv = command(copied, "reset", "--all")
    if where == "the input is closed":
        argv = ["sh", "-c", 'exec "$@" <&-', "sh", *argv]
    ran = subprocess.run(argv, input="yes\n", capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (64, 1)
    assert (copied.read_bytes(), aside(copied)) == (mine, [])


def test_on_a_full_disk_the_copy_stays(copied: Path) -> None:
    """A limit on the size of a file: the write fails half-way, as on a full disk."""
    mine = copied.read_bytes()
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))"
    argv = command(copied, "reset", "00", first=limit)
    ran = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n"), ran.stdout) == (74, 1, "")
    assert "what is there stays as it is: File too large" in ran.stderr
    assert (copied.read_bytes(), aside(copied)) == (mine, [])
    assert not list(copied.parent.glob(".*.tmp"))


def test_killed_after_the_move_nothing_is_lost(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = copied.read_bytes()
    kill = "import os; Path.replace = lambda *_: os.kill(os.getpid(), 9)"
    ran = subprocess.run(command(copied, "reset", "00", first=kill), check=False)
    assert ran.returncode == -signal.SIGKILL
    assert aside(copied) == [mine]
    assert cli.main(["open", "00"]) == 0
    assert f"workbook/{FIRST}: new copy" in capsys.readouterr().out
    assert is_fresh(copied)
    assert not list(copied.parent.glob(".*.tmp"))


def test_a_name_that_cannot_be_given_leaves_the_copy_where_it_was(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    mine = copied.read_bytes()
    monkeypatch.setattr(Path, "replace", refuse)
    assert cli.main(["reset", "00"]) == 74
    assert aside(copied) == []
    assert copied.read_bytes() == mine


def test_of_many_at_once_one_moves_the_copy(copied: Path) -> None:
    mine = copied.read_bytes()
    ran = [subprocess.Popen(command(copied, "reset", "00")) for _ in range(4)]
    assert [process.wait() for process in ran] == [0] * 4
    assert aside(copied) == [mine]
    assert is_fresh(copied)


@pytest.mark.parametrize("act", [["reset", "00"], ["open"]], ids=str)
def test_a_second_process_waits_for_the_first(
    act: list[str],
    copied: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine = copied.read_bytes()
    monkeypatch.setattr(keeping, "PATIENCE_S", 0.05)
    with open(copied.parent / ".labkit.lock", "a") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        assert cli.main(act) == 75
    assert "another process holds" in capsys.readouterr().err
    assert copied.read_bytes() == mine
    assert cli.main(act) == 0


def put_a_file(copy: Path) -> None:
    (copy.parent / "old").write_text("in the way")


def put_a_folder(copy: Path) -> None:
    (copy.parent / ".labkit.lock").unlink()
    (copy.parent / ".labkit.lock").mkdir()


@pytest.mark.parametrize("obstacle", [put_a_file, put_a_folder])
def test_what_stands_in_the_way_is_one_line_and_moves_nothing(
    obstacle: Callable[[Path], None], copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = copied.read_bytes()
    obstacle(copied)
    assert cli.main(["reset", "00"]) == 74
    assert capsys.readouterr().err.count("\n") == 1
    assert copied.read_bytes() == mine
    assert not list(copied.parent.glob(".*.tmp"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only_is_one_line(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = copied.read_bytes()
    copied.parent.chmod(0o555)
    try:
        assert cli.main(["reset", "00"]) == 74
    finally:
        copied.parent.chmod(0o755)
    assert "Permission denied" in capsys.readouterr().err
    assert copied.read_bytes() == mine


def test_a_workbook_that_is_a_file_is_named(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "workbook").write_text("a file in the way")
    assert cli.main(["reset", "00"]) == 74
    assert "workbook is no folder; move it away, try again" in capsys.readouterr().err
    assert (checkout / "workbook").read_text() == "a file in the way"

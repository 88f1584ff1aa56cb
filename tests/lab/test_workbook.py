"""The learner's copies: cleared, renewed only while untouched, moved aside and never deleted."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from labkit import cli
from labkit.errors import BadInput, NotFound
from labkit.lab import content, keeping, updates, workbook

FIRST = "00-start-here.ipynb"


def notebook(*sources: str) -> dict[str, Any]:
    outputs = [{"output_type": "stream", "name": "stdout", "text": ["told\n"]}]
    cells = [
        {"cell_type": "markdown", "id": "m", "metadata": {}, "source": ["# A claim"]},
        *(
            {
                "cell_type": "code",
                "id": f"c{number}",
                "metadata": {},
                "source": [source],
                "outputs": outputs,
                "execution_count": number,
            }
            for number, source in enumerate(sources, start=1)
        ),
    ]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the real list of notebooks and small contents."""
    folder = tmp_path / "a checkout" / "notebooks"
    folder.mkdir(parents=True)
    for entry in content.notebooks():
        (folder / entry.file).write_text(json.dumps(notebook("lab.begin()")), encoding="utf-8")
    (folder / "GLOSSARY.md").write_text("# Glossary\n", encoding="utf-8")
    monkeypatch.setattr(workbook, "originals", lambda: folder)
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))  # signatures go there
    return folder.parent


def read(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def change(path: Path, text: str = "my own idea") -> bytes:
    """A learner writes into the code cell; what JupyterLab saves then."""
    mine = read(path)
    mine["cells"][1]["source"] = [text]
    path.write_text(json.dumps(mine), encoding="utf-8")
    return path.read_bytes()


def hand_out(copy: Path) -> str:
    return workbook.hand_out(content.notebook("00"), copy.parent).said


def run_it(path: Path) -> None:
    """What JupyterLab saves after the learner ran every cell and changed nothing."""
    copy = read(path)
    for cell in copy["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = notebook("x")["cells"][1]["outputs"]
            cell["execution_count"] = 7
    path.write_text(json.dumps(copy), encoding="utf-8")


def test_open_copies_every_notebook_without_outputs(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert workbook.open_command([]) == 0
    for entry in content.notebooks():
        code = [c for c in read(checkout / "workbook" / entry.file)["cells"] if "outputs" in c]
        assert code
        assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)
    said = capsys.readouterr().out
    assert f"workbook/{FIRST}: new copy" in said
    assert said.splitlines()[-1] == f"Open workbook/{FIRST} in JupyterLab; make lab starts it."
    assert (checkout / "workbook/GLOSSARY.md").is_file()


@pytest.mark.parametrize("number", ["05", "5"])
def test_one_notebook_is_opened_by_its_number(
    number: str, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert workbook.open_command([number]) == 0
    assert [p.name for p in (checkout / "workbook").glob("*.ipynb")] == [
        "05-nine-places-to-die.ipynb"
    ]
    assert "Open workbook/05-nine-places-to-die.ipynb" in capsys.readouterr().out


def test_a_copy_that_was_only_run_is_up_to_date(checkout: Path) -> None:
    workbook.open_command([])
    copy = checkout / "workbook" / FIRST
    run_it(copy)
    before = copy.read_bytes()
    assert "up to date" in hand_out(copy)
    assert copy.read_bytes() == before


def test_an_untouched_copy_follows_a_newer_original(checkout: Path) -> None:
    workbook.open_command([])
    copy = checkout / "workbook" / FIRST
    run_it(copy)
    newer = notebook("lab.begin()", "lab.end()")
    (checkout / "notebooks" / FIRST).write_text(json.dumps(newer), encoding="utf-8")
    assert "renewed" in hand_out(copy)
    assert len(read(copy)["cells"]) == 3


@pytest.mark.parametrize("newer", [False, True])
def test_a_changed_copy_is_never_overwritten(checkout: Path, newer: bool) -> None:
    workbook.open_command([])
    copy = checkout / "workbook" / FIRST
    before = change(copy)
    if newer:
        (checkout / "notebooks" / FIRST).write_text(json.dumps(notebook("x")), encoding="utf-8")
    said = hand_out(copy)
    assert "has your changes" in said
    assert ("the original is newer" in said) is newer
    assert said.endswith("\n  labkit reset 00 moves it aside and makes a fresh copy")
    assert copy.read_bytes() == before


def looks_like_one(**fields: object) -> str:
    return json.dumps({**notebook("x"), **fields})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"nbformat": 4}',
        looks_like_one(cells=[1]),
        looks_like_one(cells=[{}]),
        looks_like_one(cells=None),
        looks_like_one(cells=[{"cell_type": "code", "source": 5}]),
        looks_like_one(metadata=[]),
    ],
    ids=lambda text: text[:40],
)
def test_a_file_that_is_no_notebook_is_kept(checkout: Path, text: str) -> None:
    copy = checkout / "workbook" / FIRST
    copy.parent.mkdir()
    copy.write_text(text, encoding="utf-8")
    assert workbook.open_command([]) == 0  # and the other notebooks are handed out
    assert len(list(copy.parent.glob("*.ipynb"))) == len(content.notebooks())
    assert "not a readable notebook" in hand_out(copy)
    assert copy.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["77"], 66, "there is no notebook '77'; choose one of 00, 01"),
        (["00", "01"], 64, "give one number or none"),
    ],
)
def test_a_wrong_number_is_one_line(
    argv: list[str], code: int, words: str, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["open", *argv]) == code
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert not said.out


def test_help_lists_the_notebooks(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert workbook.open_command(["--help"]) == 0
    assert "05  nine places to die (25 min)" in capsys.readouterr().out
    assert not (checkout / "workbook").exists()


def test_a_workbook_that_cannot_be_written_is_one_line(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "workbook").write_text("a file in the way")
    assert cli.main(["open"]) == 74
    assert capsys.readouterr().err.count("\n") == 1


def test_what_a_killed_command_left_is_removed(checkout: Path) -> None:
    """A glossary is whole or not there: the next command copies it again."""
    left = checkout / "workbook" / ".GLOSSARY.md.0123abcd.tmp"
    left.parent.mkdir()
    left.write_text("# Gloss")
    workbook.open_command(["00"])
    assert sorted(os.listdir(left.parent)) == [".labkit.lock", FIRST, "GLOSSARY.md"]


def test_jupyterlab_trusts_a_copy_and_not_a_notebook_from_elsewhere(checkout: Path) -> None:
    """Of one that it does not trust it warns in the terminal."""
    workbook.open_command(["00"])
    ours = checkout / "workbook" / FIRST
    theirs = notebook("print('from elsewhere')")
    assert NotebookNotary().check_signature(nbformat.read(ours, 4))
    assert not NotebookNotary().check_signature(nbformat.reads(json.dumps(theirs), 4))


def test_nothing_for_instructors_is_handed_out(checkout: Path) -> None:
    (checkout / "notebooks/INSTRUCTOR.md").write_text("# The answers\n")
    workbook.open_command([])
    names = {entry.file for entry in content.notebooks()} | {"GLOSSARY.md", ".labkit.lock"}
    assert set(os.listdir(checkout / "workbook")) == names


@pytest.mark.parametrize("damage", ["missing", "<<<<<<< HEAD\n{}", "{}", "[1]"])
def test_an_original_that_is_lost_or_damaged_is_told(
    damage: str, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original = checkout / "notebooks" / FIRST
    original.write_text(damage) if damage != "missing" else original.unlink()
    assert workbook.open_command([]) == 0
    said = capsys.readouterr().out
    assert f"git checkout notebooks/{FIRST} brings it back" in said
    assert said.count(": new copy") == len(content.notebooks()) - 1
    copy = checkout / "workbook" / FIRST
    copy.write_text("mine")
    for act in (workbook.hand_out, workbook.reset):
        with pytest.raises((NotFound, BadInput), match=f"git checkout notebooks/{FIRST}"):
            act(content.notebook("00"), copy.parent)
    assert copy.read_text() == "mine"


# What an original has become.


def original(*cells: tuple[str, str]) -> dict[str, Any]:
    """(id, source) for each cell; a source with # is a heading."""
    made = [
        {"id": name, "cell_type": "markdown" if "#" in text else "code", "source": [text]}
        for name, text in cells
    ]
    code = {"outputs": [], "execution_count": None}
    made = [
        {**cell, "metadata": {}, **(code if cell["cell_type"] == "code" else {})} for cell in made
    ]
    return {**notebook(), "cells": made}


OLDER = original(("h1", "# Kill"), ("a", "one"), ("b", "two"), ("h2", "## Look"), ("c", "three"))
NEWER = original(
    ("h1", "# Kill"), ("a", "one!"), ("h2", "## Look"), ("d", "4"), ("e", "5"), ("c", "three")
)
NEWS = [
    'under "Kill": cell 2 changed, cell 3 of your copy removed',
    'under "Look": cells 4-5 added',
]


def news(mine: dict[str, Any], newer: dict[str, Any]) -> list[str]:
    return updates.news(mine, workbook.cleared(newer))


def test_the_news_of_an_original_are_its_cells_by_heading_and_number() -> None:
    copy = workbook.cleared(OLDER)
    assert news(copy, NEWER) == NEWS
    copy["cells"][4]["source"] = ["my own answer"]  # is no news, and neither is it an obstacle
    assert news(copy, NEWER) == NEWS


def test_what_a_learner_has_already_or_deleted_too_is_no_news() -> None:
    copy = workbook.cleared(OLDER)
    copy["cells"][1]["source"] = ["one!"]
    del copy["cells"][2]
    assert news(copy, NEWER) == NEWS[1:]


def test_a_copy_of_an_earlier_labkit_is_compared_as_it_is() -> None:
    copy = workbook.cleared(OLDER)
    for broken in (None, 7, [5], {}, {"a b": 1}):
        copy["metadata"][updates.CELLS] = broken
        first, *rest = news(copy, NEWER)
        assert first.startswith("(an older labkit made this copy")
        assert rest == NEWS


def test_cells_that_only_moved_are_told() -> None:
    turned = {**OLDER, "cells": OLDER["cells"][::-1]}
    assert news(workbook.cleared(OLDER), turned) == ["cells were moved, no text is new"]


def test_long_news_are_cut_and_headings_are_only_text() -> None:
    many = original(*((f"{n}", f"# \x1b[31m\u202eheading {n}") for n in range(12)))
    said = news(workbook.cleared(OLDER), many)
    assert len(said) == updates.LINES_MAX + 1
    assert said[-1] == f"and under {12 + 2 - updates.LINES_MAX} more headings"
    assert all(line.isprintable() for line in said)


def test_an_update_says_what_changed(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = checkout / "notebooks" / FIRST
    first.write_text(json.dumps(OLDER))
    workbook.open_command(["00"])
    before = change(checkout / "workbook" / FIRST)
    first.write_text(json.dumps(NEWER))
    capsys.readouterr()
    workbook.open_command(["00"])
    assert capsys.readouterr().out.splitlines() == [
        f"workbook/{FIRST}: kept; it has your changes and the original is newer",
        *(f"  {line}" for line in NEWS),
        "  labkit reset 00 moves it aside and makes a fresh copy",
        f"Open workbook/{FIRST} in JupyterLab; make lab starts it.",
    ]
    assert (checkout / "workbook" / FIRST).read_bytes() == before


def test_a_renewed_copy_says_what_is_new_and_what_jupyterlab_needs(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = checkout / "notebooks" / FIRST
    first.write_text(json.dumps(OLDER))
    workbook.open_command(["00"])
    first.write_text(json.dumps(NEWER))
    capsys.readouterr()
    workbook.open_command(["00"])
    said = capsys.readouterr().out
    assert all(f"  {line}\n" in said for line in NEWS)
    assert workbook.IN_JUPYTERLAB in said


def test_a_copy_behind_a_link_is_renewed_where_it_lies(checkout: Path, tmp_path: Path) -> None:
    workbook.open_command(["00"])
    copy, elsewhere = checkout / "workbook" / FIRST, tmp_path / "my notebooks.ipynb"
    copy.rename(elsewhere)
    copy.symlink_to(elsewhere)
    (checkout / "notebooks" / FIRST).write_text(json.dumps(NEWER))
    assert "renewed" in hand_out(copy)
    assert copy.is_symlink()
    assert len(read(elsewhere)["cells"]) == 6


# The glossary, which has no metadata: a comment carries its mark.


def newer_glossary(checkout: Path) -> Path:
    (checkout / "notebooks/GLOSSARY.md").write_text("# Glossary\n\n| new |\n")
    return checkout / "workbook/GLOSSARY.md"


def test_an_untouched_glossary_follows_the_original(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workbook.open_command(["00"])
    assert "GLOSSARY" not in capsys.readouterr().out
    copy = newer_glossary(checkout)
    workbook.open_command(["00"])
    assert copy.read_text().startswith("# Glossary\n\n| new |\n<!--")
    assert "workbook/GLOSSARY.md: renewed; you had changed nothing" in capsys.readouterr().out
    workbook.open_command(["00"])
    assert "GLOSSARY" not in capsys.readouterr().out
    assert not (checkout / "workbook/old").exists()


@pytest.mark.parametrize("mine", ["mine first\n{}", "{}mine last\n"])
def test_a_changed_glossary_is_kept(
    mine: str, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workbook.open_command(["00"])
    copy = checkout / "workbook/GLOSSARY.md"
    text = mine.format(copy.read_text())
    copy.write_text(text)
    capsys.readouterr()
    workbook.open_command(["00"])
    assert "GLOSSARY" not in capsys.readouterr().out
    newer_glossary(checkout)
    workbook.open_command(["00"])
    assert "GLOSSARY.md: kept; it has your changes and the original is newer" in (
        capsys.readouterr().out
    )
    assert copy.read_text() == text


def test_a_glossary_without_a_mark_is_moved_aside(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Earlier copies had none, so nobody knows whose words are in it."""
    copy = newer_glossary(checkout)
    copy.parent.mkdir()
    copy.write_text("# Glossary, perhaps with my words\n")
    workbook.open_command(["00"])
    name = f"old/GLOSSARY.{date.today()}.1.md"
    assert f"GLOSSARY.md: renewed; the old one is workbook/{name}" in capsys.readouterr().out
    assert (copy.parent / name).read_text() == "# Glossary, perhaps with my words\n"
    assert "| new |" in copy.read_text()


def test_a_glossary_that_is_no_text_is_kept(checkout: Path) -> None:
    (checkout / "workbook/GLOSSARY.md").mkdir(parents=True)
    assert workbook.open_command(["00"]) == 0


# labkit reset


@pytest.fixture
def copied(checkout: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The copy of notebook 00, with a learner's change in it."""
    workbook.open_command([])
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
        "Your answers and what held are kept; labkit progress shows them.",
        "Open in JupyterLab? File > Reload Notebook from Disk; if it asks, choose Revert.",
    ]
    assert (copied.parent / "old" / name).read_bytes() == mine
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
    assert "it is as fresh as a new one; nothing was moved" in capsys.readouterr().out
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


def in_a_terminal(argv: list[str], typed: bytes) -> tuple[int, str]:
    master, terminal = pty.openpty()
    try:
        os.write(master, typed)
        ran = subprocess.run(argv, stdin=terminal, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout
    finally:
        os.close(master)
        os.close(terminal)


@pytest.mark.parametrize("typed", [b"yes\n", b" YES \n"])
def test_reset_all_asks_and_a_yes_resets_all(copied: Path, typed: bytes) -> None:
    code, said = in_a_terminal(command(copied, "reset", "--all"), typed)
    number = len(content.notebooks())
    assert code == 0
    assert f"Move these {number} aside and make fresh copies? Type yes: " in said
    assert len(aside(copied)) == 1  # the one that was changed
    assert is_fresh(copied)


@pytest.mark.parametrize("typed", [b"y\n", b"no\n", b"\n", b"yes please\n", b"\x04"])
def test_anything_but_yes_changes_nothing(copied: Path, typed: bytes) -> None:
    mine = copied.read_bytes()
    code, said = in_a_terminal(command(copied, "reset", "--all"), typed)
    assert code == 0
    assert said.splitlines()[-1].endswith("Nothing was changed.")
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
    assert (copied.read_bytes(), aside(copied)) == (mine, [])


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
    with open(copied.parent / ".labkit.lock") as first:
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

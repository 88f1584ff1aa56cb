"""`labkit open`: cleared copies, renewed only while untouched, never overwritten."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from labkit import cli
from labkit.errors import BadInput, NotFound
from labkit.lab import content, places, updates, workbook
from tests.lab.copies import (
    FIRST,
    change,
    hand_out,
    looks_like_one,
    make_checkout,
    notebook,
    read,
    run_it,
)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_checkout(tmp_path, monkeypatch)


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
    assert said.endswith(f"\n  {places.command()} reset 00 moves it aside and makes a fresh copy")
    assert copy.read_bytes() == before


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
        ([""], 66, "there is no notebook ''; choose one of 00, 01"),  # "$NUMBER" in a shell
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


def dead_links(markdown: str) -> list[str]:
    """Links that lead nowhere from a copy: the workbook holds the notebooks and the glossary."""
    handed_out = {"", "GLOSSARY.md", *(entry.file for entry in content.notebooks())}
    headings = {title.replace(" ", "-") for title in re.findall(r"^#+ (.+)$", markdown, re.M)}
    return [
        f"{target}#{anchor}"
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", markdown)
        if not target.startswith("https://")
        and (target not in handed_out or (not target and anchor not in headings))
    ]


@pytest.mark.parametrize("entry", content.notebooks(), ids=lambda entry: entry.number)
def test_a_link_leads_somewhere_from_the_workbook_too(entry: content.Notebook) -> None:
    cells = read(places.originals() / entry.file)["cells"]
    prose = [cell for cell in cells if cell["cell_type"] == "markdown"]
    assert dead_links("\n\n".join("".join(cell["source"]) for cell in prose)) == []


def test_a_link_to_what_only_instructors_have_is_found() -> None:
    found = dead_links("# A b\n[x](INSTRUCTOR.md) [y](GLOSSARY.md#step) [z](#A-b) [w](#A-c)")
    assert found == ["INSTRUCTOR.md#", "#A-c"]


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


@pytest.mark.parametrize("mark", [None, 7, {}, "missing"])
def test_a_notebook_from_elsewhere_is_kept_without_news(checkout: Path, mark: object) -> None:
    copy = checkout / "workbook" / FIRST
    copy.parent.mkdir()
    metadata = {} if mark == "missing" else {"labkit_handed_out": mark}
    copy.write_text(json.dumps({**OLDER, "metadata": metadata}))
    first, second = hand_out(copy).splitlines()
    assert first == "kept; it has your changes"
    assert " reset 00 moves it aside" in second


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
        f"  {places.command()} reset 00 moves it aside and makes a fresh copy",
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


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise AssertionError(f"it had not ended after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", [FIRST, "GLOSSARY.md"])
def test_a_pipe_in_the_place_of_a_copy_is_not_waited_for(checkout: Path, name: str) -> None:
    pipe = checkout / "workbook" / name
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    with at_most(seconds=10):
        assert workbook.open_command(["00"]) == 0
    assert pipe.is_fifo()


def test_a_glossary_that_is_no_text_is_kept(checkout: Path) -> None:
    (checkout / "workbook/GLOSSARY.md").mkdir(parents=True)
    assert workbook.open_command(["00"]) == 0

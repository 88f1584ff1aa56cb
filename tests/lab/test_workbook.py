"""The learner's copies: cleared, renewed only while untouched, never overwritten."""

import json
import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from labkit import cli
from labkit.lab import content, workbook

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
    assert "up to date" in workbook.hand_out(content.notebook("00"), copy.parent)
    assert copy.read_bytes() == before


def test_an_untouched_copy_follows_a_newer_original(checkout: Path) -> None:
    workbook.open_command([])
    copy = checkout / "workbook" / FIRST
    run_it(copy)
    newer = notebook("lab.begin()", "lab.end()")
    (checkout / "notebooks" / FIRST).write_text(json.dumps(newer), encoding="utf-8")
    assert "renewed" in workbook.hand_out(content.notebook("00"), copy.parent)
    assert len(read(copy)["cells"]) == 3


@pytest.mark.parametrize("newer", [False, True])
def test_a_changed_copy_is_never_overwritten(checkout: Path, newer: bool) -> None:
    workbook.open_command([])
    copy = checkout / "workbook" / FIRST
    mine = read(copy)
    mine["cells"][1]["source"] = ["my own idea"]
    copy.write_text(json.dumps(mine), encoding="utf-8")
    before = copy.read_bytes()
    if newer:
        (checkout / "notebooks" / FIRST).write_text(json.dumps(notebook("x")), encoding="utf-8")
    assert "has your changes" in workbook.hand_out(content.notebook("00"), copy.parent)
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
    assert "not a readable notebook" in workbook.hand_out(content.notebook("00"), copy.parent)
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
    assert sorted(os.listdir(left.parent)) == [FIRST, "GLOSSARY.md"]


def test_jupyterlab_trusts_a_copy_and_not_a_notebook_from_elsewhere(checkout: Path) -> None:
    """Of one that it does not trust it warns in the terminal."""
    workbook.open_command(["00"])
    ours = checkout / "workbook" / FIRST
    theirs = notebook("print('from elsewhere')")
    assert NotebookNotary().check_signature(nbformat.read(ours, 4))
    assert not NotebookNotary().check_signature(nbformat.reads(json.dumps(theirs), 4))

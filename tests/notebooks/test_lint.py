"""The originals are as they must be, and each rule of the lint is seen to fail."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from labkit.lab import content
from labkit.lab.content import Notebook
from labkit.lab.places import originals
from tests.notebooks.lint import complaints

GLOSSARY = (originals() / "GLOSSARY.md").read_text(encoding="utf-8")
ALL = content.notebooks()


def read(entry: Notebook) -> dict[str, Any]:
    text = (originals() / entry.file).read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.number)
def test_the_original_is_as_it_must_be(entry: Notebook) -> None:
    assert complaints(read(entry), entry, GLOSSARY) == []


def test_the_list_names_every_file_and_no_other() -> None:
    assert sorted(path.name for path in originals().glob("*.ipynb")) == [e.file for e in ALL]


def _first_code(notebook: dict[str, Any]) -> dict[str, Any]:
    found: list[dict[str, Any]] = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    return found[0]


def _with_image(notebook: dict[str, Any]) -> dict[str, Any]:
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            if "<img" in "".join(output.get("data", {}).get("text/html", "")):
                data: dict[str, Any] = output["data"]
                return data
    raise AssertionError("no image")


def _set(cell: dict[str, Any], **values: Any) -> None:
    cell.update(values)


BREAKS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "stripped": (
        lambda nb: (
            [_set(c, execution_count=None, outputs=[]) for c in nb["cells"] if "outputs" in c]
            and None
        ),
        "counts",
    ),
    "run twice": (lambda nb: _set(_first_code(nb), execution_count=2), "counts"),
    "kernel": (lambda nb: nb["metadata"]["kernelspec"].update(name="lab"), "kernel"),
    "widgets": (lambda nb: nb["metadata"].update(widgets={}), "widget"),
    "version": (lambda nb: nb["metadata"]["language_info"].update(version="3.13.0"), "differs"),
    "ids": (lambda nb: nb["cells"][1].update(id=nb["cells"][0]["id"]), "one id"),
    "many cells": (lambda nb: nb["cells"].extend([_first_code(nb)] * 20), "code cells"),
    "long cell": (lambda nb: _set(_first_code(nb), source="x = 1\n" * 26), "26 lines"),
    "long median": (
        lambda nb: [_set(c, source="x = 1\n" * 7) for c in nb["cells"] if "outputs" in c] and None,
        "median",
    ),
    "no figures": (
        lambda nb: [_set(c, outputs=[]) for c in nb["cells"] if "outputs" in c] and None,
        "0 figures",
    ),
    "no prose": (lambda nb: nb["cells"].extend([_first_code(nb)] * 3), "without a word"),
    "tag": (lambda nb: _first_code(nb)["metadata"].update(tags=["NBVAL"]), "unknown tags"),
    "not compared": (
        lambda nb: _first_code(nb)["metadata"].update(tags=["nbval-ignore-output"]),
        "nothing else is let off",
    ),
    "widget compared": (
        lambda nb: _first_code(nb)["metadata"].update(tags=["widget"]),
        "output of a widget is not compared",
    ),
    "stored widget": (
        lambda nb: _output(
            nb,
            output_type="execute_result",
            data={"text/plain": "x", "application/vnd.jupyter.widget-view+json": {}},
        ),
        "stores a widget",
    ),
    "timing": (lambda nb: _first_code(nb)["metadata"].update(execution={}), "other than tags"),
    "magic": (lambda nb: _set(_first_code(nb), source="%time 1"), "magic"),
    "shell": (lambda nb: _set(_first_code(nb), source="!ls"), "magic"),
    "semicolon": (lambda nb: _set(_first_code(nb), source="x;"), "semicolon"),
    "input": (lambda nb: _set(_first_code(nb), source="input()"), "input does not work"),
    "history": (lambda nb: _set(_first_code(nb), source="Out[1]"), "Out does not work"),
    "engine": (lambda nb: _set(_first_code(nb), source="def run(): ..."), "defines run"),
    "two titles": (lambda nb: _set(nb["cells"][2], source="# Another"), "one H1"),
    "heading": (lambda nb: _set(nb["cells"][2], source="#### Deep"), "skipped"),
    "minutes": (lambda nb: _replace(nb, "| 20 |", "| 5 |"), "minutes"),
    "next": (lambda nb: _replace(nb, "| 03, reading the journal |", "| 03 |"), "what comes next"),
    "wide code": (lambda nb: _set(_first_code(nb), source="x = " + "1" * 81), "85 columns"),
    "wide text": (lambda nb: _output(nb, output_type="stream", text="x" * 85), "85 columns"),
    "wide file": (
        lambda nb: _output(
            nb, output_type="execute_result", data={"text/plain": "x", "text/markdown": "x" * 85}
        ),
        "85 columns",
    ),
    "no limits": (lambda nb: _replace(nb, "still wrong", "fine"), "still wrong"),
    "number": (lambda nb: _replace(nb, 'begin("02")', 'begin("01")'), "begins"),
    "glossary": (lambda nb: _replace(nb, "#attempt", "#attmept"), "no 'attmept'"),
    "answered": (lambda nb: _replace(nb, '"02.q1", "?"', '"02.q1", "b"'), "given away"),
    "unrevealed": (lambda nb: _replace(nb, "lab.reveal(", "print("), "compared"),
    "option": (lambda nb: _replace(nb, "**b** steps", "**b** the steps"), "option b"),
    "error": (lambda nb: _output(nb, output_type="error"), "an error is stored"),
    "stderr": (lambda nb: _output(nb, output_type="stream", name="stderr", text="x"), "stderr"),
    "path": (lambda nb: _output(nb, output_type="stream", text="in /tmp/x"), "absolute path"),
    "pid": (lambda nb: _output(nb, output_type="stream", text="pid 7"), "process id"),
    "duration": (lambda nb: _output(nb, output_type="stream", text="took 1.5 s"), "duration"),
    "address": (
        lambda nb: _output(
            nb, output_type="execute_result", data={"text/plain": "<at 0x7f00aa11>"}
        ),
        "memory address",
    ),
    "bare image": (
        lambda nb: _output(nb, output_type="display_data", data={"image/png": "AAAA"}),
        "bare image",
    ),
    "exercise untagged": (lambda nb: _exercise(nb)["metadata"].clear(), "exercise cells are not"),
    "exercise solved": (
        lambda nb: _set(_exercise(nb), outputs=[{"output_type": "stream", "text": "02.ex1  held"}]),
        "as shipped it must fail",
    ),
    "exercise without a hole": (
        lambda nb: _set(_exercise(nb), source='lab.check("02.ex1", count_words)'),
        "needs a '...'",
    ),
    "exercise unchecked": (
        lambda nb: _set(_exercise(nb), source="def count_words():\n    ...\n"),
        "needs a '...'",
    ),
    "exercise minutes": (lambda nb: _replace(nb, "extend, 6 minutes", "extend"), "no heading"),
    "hints": (lambda nb: _replace(nb, "Hint 1 of 3", "Hint 1"), "not those of content.toml"),
    "no alt": (lambda nb: _with_image(nb).update({"text/html": "<img src=x>"}), "as alt"),
    "alt alone": (lambda nb: _with_image(nb).update({"text/plain": "<Figure>"}), "plain text"),
}


def _exercise(notebook: dict[str, Any]) -> dict[str, Any]:
    found: list[dict[str, Any]] = [c for c in notebook["cells"] if c["id"] == "02-ex1"]
    return found[0]


def _replace(notebook: dict[str, Any], old: str, new: str) -> None:
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"]).replace(old, new)


def _output(notebook: dict[str, Any], **output: Any) -> None:
    _first_code(notebook)["outputs"] = [output]


@pytest.mark.parametrize("name", BREAKS)
def test_each_rule_is_seen_to_fail(name: str) -> None:
    entry = content.notebook("02")
    spoiled = copy.deepcopy(read(entry))
    spoil, words = BREAKS[name]
    spoil(spoiled)
    found = complaints(spoiled, entry, GLOSSARY)
    assert any(words in complaint for complaint in found), found

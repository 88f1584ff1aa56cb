"""Small notebooks in a checkout of their own, and what a learner does to a copy."""

import json
from pathlib import Path
from typing import Any

import pytest

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


def looks_like_one(**fields: object) -> str:
    return json.dumps({**notebook("x"), **fields})


def make_checkout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the real list of notebooks and small contents."""
    originals = folder / "a checkout" / "notebooks"
    originals.mkdir(parents=True)
    for entry in content.notebooks():
        (originals / entry.file).write_text(json.dumps(notebook("lab.begin()")), encoding="utf-8")
    (originals / "GLOSSARY.md").write_text("# Glossary\n", encoding="utf-8")
    monkeypatch.setattr(workbook, "originals", lambda: originals)
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(folder / "jupyter"))  # signatures go there
    return originals.parent

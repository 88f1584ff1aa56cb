"""`labkit open`: the learner's own copies of the notebooks, in `workbook/`.

The originals hold every output and are never edited. A copy has none, so nothing is told before
it is run, and an update of the lab cannot conflict with what a learner wrote.
"""

from __future__ import annotations

import copy
import hashlib
import json
import secrets
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

from labkit.errors import UsageError
from labkit.files import remove_orphans
from labkit.lab import content
from labkit.lab.content import Notebook
from labkit.lab.places import originals

__all__ = ["WORKBOOK", "cleared", "hand_out", "open_command"]

WORKBOOK = "workbook"
GLOSSARY = "GLOSSARY.md"  # the notebooks link to it, so it stands beside the copies too
NotebookJSON = dict[str, Any]  # as the file has it; nothing here needs nbformat's own types
UNREADABLE = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
HANDED_OUT = "labkit_handed_out"  # in a copy's metadata: the hash of the sources it came with


def open_command(argv: list[str]) -> int:
    """`labkit open [NN]`: copies one notebook or all and says where."""
    chosen = _choose(argv)
    if chosen is None:
        print(_usage())
        return 0
    folder = originals().parent / WORKBOOK
    folder.mkdir(exist_ok=True)
    remove_orphans(str(folder), ".*")
    if not (folder / GLOSSARY).exists():
        _write(folder / GLOSSARY, (originals() / GLOSSARY).read_text(encoding="utf-8"))
    for notebook in chosen:
        print(f"{WORKBOOK}/{notebook.file}: {hand_out(notebook, folder)}")
    print(f"Open {WORKBOOK}/{chosen[0].file} in JupyterLab; make lab starts it.")
    return 0


def hand_out(notebook: Notebook, folder: Path) -> str:
    """Makes or renews one copy and says in words what it did.

    A copy in which anything was changed is kept, whatever the original has become since.
    """
    fresh = cleared(_read(originals() / notebook.file))
    path = folder / notebook.file
    if not path.exists():
        _write_notebook(path, fresh)
        return "new copy"
    try:
        theirs = _read(path)
        hash_of_theirs, handed_out = _hash(theirs), theirs["metadata"].get(HANDED_OUT)
    except UNREADABLE:  # half saved, or no notebook: it is the learner's all the same
        return "kept; it is not a readable notebook, move it aside to get a new copy"
    if hash_of_theirs == _hash(fresh):
        return "kept; it is up to date"
    if hash_of_theirs == handed_out:
        _write_notebook(path, fresh)
        return "renewed; you had changed nothing and the original is newer"
    return "kept; it has your changes, move it aside to get a new copy"


def cleared(original: NotebookJSON) -> NotebookJSON:
    """A copy without outputs and counts, marked with the hash of its sources."""
    fresh = copy.deepcopy(original)
    for cell in fresh["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    fresh["metadata"][HANDED_OUT] = _hash(fresh)
    return fresh


def _choose(argv: list[str]) -> list[Notebook] | None:
    if argv in (["-h"], ["--help"]):
        return None
    if len(argv) > 1:
        raise UsageError(f"give one number or none, not {len(argv)}")
    return [content.notebook(argv[0])] if argv else content.notebooks()


def _usage() -> str:
    lines = [
        f"  {entry.number}  {entry.title} ({entry.minutes} min)" for entry in content.notebooks()
    ]
    return "\n".join(["usage: labkit open [NN]", "", *lines, "", f"copies into {WORKBOOK}/"])


def _read(path: Path) -> NotebookJSON:
    """Raises one of UNREADABLE for what is no notebook, or later whoever looks into it."""
    loaded = json.loads(path.read_text(encoding="utf-8"))
    if not (isinstance(loaded, dict) and {"cells", "metadata", "nbformat"} <= loaded.keys()):
        raise ValueError("no notebook")
    return loaded


def _write_notebook(path: Path, notebook: NotebookJSON) -> None:
    text = json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False)
    _write(path, text + "\n")
    _trust(path)


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)  # JupyterLab may have the copy open: whole or not at all
    finally:
        temporary.unlink(missing_ok=True)


def _trust(path: Path) -> None:
    """Signs it, as JupyterLab does on saving: of an unsigned one it warns in the terminal."""
    with suppress(ImportError, OSError, sqlite3.Error):  # a warning is all that is at stake
        import nbformat
        from nbformat.sign import NotebookNotary

        NotebookNotary().sign(nbformat.read(path, as_version=4))  # type: ignore[no-untyped-call]


def _hash(notebook: NotebookJSON) -> str:
    """Of what a person writes: the kind and the source of each cell, not outputs, counts or ids."""
    sources = [[cell["cell_type"], "".join(cell["source"])] for cell in notebook["cells"]]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()

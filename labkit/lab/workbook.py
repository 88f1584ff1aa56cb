"""`labkit open` and `labkit reset`: the learner's own copies of the notebooks, in `workbook/`.

The originals hold every output and are never edited. A copy has none, so nothing is told before
it is run, and an update of the lab cannot conflict with what a learner wrote. Nothing that a
learner wrote is ever deleted: what makes room for a fresh copy is moved into `workbook/old/`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from labkit.errors import BadInput, LabkitError, NotFound, StorageFault, UsageError, storage_faults
from labkit.files import remove_orphans
from labkit.journal import bounded
from labkit.lab import content, updates
from labkit.lab.content import Notebook
from labkit.lab.keeping import one_at_a_time, write_whole
from labkit.lab.places import command, originals

__all__ = [
    "OLD",
    "WORKBOOK",
    "Done",
    "cleared",
    "hand_out",
    "open_command",
    "reset",
    "reset_command",
]

WORKBOOK = "workbook"
OLD = "old"  # in the workbook: what made room for fresh copies
LOCK = ".labkit.lock"
GLOSSARY = "GLOSSARY.md"  # the notebooks link to it, so it stands beside the copies too
GLOSSARY_MARK = "<!-- labkit handed this out:"  # with the hash of all above it; shown by no reader
NotebookJSON = dict[str, Any]  # as the file has it; nothing here needs nbformat's own types
UNREADABLE = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
HANDED_OUT = "labkit_handed_out"  # in a copy's metadata: the hash of the sources it came with
IN_JUPYTERLAB = "Open in JupyterLab? File > Reload Notebook from Disk; if it asks, choose Revert."


class Done(NamedTuple):
    """What was done for one copy, in words; `wrote` is its path when it was made or renewed."""

    said: str
    wrote: Path | None = None


def open_command(argv: list[str]) -> int:
    """`labkit open [NN]`: copies one notebook or all, says where, and what is new in an original.

    Of all, an original that is missing or damaged is told and passed over.
    """
    if argv in (["-h"], ["--help"]):
        print(_usage("labkit open [NN]", f"copies into {WORKBOOK}/; what you changed is kept"))
        return 0
    if len(argv) > 1:
        raise UsageError(f"give one number or none, not {len(argv)}")
    chosen = [content.notebook(argv[0])] if argv else content.notebooks()
    done: list[Done] = []
    with _workbook() as folder:
        with _no_copy():
            said = _hand_out_glossary(folder)
        print(*([f"{WORKBOOK}/{GLOSSARY}: {said}\n"] if said else []), end="")
        for notebook in chosen:
            with _no_copy():
                done.append((hand_out if argv else _hand_out_or_say)(notebook, folder))
            print(f"{WORKBOOK}/{notebook.file}: {done[-1].said}")
    _trust(done)
    if any(one.said.startswith("renewed") for one in done):
        print(IN_JUPYTERLAB)
    print(f"Open {WORKBOOK}/{chosen[0].file} in JupyterLab; make lab starts it.")
    return 0


def reset_command(argv: list[str]) -> int:
    """`labkit reset NN ...` or `--all`: fresh copies; what was there is moved aside.

    Raises UsageError for `--all` where nobody can be asked.
    """
    if argv in (["-h"], ["--help"]):
        aside = f"moves your copy into {WORKBOOK}/{OLD}/ and makes a fresh one; keeps your progress"
        print(_usage("labkit reset NN ... | --all", aside))
        return 0
    if "--all" in argv and argv != ["--all"]:
        raise UsageError("give numbers or --all, not both")
    if not argv:
        raise UsageError("give the number of a notebook, as in labkit reset 05, or --all")
    everything = argv == ["--all"]
    if everything and not _can_answer():
        raise UsageError("--all asks first, and no terminal can answer; give the numbers instead")
    chosen = content.notebooks() if everything else [content.notebook(number) for number in argv]
    fresh = {notebook: _fresh(notebook) for notebook in chosen}  # before anything is moved
    if everything and not _agreed(chosen):
        print("Nothing was changed.")
        return 0
    done: list[Done] = []
    with _workbook() as folder:
        for notebook in fresh:
            with _no_copy():
                done.append(reset(notebook, folder))
            print(f"{WORKBOOK}/{notebook.file}: {done[-1].said}")
    _trust(done)
    print(f"Your answers and what held are kept; {command()} progress shows them.")
    if any(one.wrote for one in done):
        print(IN_JUPYTERLAB)
    return 0


def hand_out(notebook: Notebook, folder: Path) -> Done:
    """Makes or renews one copy and says in words what it did, and what is new in the original.

    A copy in which anything was changed is kept, whatever the original has become since. Raises
    NotFound without an original, BadInput for a damaged one.
    """
    fresh = _fresh(notebook)
    path = folder / notebook.file
    if not os.path.lexists(path):
        write_whole(path, _text(fresh))
        return Done("new copy", path)
    again = f"{command()} reset {notebook.number} moves it aside and makes a fresh copy"
    try:
        theirs = _read(path)
        hash_of_theirs, handed_out = _hash(theirs), theirs["metadata"].get(HANDED_OUT)
    except UNREADABLE:  # half saved, or no notebook: it is the learner's all the same
        return Done(f"kept; it is not a readable notebook\n  {again}")
    if hash_of_theirs == _hash(fresh):
        return Done("kept; it is up to date")
    if handed_out == _hash(fresh) or not isinstance(handed_out, str):  # or it came from elsewhere
        return Done(f"kept; it has your changes\n  {again}")
    news = [f"\n  {line}" for line in updates.news(theirs, fresh)]
    if hash_of_theirs == handed_out:
        write_whole(Path(os.path.realpath(path)), _text(fresh))  # a symbolic link stays one
        said = "renewed; you had changed nothing and the original is newer"
        return Done("".join([said, *news]), path)
    said = "kept; it has your changes and the original is newer"
    return Done("".join([said, *news, f"\n  {again}"]))


def reset(notebook: Notebook, folder: Path) -> Done:
    """Makes a fresh copy and says where the old one is. A fresh copy is left as it is.

    Raises OSError with the old copy in its place, and what `hand_out` raises.
    """
    fresh = _fresh(notebook)
    path = folder / notebook.file
    if not os.path.lexists(path):
        write_whole(path, _text(fresh))
        return Done("fresh copy; there was none", path)
    if _is_fresh(path, fresh):
        return Done("it is as fresh as a new one; nothing was moved")
    aside = _make_room(path, _text(fresh))
    return Done(f"fresh copy\n  the old one is {WORKBOOK}/{OLD}/{aside.name}", path)


def cleared(original: NotebookJSON) -> NotebookJSON:
    """A copy without outputs and counts, marked with what it was made from."""
    fresh = copy.deepcopy(original)
    for cell in fresh["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    fresh["metadata"][HANDED_OUT] = _hash(fresh)
    fresh["metadata"][updates.CELLS] = updates.marks(fresh)
    return fresh


def _usage(form: str, does: str) -> str:
    every = (
        (entry, f" ({entry.minutes} min)" * bool(entry.minutes)) for entry in content.notebooks()
    )
    lines = [f"  {entry.number}  {entry.title}{minutes}" for entry, minutes in every]
    return "\n".join([f"usage: {form}", "", *lines, "", does])


@contextmanager
def _workbook() -> Iterator[Path]:
    """The folder, made if needed, for one process at a time, without what a killed one left."""
    folder = originals().parent / WORKBOOK
    if os.path.lexists(folder) and not folder.is_dir():
        raise StorageFault(f"{WORKBOOK} is no folder; move it away, try again")
    with ExitStack() as stack:
        with _no_copy():
            folder.mkdir(exist_ok=True)
            stack.enter_context(one_at_a_time(folder / LOCK))
            remove_orphans(str(folder), ".*")
        yield folder


def _no_copy() -> AbstractContextManager[None]:
    return storage_faults(f"cannot make a copy in {WORKBOOK}, what is there stays as it is")


def _hand_out_or_say(notebook: Notebook, folder: Path) -> Done:
    try:
        return hand_out(notebook, folder)
    except LabkitError as error:
        return Done(str(error))


def _can_answer() -> bool:
    """Not in a cell: `!labkit` has a terminal there, nobody can type into it, the cell hangs."""
    in_a_cell = "JPY_PARENT_PID" in os.environ  # every kernel is started with it
    return sys.stdin is not None and sys.stdin.isatty() and not in_a_cell


def _agreed(chosen: list[Notebook]) -> bool:
    """Asks a person at a terminal; only a yes is one."""
    folder = originals().parent / WORKBOOK
    copies = [entry.file for entry in chosen if os.path.lexists(folder / entry.file)]
    print(*(f"  {WORKBOOK}/{name}\n" for name in copies), sep="", end="")
    number = "1 copy" if len(copies) == 1 else f"{len(copies)} copies"
    print(f"Move {number} aside and make fresh ones? Type yes: ", end="", flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print()  # the end of the input leaves the cursor behind the question
    return answer.strip().lower() == "yes"


def _fresh(notebook: Notebook) -> NotebookJSON:
    shown = f"notebooks/{notebook.file}"
    try:
        return cleared(_read(originals() / notebook.file))
    except FileNotFoundError:
        raise NotFound(f"there is no {shown}; git checkout {shown} brings it back") from None
    except OSError:
        raise
    except UNREADABLE:  # an update may have left the marks of a conflict in it
        raise BadInput(f"{shown} is damaged; git checkout {shown} brings it back") from None


def _is_fresh(path: Path, fresh: NotebookJSON) -> bool:
    """Neither changed nor run since it was handed out."""
    try:
        theirs = _read(path)
        code = [cell for cell in theirs["cells"] if cell["cell_type"] == "code"]
        run = any(cell["outputs"] or cell["execution_count"] is not None for cell in code)
        return not run and _hash(theirs) == _hash(fresh) and not path.is_symlink()
    except UNREADABLE:
        return False


def _make_room(path: Path, text: str) -> Path:
    """Gives `text` the name of `path` and returns where the old file is.

    The new text is on the disk before the old file is moved: a full disk changes nothing.
    """
    moved: list[Path] = []
    try:
        write_whole(path, text, ready=lambda: moved.append(_move_aside(path)))
    except OSError:
        if moved:
            moved[0].rename(path)
        raise
    return moved[0]


def _move_aside(path: Path) -> Path:
    """Into `old/`, under a name with a date and a number that nothing has. The caller locks."""
    old = path.parent / OLD
    old.mkdir(exist_ok=True)
    names = (f"{path.stem}.{date.today()}.{number}{path.suffix}" for number in count(1))
    aside = next(old / name for name in names if not os.path.lexists(old / name))
    if path.is_symlink():  # moved as it is, a relative one would lead nowhere
        aside.symlink_to(path.parent / os.readlink(path))
        path.unlink()
    else:
        path.rename(aside)
    return aside


def _hand_out_glossary(folder: Path) -> str:
    """What a learner changed in it is kept. Says what it did, or nothing if nothing is new."""
    text = (originals() / GLOSSARY).read_text(encoding="utf-8")
    path = folder / GLOSSARY
    if not os.path.lexists(path):
        write_whole(path, text + _mark(text))
        return ""
    try:
        theirs = _read_text(path)
    except (OSError, ValueError):
        return "kept; it cannot be read"
    above, mark, _ = theirs.partition(GLOSSARY_MARK)
    if theirs == text + _mark(text):
        return ""
    if not mark:  # handed out before there were marks: nobody knows whose words these are
        aside = _make_room(path, text + _mark(text))
        return f"renewed; the old one is {WORKBOOK}/{OLD}/{aside.name}"
    if theirs == above + _mark(above):
        write_whole(Path(os.path.realpath(path)), text + _mark(text))
        return "renewed; you had changed nothing and the original is newer"
    if _mark(text) in theirs:
        return ""  # theirs, and the original is what it was
    return "kept; it has your changes and the original is newer; move it aside to get a new one"


def _mark(text: str) -> str:
    return f"{GLOSSARY_MARK} {hashlib.sha256(text.encode()).hexdigest()} -->\n"


def _read(path: Path) -> NotebookJSON:
    """Raises one of UNREADABLE for what is no notebook, or later whoever looks into it."""
    loaded = json.loads(_read_text(path))
    if not (isinstance(loaded, dict) and {"cells", "metadata", "nbformat"} <= loaded.keys()):
        raise ValueError("no notebook")
    return loaded


def _read_text(path: Path) -> str:
    return bounded.read(path).decode("utf-8")  # never waits: the lock is in hand


def _text(notebook: NotebookJSON) -> str:
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _trust(done: list[Done]) -> None:
    """Signs them, as JupyterLab does on saving: of an unsigned one it warns in the terminal.

    Nobody waits for it: to import nbformat takes two seconds.
    """
    written = [one.wrote for one in done if one.wrote]
    if not written:
        return
    # A warning is all that is at stake.
    with suppress(ImportError, OSError, ValueError, sqlite3.Error):
        import nbformat
        from nbformat.sign import NotebookNotary

        notary = NotebookNotary()  # type: ignore[no-untyped-call]
        for path in written:
            notary.sign(nbformat.read(path, as_version=4))  # type: ignore[no-untyped-call]


def _hash(notebook: NotebookJSON) -> str:
    """Of what a person writes: the kind and the source of each cell, not outputs, counts or ids."""
    sources = [[cell["cell_type"], "".join(cell["source"])] for cell in notebook["cells"]]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()

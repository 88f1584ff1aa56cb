"""Agents broken on purpose: each is one small difference from the right agent, as data.

A suite that a broken agent passes proves nothing. Each mutant names in advance the case that must
say broken over it; `restart.toml` holds those of the restart agent. Read `cases` next (what else
than the thirteen cases a mutant may need), then `labkit.chaos.matrix`, which tries them all.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import NamedTuple

import labkit
from labkit.chaos.verdict import BROKEN, HELD
from labkit.errors import BadInput

__all__ = ["RIGHT", "Edit", "Mutant", "count", "plant", "read_mutants"]

PACKAGE = Path(labkit.__file__).parent
LEFT_OUT = shutil.ignore_patterns("__pycache__", "lab", "mutants")


class Edit(NamedTuple):
    """`old`, which stands exactly once in `file`, becomes `new`."""

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    """`old`, which stands exactly once in `file`, becomes `new`. `wrong` says what that breaks.
    `more` are edits without which the difference could not be made.

    `promise` is the one in danger. `case` must say broken, and those in `also` do too; all others
    must stay green, or the suite cannot tell one mistake from another. Of those in `unsaid` nothing
    is said in advance: chance decides, or the run never ends, which is unknown.
    """

    name: str
    wrong: str
    promise: int = 0
    file: str = ""
    old: str = ""
    new: str = ""
    case: str = ""
    also: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()
    more: tuple[Edit, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        first = Edit(self.file, self.old, self.new)
        return (first, *self.more) if self.file else self.more

    def expects(self, case: str) -> str:
        """The outcome of a case that is said in advance, or nothing."""
        if case in self.unsaid:
            return ""
        return BROKEN if case in (self.case, *self.also) else HELD


RIGHT = Mutant("right agent", "nothing: every case must be held")


def read_mutants(system: str = "restart") -> list[Mutant]:
    """The mutants of one system, from the file of its name beside this module."""
    with open(Path(__file__).with_name(f"{system}.toml"), "rb") as file:
        entries = tomllib.load(file)["mutant"]
    for entry in entries:
        entry |= {name: tuple(entry.get(name, ())) for name in ("also", "unsaid")}
        entry["more"] = tuple(Edit(**edit) for edit in entry.get("more", ()))
    return [Mutant(**entry) for entry in entries]


def count(edit: Mutant | Edit) -> int:
    """How often the old text stands in the file as it is now."""
    return (PACKAGE.parent / edit.file).read_text("utf-8").count(edit.old)


def plant(mutant: Mutant, folder: Path) -> Path:
    """A copy of the package, with this one difference, in a fresh folder; the folder.

    Raises BadInput if an old text does not stand there once: an edit of the agent must not make a
    mutant vanish.
    """
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=LEFT_OUT)
    for edit in mutant.edits:
        if (times := count(edit)) != 1:
            raise BadInput(f"{mutant.name}: its old text stands {times} times in {edit.file}")
        path = folder / edit.file
        path.write_text(path.read_text("utf-8").replace(edit.old, edit.new), "utf-8")
    return folder

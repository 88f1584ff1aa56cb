"""A function that publishes a file, called in a process of its own: its calls and its accidents.

`attempt` and `calls` are for a notebook, `make` for a check. What a reader finds afterwards is
told in words: nothing, the whole report, half of it, two of them, or another task's file.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from labkit import guard
from labkit.errors import LabkitError, UsageError, storage_faults
from labkit.lab import verbs
from labkit.lab.folder import new_directory, session

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "NAME",
    "OTHER",
    "REPORT",
    "Ask",
    "Function",
    "Made",
    "Publish",
    "attempt",
    "calls",
    "folder_with",
    "leave_another",
    "make",
    "name_of",
    "of_labkit",
    "visible",
]

TIMEOUT_S = 20.0
COLUMNS = 80
NAME = "notes-2.md"
REPORT = "The pump in hall B stopped twice on Monday.\nMoving the backup to 03:00 ended that.\n"
OTHER = "The report of another task.\n"

Publish = Callable[[str, str, bytes], object]


class Function(NamedTuple):
    """What the other process calls: a function of labkit by its module, or one by its source."""

    name: str
    module: str = ""
    source: str = ""


class Ask(NamedTuple):
    """One call of it. `die_at` is the file call, counted from 0, before which the process dies;
    with `half` it dies in the middle of it, a write; with `die_after` when the function has
    returned. `plant` is published by another process just before this one gives its file the name.
    """

    folder: Path
    name: str = NAME
    content: str = REPORT
    die_at: int | None = None
    half: bool = False
    die_after: bool = False
    plant: str | None = None


class Made(NamedTuple):
    """How a call ended, in words; `line` is where it raised; `files` is what lay there then.

    `before` is what a reader found before the call, in words.
    """

    ended: str
    line: str
    events: tuple[dict[str, Any], ...]
    files: dict[str, str]
    before: str = ""

    @property
    def calls(self) -> tuple[str, ...]:
        """The calls in order, each in two words at most; a write in three pieces is one."""
        return tuple(name for name, _ in itertools.groupby(map(name_of, self.events)))

    @property
    def returned(self) -> bool:
        return self.ended == "returned"

    @property
    def killed(self) -> bool:
        return self.ended == "killed by SIGKILL"

    def find(self, content: str = REPORT, other: str = OTHER) -> str:
        """What a reader finds, in words."""
        return _told(self.files, content, other)

    def __repr__(self) -> str:
        lines = [
            textwrap.fill(self.ended, COLUMNS, subsequent_indent=" " * 8),
            f"before  {self.before}" if self.before else "",
            f"calls   {', '.join(self.calls) or 'none'}",
            f"reader  {self.find()}",
        ]
        return "\n".join(filter(None, lines))


def make(function: Function, asks: Sequence[Ask]) -> list[Made]:
    """Calls the function once for each ask, in order, and says what each call did.

    Raises LabkitError for a function that cannot even be defined there.
    """
    asked = [{**ask._asdict(), "folder": str(ask.folder)} for ask in asks]
    request = json.dumps({**function._asdict(), "attempts": asked})
    argv = [sys.executable, "-m", "labkit.lab.scenarios.recorder", request]
    environ = {**os.environ, "LABKIT_SESSION": session()}
    with (
        storage_faults("cannot start the recorder"),
        guard.start(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started,
    ):
        try:
            answer, said = started.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise LabkitError(f"{function.name} had not ended after {TIMEOUT_S:g} s") from None
        if started.wait():
            last = said.decode(errors="replace").strip().rpartition("\n")[2]
            raise LabkitError(f"{function.name} cannot be called: {last}")
    return [Made(m["ended"], m.get("line", ""), tuple(m["events"]), m["files"])
            for m in json.loads(answer)]  # fmt: skip


def attempt(publish: Publish, kill_in: str = "", found: str = "") -> Made:
    """One call in a folder of its own, with the report and the name of this notebook.

    `kill_in` is the call in which the process dies by SIGKILL: "write" when half of it is done,
    another one just before it. `found` is a file of that name which is there already.
    """
    function, folder = of_labkit(publish), folder_with(found)
    asked = Ask(folder)
    if kill_in:
        usual = make(function, [Ask(folder_with(""))])[0].events
        at = next((n for n, event in enumerate(usual) if name_of(event) == kill_in), None)
        if at is None:
            known = ", ".join(dict.fromkeys(map(name_of, usual)))
            raise UsageError(f"{function.name} makes no call {kill_in!r}; it makes {known}")
        asked = Ask(folder, die_at=at, half=kill_in == "write")
    before = _told({NAME: found}, REPORT, OTHER) if found else ""
    return make(function, [asked])[0]._replace(before=before)


def leave_another() -> None:
    """Another task's report, under the name that this notebook's task will use."""
    folder = verbs.current_folder().artifacts
    with storage_faults(f"cannot write {NAME}"):
        folder.mkdir(exist_ok=True)
        (folder / NAME).write_text(OTHER, encoding="utf-8")
    print(f"{folder.name}/{NAME} is there, the report of another task.")


def calls(*publishers: Publish) -> pd.DataFrame:
    """The calls of each publisher, one column each, in their order."""
    import pandas as pd

    made = {publish.__name__: attempt(publish).calls for publish in publishers}
    rows = itertools.zip_longest(*made.values(), fillvalue="")
    return pd.DataFrame(list(rows), columns=list(made))


def name_of(event: Mapping[str, Any]) -> str:
    """A call in two words at most: "fsync folder", "link refused" where the name was taken."""
    name = str(event["call"])
    if name == "fsync":
        name += " folder" if event["folder"] else " file"
    return f"{name} refused" if event.get("failed") else name


def visible(files: Mapping[str, str]) -> dict[str, str]:
    """The files that a reader takes for reports: no hidden ones, and none that ends in .tmp."""
    return {
        name: text
        for name, text in files.items()
        if not name.startswith(".") and not name.endswith(".tmp")
    }


def of_labkit(publish: Publish) -> Function:
    """Raises UsageError for a function that another process cannot import."""
    module = getattr(publish, "__module__", "")
    if not module.startswith("labkit."):
        raise UsageError(f"{publish!r} is no publisher of labkit; lab.check judges your own")
    return Function(publish.__name__, module)


def folder_with(found: str) -> Path:
    """A new folder below the one of the notebook, with another task's file in it or empty."""
    folder = new_directory(verbs.current_folder().path, "published")
    if found:
        with storage_faults(f"cannot write {NAME}"):
            (folder / NAME).write_text(found, encoding="utf-8")
    return folder


def _told(files: Mapping[str, str], content: str, other: str) -> str:
    found = visible(files)
    words = [f"{name}: {_in_words(text, content, other)}" for name, text in found.items()]
    return "; ".join(words) or "no report"


def _in_words(text: str, content: str, other: str) -> str:
    if number := text.count(content):
        times = "the report" if number == 1 else f"the report {number} times"
        return f"{times}, after another's" if text.startswith(other) else times
    if text == other:
        return "another task's report"
    if content.startswith(text):
        return "half of the report" if text else "an empty file"
    return "something else"

"""What is chosen at the top of the journal explorer: a journal, a task, a run, a witness.

It decides what there is to choose from, and keeps what was chosen where it is still there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from ipywidgets import Checkbox

from labkit.errors import UsageError
from labkit.journal import Journal
from labkit.journal.explore import Contents, Glance, find_journals
from labkit.lab.grid import AGENTS
from labkit.lab.panels.explorer_pages import ALL, menu, text
from labkit.lab.panels.parts import PAGE, button, options

__all__ = ["Choices", "is_trial", "opened"]

MAX_PATH = 4096  # of Linux

# What a notebook makes by the dozen, each in a folder of its own: a trial of `lab.trial`, of an
# exercise's check, of a mutant, of the crash matrix. Of what begins otherwise there are few.
TRIALS = ("trial-", "check-", "mutant-", *(f"{agent}-" for agent in AGENTS))
EACH = PAGE // 2  # journals of notebooks, and of trials, that are listed
FOUND = 10_000  # files that are looked at


class Choices:
    """The controls above the pages, and the list of kinds, which stands on a page."""

    def __init__(self, witness: str, kinds: Any) -> None:
        self.kinds = kinds
        self.found = menu("Journals", "found", "Those of the lab's notebooks, then those of trials")
        self.find = button("Find", "Looks for journals again", "labkit-explorer-find")
        self.path = text("Path", "path", "A journal's file; Enter opens it", "24em")
        self.open_it = button("Open", "Opens the file at this path", "labkit-explorer-open")
        tooltip = "A file from outside: a line for each effect, its key first"
        self.witness = text("Witness", "witness", tooltip, "16em", "as .../outbox.txt")
        self.witness.value = witness
        self.task = menu("Task", "task", "Shows one task, or durable run, only")
        self.run = menu("Run", "run", "Lists one run only; of durable runs, one advance")
        self.follow = Checkbox(
            description="Follow", indent=False, tooltip="Shows events as they come",
            layout={"width": "auto"},
        ).add_class("labkit-explorer-follow")  # fmt: skip

    def list_journals(self, folder: str) -> None:
        """Those of notebooks first, the newest first, and under one line those of trials, each with
        the time of its last change. Where there is no folder, none. Raises NotFound then."""
        self.found.options = [("0 found", ALL)]
        every = find_journals(folder, FOUND)
        trials = [path for path in every if is_trial(path)]
        own = [path for path in every if not is_trial(path)]
        listed = [(_in_words(own, "found"), ALL), *_timed(folder, own)]
        if trials:
            listed += [(_in_words(trials, "of trials:"), TRIAL), *_timed(folder, trials)]
        self.found.options = listed

    def forget(self) -> None:
        """Nothing is chosen of the journal before."""
        for choice in (self.task, self.run):
            choice.options = [("all", ALL)]
        self.kinds.value = ()

    def show_path(self, path: str) -> None:
        # The box shows a path as it is, so it shows none that a browser would turn around.
        self.path.value = path if path.isprintable() else ""
        _choose(self.found, path)

    def fill(self, contents: Contents) -> None:
        """Tasks, runs and kinds, with those that were chosen still chosen."""
        tasks = [(task.summary, task.id) for task in contents.tasks[:PAGE]]
        _refill(self.task, _for_all(len(contents.tasks)), options(tasks, 60))
        self.fill_runs(contents)
        kinds = [(f"{kind} ({number:,})", kind) for kind, number in contents.kinds.items()]
        chosen = self.kinds.value
        self.kinds.options = options(kinds[:PAGE])
        self.kinds.value = [kind for kind in chosen if kind in contents.kinds]

    def fill_runs(self, contents: Contents) -> None:
        """Those of the chosen task."""
        mine = [run for run in contents.runs if self.task.value in (ALL, run.task_id)]
        runs = [(run.name, run[:2]) for run in mine[:PAGE]]
        _refill(self.run, _for_all(len(mine), " advances" * contents.is_durable), options(runs))

    @property
    def picked(self) -> dict[str, Any]:
        """What the list of events shows, as `Journal.seqs` takes it."""
        task, run = (None if menu.value is ALL else menu.value for menu in (self.task, self.run))
        return {
            "task": run[0] if run else task,
            "run": run[1] if run else None,
            "kinds": list(self.kinds.value),
        }

    def chosen(self, *names: str) -> list[str]:
        """Those of these controls that limit something."""
        picked = self.picked
        return [name for name in names if picked[name.lower()] not in (None, [])]

    @property
    def code(self) -> str:
        """The line that lists what is picked."""
        limits = {name: value for name, value in self.picked.items() if value not in (None, [])}
        given = ", ".join(f"{name}={value!r}" for name, value in limits.items())
        return f"journal.rows(journal.seqs({given})[:{PAGE}])"

    def follow_code(self, after: int, who: str) -> str:
        """The lines that go on with what is picked after a seq; `who` is the run's column."""
        task, run, kinds = self.picked.values()
        given = f"after={after}" if task is None else f"{task!r}, after={after}"
        asked = [f"event.kind in {kinds!r}"] if kinds else []
        asked += [f"event.{who} == {run!r}"] if run else []
        shown = f"    if {' and '.join(asked)}:\n    " if asked else ""
        return f"for event in journal.follow({given}):\n{shown}    print(event)"


TRIAL = object()  # the line above the trials, which opens nothing


def opened(path: str) -> tuple[Journal, Glance, Contents]:
    """The journal at a path that somebody typed, and what is in it. Raises UsageError for what is
    no path, and what `Journal` raises."""
    if not path.strip():
        raise UsageError("type the path of a journal, or choose one from the list")
    if len(path) > MAX_PATH:
        raise UsageError(f"this text of {len(path):,} characters is no path; type one")
    at = _expanded(path)
    journal = Journal(at)
    return journal, journal.glance(), journal.contents()


def is_trial(path: str) -> bool:
    """Whether a journal lies in a folder as trials have them."""
    return os.path.basename(os.path.dirname(path)).startswith(TRIALS)


def _expanded(path: str) -> str:
    try:
        return os.path.expanduser(path)
    except ValueError:  # no system has a user of this name, as "\0"
        return path


def _in_words(paths: Sequence[str], what: str) -> str:
    more = "" if len(paths) <= EACH else f" the newest {EACH} of"
    return f"{more} {len(paths):,} {what}".strip()


def _timed(folder: str, paths: Sequence[str]) -> list[tuple[str, object]]:
    found = []
    for path in paths[:EACH]:
        at = os.path.join(folder, path)
        with suppress(OSError):  # gone since
            changed = datetime.fromtimestamp(os.stat(at).st_mtime)
            found.append((f"{changed:%m-%d %H:%M}  {path}", at))
    return options(found, 72)


def _for_all(number: int, word: str = "") -> str:
    return f"all ({number:,}{word}{f'; {PAGE} are listed' if number > PAGE else ''})"


def _refill(choice: Any, for_all: str, made: Sequence[tuple[str, object]]) -> None:
    """New options, the value kept where it is still among them."""
    chosen = choice.value
    choice.options = [(for_all, ALL), *made]
    _choose(choice, chosen)


def _choose(choice: Any, value: object) -> None:
    is_there = value in [each for _, each in choice.options]
    choice.value = value if is_there else ALL

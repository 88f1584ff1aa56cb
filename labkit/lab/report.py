"""`labkit progress`: what is answered and held, what is open, what to open next."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from labkit.errors import UsageError
from labkit.journal.reading import plain
from labkit.lab import content, progress
from labkit.lab.content import Exercise, Notebook, Question
from labkit.lab.places import command

__all__ = ["progress_command"]

COLUMNS = 80
UNKNOWN_MAX = 12  # ids that are named; the file keeps all
USAGE = """\
usage: labkit progress                what is answered and held, and what to open next
       labkit progress --merge FILE   takes the progress of another machine in
       labkit progress --json         the same for a program, with the answers"""


class Row(NamedTuple):
    """One notebook and what is recorded of it."""

    notebook: Notebook
    questions: list[Question]
    exercises: list[Exercise]
    letters: dict[str, str]  # of these questions, those that were answered by an option
    checked: dict[str, dict[str, Any]]  # of these exercises, those that were tried

    @property
    def open(self) -> list[Exercise]:
        return [entry for entry in self.exercises if not self.holds(entry)]

    @property
    def done(self) -> bool:
        """Held throughout; a notebook without exercises is done when a prediction was made."""
        return not self.open and bool(self.exercises or self.letters or not self.questions)

    def holds(self, exercise: Exercise) -> bool:
        return bool(self.checked.get(exercise.id, {}).get("held"))


class Report(NamedTuple):
    """All rows; `predictions` and `checks` of ids that this labkit does not know."""

    rows: list[Row]
    predictions: dict[str, str]
    checks: dict[str, dict[str, Any]]

    @property
    def next(self) -> Row | None:
        return next((row for row in self.rows if not row.done), None)


def progress_command(argv: list[str]) -> int:
    """`labkit progress [--json | --merge FILE]`. Raises UsageError for anything else."""
    match argv:
        case ["-h" | "--help"]:
            print(USAGE)
        case []:
            print(*_lines(_report()), sep="\n")
        case ["--json"]:
            print(json.dumps(_for_programs(_report()), indent=2))
        case ["--merge", file]:
            print(*_merge(Path(file)), sep="\n")
        case ["--merge"]:
            raise UsageError("--merge needs the progress file of the other machine")
        case _:
            raise UsageError(f"use --json, --merge FILE or nothing, not {' '.join(argv)!r}")
    return 0


def _report() -> Report:
    letters, checked = progress.predictions(), progress.checks()
    rows = [_row(notebook, letters, checked) for notebook in content.lessons()]
    asked = {entry.id for row in rows for entry in row.questions}
    asked |= {entry.id for row in rows for entry in row.exercises}
    return Report(
        rows,
        {key: letter for key, letter in letters.items() if key not in asked},
        {key: entry for key, entry in checked.items() if key not in asked},
    )


def _row(notebook: Notebook, letters: dict[str, str], checked: dict[str, dict[str, Any]]) -> Row:
    asked, exercises = content.questions(notebook.number), content.exercises(notebook.number)
    given = {entry.id: letters.get(entry.id) for entry in asked}
    return Row(
        notebook,
        asked,
        exercises,
        {entry.id: str(given[entry.id]) for entry in asked if given[entry.id] in entry.options},
        {entry.id: checked[entry.id] for entry in exercises if entry.id in checked},
    )


def _lines(report: Report) -> Iterator[str]:
    yield from _table(report.rows)
    yield ""
    if any(row.open for row in report.rows):
        yield "Not held yet:"
        yield from (line for row in report.rows for entry in row.open for line in _open(row, entry))
        yield ""
    if unknown := [*report.predictions, *report.checks]:
        yield from textwrap.wrap(f"Kept, unknown to this labkit: {_ids(sorted(unknown))}", COLUMNS)
        yield ""
    yield _what_next(report)
    yield from _where()


def _table(rows: list[Row]) -> Iterator[str]:
    width = max(len(row.notebook.title) for row in rows)
    shape = f"{{:<4}} {{:<{width}}} {{:>8}} {{:>12}} {{:>10}}"
    yield shape.format("no.", "title", "minutes", "predictions", "exercises")
    for row in rows:
        of = row.notebook
        yield shape.format(of.number, of.title, of.minutes, *_counts([row]))
    minutes = sum(row.notebook.minutes for row in rows)
    yield shape.format("all", f"{len(rows)} notebooks", minutes, *_counts(rows))


def _counts(rows: list[Row]) -> tuple[str, str]:
    """Predictions answered and exercises held, as "x of y", or "-" where none are asked."""
    answered, asked = sum(len(row.letters) for row in rows), sum(len(r.questions) for r in rows)
    exercises = sum(len(row.exercises) for row in rows)
    held = exercises - sum(len(row.open) for row in rows)
    pairs = ((answered, asked), (held, exercises))
    first, second = (f"{some} of {every}" if every else "-" for some, every in pairs)
    return first, second


def _open(row: Row, exercise: Exercise) -> list[str]:
    entry = row.checked.get(exercise.id)
    last = f", the last {plain(entry['verdict'])}" if entry and entry["verdict"] else ""
    tried = f" ({_tries(entry['tries'])}{last})" if entry and entry["tries"] else ""
    indent = " " * (len(exercise.id) + 4)
    text = f"  {exercise.id}  {exercise.asks}{tried}"
    return textwrap.wrap(text, COLUMNS, subsequent_indent=indent)


def _tries(number: int) -> str:
    return "1 try" if number == 1 else f"{number} tries"


def _what_next(report: Report) -> str:
    if row := report.next:
        number, title = row.notebook.number, row.notebook.title
        return f"Next: {number}, {title} ({row.notebook.minutes} min); {command()} open {number}"
    return "Every exercise is held."


def _where() -> list[str]:
    file = progress.path()
    # A path is not cut, else it could not be copied from the screen.
    shown = plain(str(file), limit=10_000)
    if not file.exists():
        return [f"Nothing is recorded yet; it will be kept in {shown}"]
    return [
        f"This is kept in {shown}",
        f"Copy that file to another machine; {command()} progress --merge FILE takes it in there.",
    ]


def _merge(file: Path) -> Iterator[str]:
    gain = progress.merge(file)
    if not (gain.predictions or gain.held):
        yield "No prediction and no held exercise in it is new here."
    if gain.predictions:
        yield f"Predictions taken in: {_ids(gain.predictions)}"
    if gain.held:
        yield f"Held from now on: {_ids(gain.held)}"
    if gain.kept:
        yield f"Predictions that differ, where yours here stays: {_ids(gain.kept)}"
    yield f"It is all in {plain(str(progress.path()), limit=10_000)}"


def _ids(ids: list[str]) -> str:
    more = f" and {len(ids) - UNKNOWN_MAX} more" if len(ids) > UNKNOWN_MAX else ""
    return ", ".join(plain(key, 24) for key in ids[:UNKNOWN_MAX]) + more


def _for_programs(report: Report) -> dict[str, Any]:
    """No path and no machine in it: an instructor collects it from many."""
    rows = report.rows
    return {
        "notebooks": [_one_for_programs(row) for row in rows],
        "totals": {
            "minutes": sum(row.notebook.minutes for row in rows),
            "answered": sum(len(row.letters) for row in rows),
            "asked": sum(len(row.questions) for row in rows),
            "held": sum(len(row.exercises) - len(row.open) for row in rows),
            "exercises": sum(len(row.exercises) for row in rows),
        },
        "unknown": {"predictions": report.predictions, "checks": report.checks},
        "next": report.next.notebook.number if report.next else None,
    }


def _one_for_programs(row: Row) -> dict[str, Any]:
    untried = {"held": False, "tries": 0, "verdict": "", "answer": "", "held_answer": ""}
    return {
        "number": row.notebook.number,
        "title": row.notebook.title,
        "minutes": row.notebook.minutes,
        "predictions": {entry.id: row.letters.get(entry.id) for entry in row.questions},
        "exercises": {
            entry.id: {**row.checked.get(entry.id, untried), "asks": entry.asks}
            for entry in row.exercises
        },
    }

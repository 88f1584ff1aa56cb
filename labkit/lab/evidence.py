"""What can be seen in a run folder: the journal inside, the published reports outside."""

from __future__ import annotations

import hashlib
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from labkit.errors import BadInput, ensure
from labkit.journal.bounded import LARGEST, LARGEST_LIST, read_text
from labkit.lab.folder import Folder
from labkit.lab.process import NotReady

if TYPE_CHECKING:
    import pandas as pd

    from labkit.journal import Journal
    from labkit.journal.figure import Timeline

__all__ = [
    "Report",
    "files",
    "find_reports",
    "journal",
    "killed_runs",
    "reports",
    "timeline",
    "witness",
]

HOUSEKEEPING = ("-wal", "-shm", ".lock", ".tmp")
END_OF_RECORD = "\n---\n"
TOO_MUCH = f"the reports in {{}} have more than {LARGEST >> 20} MB together; move some of them away"


class Report(NamedTuple):
    """One published report. `key` is the effect's key, or None where the effect carries none."""

    file: str
    key: str | None
    text: str


def journal(folder: Folder) -> Journal:
    """Raises NotReady while the folder has no database."""
    if not folder.database.exists():
        raise NotReady(
            "no agent has made a journal in this folder; "
            'run the cell with lab.run("agent create ...") first'
        )
    from labkit.journal import Journal

    return Journal(folder.database)


def timeline(folder: Folder, task: str, by: str, style: str = "notebook") -> Timeline:
    """A journal cannot say that a process was killed or is alive. The lab can: it did it."""
    from labkit.journal import timeline

    killed = killed_runs(folder, task)
    at_work = [run for each in folder.processes if each.alive for run in each.runs(task)]
    found = journal(folder)
    return timeline(found, task, by=by, style=style, killed=killed, at_work=at_work)


def killed_runs(folder: Folder, task: str) -> list[str]:
    """The runs of the task whose process was killed, in their order."""
    pairs = zip_longest(folder.processes, folder.processes[1:])
    return [run for each, then in pairs if each.killed for run in each.runs(task, then)]


def files(folder: Folder) -> list[str]:
    """The files that a person made or an agent published, and the database, by name."""
    every = (path for path in folder.path.rglob("*") if path.is_file())
    names = (path.relative_to(folder.path).as_posix() for path in every)
    return sorted(name for name in names if not name.endswith(HOUSEKEEPING))


def find_reports(folder: Folder) -> list[Report]:
    """Every report in the artifacts folder, by name; each record of report.log is one.

    Raises BadInput for reports that are too large to be read.
    """
    found, room = [], LARGEST
    for path in sorted(filter(Path.is_file, folder.artifacts.glob("[!.]*"))):
        is_list = path.suffix == ".log"
        text = read_text(path, LARGEST_LIST if is_list else LARGEST)
        if text is None:  # it has gone meanwhile
            continue
        room -= len(text)
        ensure(room >= 0, BadInput(TOO_MUCH.format(folder.artifacts)))  # many are as much as one
        if is_list:
            records = text.split(END_OF_RECORD)[:-1]  # a record without its end was cut by a kill
            found += [Report(path.name, None, record) for record in records]
        else:
            found.append(Report(path.name, path.stem, text))
    return found


def reports(folder: Folder) -> pd.DataFrame:
    """The reports as a table: file, key, first line."""
    import pandas as pd

    rows = [(r.file, r.key or "none", r.text.partition("\n")[0]) for r in find_reports(folder)]
    return pd.DataFrame(rows, columns=["file", "key", "first line"])


def witness(folder: Folder) -> list[str]:
    """One key for each report. Where it carries none, its content is its key, as for any reader."""
    return [r.key or hashlib.sha256(r.text.encode()).hexdigest()[:8] for r in find_reports(folder)]

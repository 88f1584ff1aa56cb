"""The verbs of a notebook: begin, run, start, wait_for, kill, look, end.

They act on the notebook that began last in this Python, and in its run folder. Each verb checks
what it needs first and says which cell to run. What they print is the same on every machine: no
process id, path or duration.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from labkit.errors import Fatal, LabkitError, NotFound, UsageError
from labkit.journal.bounded import LARGEST_LIST, read_text
from labkit.journal.fold import KINDS, RUN_KINDS
from labkit.journal.laws import HELD
from labkit.lab import checks, content, evidence, hints, progress
from labkit.lab.checks import Desk, Judgement
from labkit.lab.content import Exercise, Notebook
from labkit.lab.folder import Folder, fresh_folder, new_directory
from labkit.lab.listing import Listing
from labkit.lab.places import home, settle
from labkit.lab.predictions import Predictions
from labkit.lab.process import TIMEOUT_S, NotReady, Process, Result
from labkit.lab.shipped import is_as_shipped
from labkit.lab.trials import Trial, crash_and_resume

if TYPE_CHECKING:
    import pandas as pd

    from labkit.journal import Journal
    from labkit.journal.figure import Timeline

__all__ = [
    "begin",
    "check",
    "current_folder",
    "current_notebook",
    "end",
    "files",
    "fresh",
    "hint",
    "journal",
    "kill",
    "predict",
    "ps",
    "reports",
    "reveal",
    "run",
    "show_file",
    "start",
    "timeline",
    "trial",
    "wait_for",
    "witness",
]


LATEST = "latest"
COLUMNS = 80


class Closing(Protocol):
    """Runs until it is closed; a second `close` does nothing."""

    def close(self) -> object: ...


class OpenNotebook:
    """What one notebook has open: its folders, the processes in them, its predictions."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook
        self.runs = home() / "runs" / notebook.number
        self.root = new_directory(self.runs)
        self.folders: list[Folder] = []
        self.unprinted: dict[str, str] = {}  # for the processes of every folder, see Folder
        self.beside: dict[str, Closing] = {}  # what runs outside the folders, by name
        self.folder = self.open_folder("first")
        self.predictions = Predictions(notebook.number)
        self.hints_shown: Counter[str] = Counter()
        self.held: set[str] = set()  # exercises, since the notebook began
        _point(self.runs / LATEST, self.root.name)

    def open_folder(self, name: str) -> Folder:
        folder = fresh_folder(self.root, name, self.notebook.scenario)
        folder.unprinted = self.unprinted
        self.folders.append(folder)
        return folder

    @property
    def where(self) -> str:
        """The first folder, seen from the lab's home, so that it is the same on every machine."""
        return f"runs/{self.notebook.number}/{LATEST}/{self.folders[0].path.name}"

    def close(self) -> list[Process]:
        closed = [process for folder in self.folders for process in folder.close()]
        while self.beside:
            self.beside.popitem()[1].close()
        return closed


_open: list[OpenNotebook] = []  # at most one: a notebook has one kernel
_ended: list[OpenNotebook] = []  # the last one


def begin(number: str | int) -> None:
    """Makes a fresh run folder for the notebook and ends what an earlier `begin` left running.

    The folder it prints is in `.lab`, in the checkout, or in the folder `LABKIT_HOME`.
    """
    notebook = content.notebook(number)
    settle()
    _ended.clear()
    if _open:
        _open.pop().close()
    _open.append(OpenNotebook(notebook))
    _widen_tables()
    about = f": about {notebook.minutes} minutes." if notebook.minutes else "."
    print(f"Notebook {notebook.number}, {notebook.title}{about}")
    print(f"A fresh folder, {_open[-1].where}, holds {_plan_and_notes(_open[-1].folder)}.")
    print("No agent has run in it.")


def end() -> None:
    """Ends every process of this notebook and says what to open next."""
    current = _current()
    for process in current.close():
        print(f"Ended process {process.number} ({process.typed}), which was still running.")
    print("Nothing is left running.")
    if content.questions(current.notebook.number):
        print(current.predictions.summary())
    if asked := content.exercises(current.notebook.number):
        print(f"Exercises: {_count_held(current, asked)} of {len(asked)} held.")
    print(_what_next(current.notebook))
    _ended[:] = [_open.pop()]


def fresh(name: str) -> None:
    """Goes on in a new folder inside the run folder: same notes, same plan, no journal."""
    current = _current()
    if not name.replace("-", "").isalnum():
        raise UsageError(f"lab.fresh({name!r}): use letters, digits and hyphens")
    current.folder.close()
    current.folder = current.open_folder(name)
    print(f"A fresh folder, {name}: no journal, no report.")


def current_notebook() -> OpenNotebook:
    """The notebook that began last in this Python. Raises NotReady before `begin`."""
    return _current()


def current_folder() -> Folder:
    """The folder that the other verbs act on. Raises NotReady before `begin`."""
    return _current().folder


def run(command: str, **agent: str) -> Result:
    """Runs a command such as "agent run notes" to its end and prints it with its output.

    Keywords are AGENT_* variables, or LABKIT_CLOCK, for this one process. The result shows how it
    ended, in words. Raises NotReady after 30 s, with the process killed.
    """
    process = current_folder().start(command, agent)
    print(_as_typed(process.typed))
    return _with_output(process.finish())


def start(command: str, **agent: str) -> Process:
    """Starts a command and returns at once; `kill` ends it, and so does the end of this Python."""
    process = current_folder().start(command, agent)
    print(_as_typed(f"{process.typed} &"))
    return process


def wait_for(
    process: Process, kind: str, step_idx: int | None = None, timeout_s: float = TIMEOUT_S
) -> None:
    """Returns once the process has added an event of that kind (of that step) to the journal.

    Raises NotReady when it ends before that, or after `timeout_s`; UsageError for an unknown kind.
    """
    kinds = (*KINDS, *(kind for kind in RUN_KINDS if kind not in KINDS))
    if kind not in kinds:
        raise UsageError(f"no event is called {kind!r}; use one of {', '.join(kinds)}")
    _started(process).wait_for(kind, step_idx, timeout_s)
    of_step = "" if step_idx is None else f" of step {step_idx}"
    print(f"The journal holds {kind}{of_step}; process {process.number} is at work.")


def kill(process: Process) -> Result:
    """Ends a process by SIGKILL, which no program can catch. Raises NotReady if it has ended."""
    others = [other for other in current_folder().processes if other.alive]
    if _started(process).alive or not others:
        return _with_output(process.kill())
    # A second start, which was refused, took the name of the first, and nothing else has it.
    raise NotReady(
        f"process {process.number} has ended already ({process.state}), and process "
        f"{others[0].number} ({others[0].typed}) is still running; lab.ps() lists it, "
        f'lab.begin("{_current().notebook.number}") ends it'
    )


def ps() -> pd.DataFrame:
    """The processes started in this folder, in order, and how each one is."""
    import pandas as pd

    rows = [(p.number, p.typed, p.state) for p in current_folder().processes]
    return pd.DataFrame(rows, columns=["process", "command", "state"]).set_index("process")


def trial(crash_at: str | None, *, unsafe: bool = False) -> Trial:
    """Kills an agent at "point:idx" in a folder of its own, runs it again and judges it.

    `unsafe` takes the key from the effect, so that every write of the report is a plain append.
    Raises UsageError unless `crash_at` has that form; a point that does not exist kills nothing,
    and the trial says so.
    """
    if crash_at is not None and not re.fullmatch(r"[a-z_]+:[0-9]+", crash_at):
        raise UsageError(f"lab.trial({crash_at!r}): use POINT:IDX as in 'after_effect:2', or None")
    name = f"trial-{crash_at or 'no-crash'}{'-unsafe' if unsafe else ''}".replace(":", "-")
    return crash_and_resume(_current().open_folder(name), crash_at, unsafe=unsafe)


def journal() -> Journal:
    """The journal of this folder, read-only. Raises NotReady while there is none."""
    return evidence.journal(current_folder())


def timeline(task: str = "notes", by: str = "order") -> Timeline:
    """The journal of a task as a picture; `by` is "order" of events or "time".

    It says "killed" where this lab killed, since a journal cannot know.
    """
    return evidence.timeline(current_folder(), task, by)


def reports() -> pd.DataFrame:
    """The reports that a reader finds outside: one row each, with its key if it has one."""
    return evidence.reports(current_folder())


def witness() -> list[str]:
    """The effects as someone sees them who knows no journal: one key for each report."""
    return evidence.witness(current_folder())


def files() -> list[str]:
    """The files of this folder, without those that SQLite and the lock keep for themselves."""
    return evidence.files(current_folder())


def show_file(name: str) -> Listing:
    """A file of this folder, by its name inside it. Raises NotFound, BadInput for a large one."""
    folder = current_folder().path
    path = (folder / name).resolve()
    is_here = path.is_file() and path.is_relative_to(folder.resolve())
    try:
        text = read_text(path, LARGEST_LIST, "strict") if is_here else None
    except ValueError:
        raise UsageError(f"{name} is no text; lab.journal() reads a database") from None
    if text is None:
        raise NotFound(f"there is no file {name!r} in this folder; run the cell that makes it")
    return Listing(text, path.suffix.lstrip("."))


def predict(question_id: str, letter: str) -> None:
    """Records what you expect, before you see it. "?" goes on without an answer."""
    _current_or_ended().predictions.predict(question_id, letter)


def reveal(question_id: str, observed: object = None) -> None:
    """Puts your prediction beside the answer and says why; `observed` must be what it claims."""
    _current_or_ended().predictions.reveal(question_id, observed)


def check(exercise_id: str, answer: object) -> Judgement:
    """Judges an answer: held, broken or not judged; prints why, keeps it in the progress.

    Never raises; what stands in the way is a reason for *not judged*.
    """
    try:
        exercise = content.exercise(exercise_id)
        current = _of_this_notebook(exercise_id)
    except LabkitError as error:
        judgement = checks.not_judged(f"{error}.")
    else:
        before = len(current.folders)
        try:
            judgement = checks.judge(exercise, answer, Desk(exercise, current.open_folder))
        except KeyboardInterrupt:  # threads of the check may still wait for their agents
            for folder in current.folders[before:]:
                folder.close()
            raise
        _keep(current, exercise_id, judgement, answer)
    print(judgement.text(exercise_id))
    return judgement


def hint(exercise_id: str) -> None:
    """Prints the next of three hints; the last explains a solution and shows it."""
    exercise = content.exercise(exercise_id)
    shown = _of_this_notebook(exercise_id).hints_shown
    shown[exercise_id] += 1
    print(hints.hint(exercise, shown[exercise_id]))


def _of_this_notebook(exercise_id: str) -> OpenNotebook:
    current = _current_or_ended()
    if not exercise_id.startswith(f"{current.notebook.number}."):
        number = exercise_id.partition(".")[0]
        raise UsageError(
            f"{exercise_id} belongs to notebook {number} and {current.notebook.number} is open here"
        )
    return current


def _keep(current: OpenNotebook, exercise_id: str, judgement: Judgement, answer: object) -> None:
    if checks.is_unanswered(answer) or is_as_shipped(exercise_id, answer):
        return  # nobody has tried
    if judgement.verdict == HELD:
        current.held.add(exercise_id)
    try:
        progress.record_check(exercise_id, judgement.verdict, checks.as_text(answer))
    except (LabkitError, Fatal) as error:
        print(f"The verdict was not kept: {error}")


def _current() -> OpenNotebook:
    if not _open:
        raise NotReady('no notebook has begun here; run the first cell: lab.begin("...")')
    return _open[-1]


def _current_or_ended() -> OpenNotebook:
    """To the end and back is how people work: an exercise can be checked after `end` too."""
    return _ended[-1] if _ended and not _open else _current()


def _count_held(current: OpenNotebook, asked: list[Exercise]) -> int:
    """What held since `begin`, and what held before that, in a copy that was reset since."""
    try:
        kept = {each for each, entry in progress.checks().items() if entry.get("held")}
    except (LabkitError, Fatal):
        kept = set()
    return sum(each.id in current.held | kept for each in asked)


def _started(process: object) -> Process:
    if not isinstance(process, Process):
        raise UsageError(f"{process!r} is no process; give what lab.start returned")
    return process


def _as_typed(command: str) -> str:
    """As a terminal shows it; a long one goes on in the next line, as a shell allows."""
    line = f"$ {command}"
    settings = re.match(r"\$ (?:[A-Z_]+=(?:'[^']*'|\S*) )+", line)
    if len(line) <= COLUMNS or not settings:
        return line
    first = settings[0]
    if len(first) > COLUMNS:  # two places in words: a line for each setting
        first = "$ " + first[2:].replace(" AGENT_", " \\\n    AGENT_")
    return f"{first}\\\n    {line[settings.end() :]}"


def _plan_and_notes(folder: Folder) -> str:
    notes = [name for name in evidence.files(folder) if name.startswith("input/")]
    found = notes[0] if len(notes) == 1 else f"{len(notes)} files in input"
    return f"plan.json and {found}" if (folder.path / "plan.json").exists() else found


def _point(link: Path, name: str) -> None:
    """Makes or moves a symbolic link. Without one, as on a memory card, the lab works too."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}.tmp")
    with suppress(OSError):
        temporary.symlink_to(name)
        temporary.replace(link)


def _with_output(result: Result) -> Result:
    print(result.output, end="")
    return result


def _what_next(notebook: Notebook) -> str:
    order = content.notebooks()
    later = order[order.index(notebook) + 1 :]
    return f"Next: {later[0].file}" if later else "This was the last notebook."


def _widen_tables() -> None:
    """As wide as a notebook cell, so that a row of a journal stays on one line."""
    import pandas as pd

    pd.set_option("display.width", 120, "display.max_columns", 12, "display.max_colwidth", 80)
    pd.set_option("display.html.use_mathjax", False)  # text of a journal is no mathematics

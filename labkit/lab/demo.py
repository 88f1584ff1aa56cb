"""`labkit demo`: the whole point in one terminal screen, without a browser.

A real agent is killed between its last effect and the record of it, looked at, and run again.
Ids and times are fixed, so the demo prints the same on every machine; the kill is a real SIGKILL.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from labkit.database import open_readonly
from labkit.errors import UsageError
from labkit.journal.text import timeline_text
from labkit.lab.evidence import find_reports
from labkit.lab.folder import RUN_IDS, Folder, fresh_folder
from labkit.lab.process import Result

__all__ = ["main"]

TASK = "notes"
# The most dangerous of the nine places: the report is published and the journal does not know it.
CRASH_AT = "after_effect:2"
WIDTH = 56  # of the bars: with the name of the run and its end, a terminal of 80 columns


def main(argv: list[str]) -> int:
    """Run the demo in a temporary folder. Exit code 1 if anything is not as the agent promises."""
    if argv in (["-h"], ["--help"]):
        print("usage: labkit demo\n\nKills and resumes an agent in a temporary folder.")
        return 0
    if argv:
        raise UsageError(f"demo takes no argument, not {argv[0]!r}")
    for number in (signal.SIGTERM, signal.SIGHUP):  # a closed terminal leaves no folder behind
        if signal.getsignal(number) is signal.SIG_DFL:  # not under nohup
            signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="labkit-demo-") as parent:
        folder = fresh_folder(Path(parent), "demo")
        try:
            return 0 if _show(folder) else 1
        finally:
            folder.close()  # Ctrl-C comes this way too


def _show(folder: Folder) -> bool:
    """True when the agent was killed, resumed, and published one report."""
    print("A plan of three steps: fetch the notes, summarize them, publish a report.\n")
    created = _type(folder, f"create {TASK} plan.json")
    print("The agent will be killed after its last effect, before it can record it.\n")
    killed = _type(folder, f"run {TASK}", AGENT_CRASH_AT=CRASH_AT)
    _look(folder, "What survived")
    print("The same command again:\n")
    resumed = _type(folder, f"run {TASK}")
    _look(folder, "What there is now")
    kept = (created.code, killed.killed, resumed.code) == (0, True, 0) and _count(folder) == 1
    if kept:
        print(
            "Step 2 was tried twice, and the world has one report. The demo's folder is\n"
            "removed. `make lab` does the same in JupyterLab, where you can look closer."
        )
    else:
        print("This is not what the agent promises: a kill, then exit 0, and one report.")
    return kept


def _type(folder: Folder, command: str, **agent: str) -> Result:
    process = folder.start(f"agent {command}", agent)
    result = process.finish()
    print(f"$ {process.typed}\n{result.output}[{result!r}]\n")
    return result


def _look(folder: Folder, title: str) -> None:
    print(f"{title} (reports published: {_count(folder)}):\n")
    print(*_steps(folder), sep="\n")
    print(f"\n{timeline_text(str(folder.database), TASK, killed=RUN_IDS[:1], width=WIDTH)}\n")


def _steps(folder: Folder) -> Iterator[str]:
    database = open_readonly(str(folder.database))
    try:
        names = ("idx", "tool", "status", "attempts")
        rows = database.rows(f"SELECT {', '.join(names)} FROM steps ORDER BY idx")
        for row in (names, *rows):
            yield "  {:<5} {:<16} {:<9} {}".format(*row)
    finally:
        database.close()


def _count(folder: Folder) -> int:
    return len(find_reports(folder))

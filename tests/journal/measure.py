"""How long a million events and 100,000 bars take: `python -m tests.journal.measure`.

Medians of five, in seconds of one core (nothing here uses two). A figure, no test: a busy machine
would fail it.
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from labkit.database import connect
from labkit.journal import Journal, timeline
from labkit.journal.reading import EVENT_COLUMNS
from labkit.restart.store import SCHEMA

EVENTS = 1_000_000
BARS = 100_000


def rows(first: int, count: int, task: str, lanes: int) -> Iterator[tuple[Any, ...]]:
    """Steps that start and finish, shared by `lanes` runs."""
    made = f'{{"steps":{count // 2}}}'
    yield (first, 1e9, task, None, None, "task_created", None, None, None, made)
    for n in range(1, count):
        run = f"{n * lanes // count:08x}"
        kind = "step_started" if n % 2 else "step_finished"
        data = '{"tool":"noop","attempt":1}' if n % 2 else '{"tool":"noop"}'
        yield (first + n, 1e9 + n / 100, task, run, run, kind, (n - 1) // 2, "noop", 1, data)


def make(path: Path) -> None:
    connect(str(path), SCHEMA, create=True).close()
    insert = f"INSERT INTO events ({', '.join(EVENT_COLUMNS)}) VALUES ({', '.join('?' * 10)})"
    with sqlite3.connect(path) as database:
        few = 2 * BARS + 1
        database.executemany(insert, rows(1, EVENTS - few, "many", 1))
        database.executemany(insert, rows(EVENTS - few + 1, few, "few", 100))
    database.close()


def seconds(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(5):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "million.db"
        make(path)
        journal = Journal(path)
        figure = timeline(journal, "few")
        print(f"{EVENTS:,} events as a frame  {seconds(journal.events):6.2f} s")
        print(f"{BARS:,} bars drawn as PNG   {seconds(figure.png):6.2f} s")


if __name__ == "__main__":
    main()

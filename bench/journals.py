"""How long the journal tools take for a million events and for 100,000 bars, beside what the
libraries below them take for the same rows and the same rectangles.
"""

from __future__ import annotations

import gc
import io
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from labkit.database import connect
from labkit.journal import Journal, timeline
from labkit.journal.chart import read_chart
from labkit.journal.figure import draw
from labkit.journal.reading import EVENT_COLUMNS
from labkit.restart.store import SCHEMA

RUNS = 100
COLUMNS = ", ".join(EVENT_COLUMNS)
STARTED, FINISHED = '{"tool":"noop","attempt":1}', '{"tool":"noop"}'
FAILED = '{"tool":"noop","error":"no","permanent":true}'


def make_journal(path: Path, steps: int) -> Path:
    """A journal of one task, whose steps are shared by 100 runs; every tenth ends in an error."""
    connect(str(path), SCHEMA, create=True).close()
    with closing(sqlite3.connect(path)) as database, database:
        marks = ", ".join("?" * len(EVENT_COLUMNS))
        database.executemany(f"INSERT INTO events ({COLUMNS}) VALUES ({marks})", events(steps))
    return path


def events(steps: int) -> Iterator[tuple[Any, ...]]:
    made = f'{{"steps":{steps}}}'
    yield (1, 1e9, "t", None, None, "task_created", None, None, None, made)
    for idx in range(steps):
        run, seq, at = f"{idx * RUNS // steps:08x}", 2 * idx + 2, 1e9 + idx / 50
        end, data = ("step_error", FAILED) if idx % 10 == 9 else ("step_finished", FINISHED)
        yield (seq, at, "t", run, run, "step_started", idx, "noop", 1, STARTED)
        yield (seq + 1, at + 0.01, "t", run, run, end, idx, "noop", 1, data)


def time_events(path: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds from opening the file to the frame, and those of a bare `fetchall`, in turns."""

    def bare() -> None:
        with closing(sqlite3.connect(path)) as database:
            database.execute(f"SELECT {COLUMNS} FROM journal ORDER BY seq").fetchall()

    return in_turns(lambda: Journal(path).events(), bare, rounds)


def time_bars(path: Path, rounds: int) -> tuple[list[float], list[float], float]:
    """Seconds from a chart to a PNG, those of a bare PolyCollection of as many rectangles, and
    those of a whole `timeline` with the reading of the journal.
    """
    chart = read_chart(path, "t")
    ours, bare = in_turns(
        lambda: draw(chart).png(), lambda: bare_bars(len(chart.bars), RUNS), rounds
    )
    return ours, bare, seconds(lambda: timeline(path, "t").png())


def bare_bars(count: int, lanes: int) -> None:
    """Of one colour, as long as the shortest bar of a timeline."""
    figure = Figure(figsize=(9.6, 9.6), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xlim=(0, count), ylim=(-1, lanes))
    left, y = np.arange(count), np.arange(count) * lanes // count
    x_of_corners = left[:, None] + np.array([0, 0, 1, 1]) * count * 0.006
    y_of_corners = y[:, None] + np.array([-0.22, 0.22, 0.22, -0.22])
    corners: Any = np.stack([x_of_corners, y_of_corners], axis=2)
    axes.add_collection(PolyCollection(corners, linewidths=0), autolim=False)
    figure.savefig(io.BytesIO(), format="png")


def in_turns(
    one: Callable[[], object], other: Callable[[], object], rounds: int
) -> tuple[list[float], list[float]]:
    pairs = [(seconds(one), seconds(other)) for _ in range(rounds)]
    first, second = map(list, zip(*pairs, strict=True))
    return first, second


def seconds(work: Callable[[], object]) -> float:
    """Of a processor: nothing here waits or uses a second one, and other work bends it less."""
    gc.collect()  # nobody pays for what the one before left
    began = time.process_time()
    work()
    return time.process_time() - began


def compared(ours: list[float], bare: list[float], name: str) -> tuple[str, str]:
    """The best, and the bare seconds with the ratio of the medians: two cells of the table."""
    ratio = median(ours) / median(bare)
    return f"best {min(ours):.2g} s", f"{name} {median(bare):.2g} s: {ratio:.2f} x"

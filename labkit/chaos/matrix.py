"""The matrix case x mutant: which case sees which mistake, as table, text and picture.

A mutant is killed only if its unharmed run passes and the case named for it in advance says broken;
an error or an unknown is no kill. The first row is the right agent, over which all must be held.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from labkit.chaos.mutants import RIGHT, Mutant, plant, read_mutants
from labkit.chaos.mutants.cases import CASES
from labkit.chaos.mutants.durable_cases import DURABLE_CASES
from labkit.chaos.scenario import scratch
from labkit.chaos.suite import Agent, Bench, Case, select, try_case
from labkit.chaos.verdict import BROKEN, HELD, UNKNOWN, Verdict
from labkit.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from labkit.journal.figure import Timeline

__all__ = ["GATE", "SYSTEMS", "Matrix", "mutants_command", "run_matrix"]

SYSTEMS = {"restart": CASES, "durable": DURABLE_CASES}
GATE = CASES[0].name  # a mutant that does not even pass unharmed shows nothing
MARKS = {HELD: ".", BROKEN: "x", UNKNOWN: "?", "": " "}
NAMED = "X"
# The colours of the timelines. Each has its mark in it, so none is the only sign.
COLOURS = {HELD: "#0072B2", BROKEN: "#D55E00", UNKNOWN: "#CC79A7", "": "#f2f2f2"}
LETTERS = "abcdefghijklmnopqrstuvwxyz"

OnEnd = Callable[[str, Verdict], None]


class Matrix(NamedTuple):
    """A row for each mutant, the right agent first, a column for each case. A cell that was not
    tried is missing."""

    mutants: tuple[Mutant, ...]
    cases: tuple[Case, ...]
    cells: Mapping[tuple[str, str], Verdict]

    def outcome(self, mutant: str, case: str) -> str:
        """held, broken, unknown, or nothing for a cell that was not tried."""
        verdict = self.cells.get((mutant, case))
        return verdict.outcome if verdict else ""

    def killed(self, mutant: Mutant) -> bool:
        """By the case named for it, its unharmed run having passed."""
        return (
            self.outcome(mutant.name, GATE) == HELD
            and self.outcome(mutant.name, mutant.case) == BROKEN
        )

    def problems(self) -> list[str]:
        """All that is not as it was said in advance, and how to see it again."""
        return [problem for mutant in self.mutants for problem in self._problems_of(mutant)]

    def _problems_of(self, mutant: Mutant) -> Iterator[str]:
        mine = [verdict for (name, _), verdict in self.cells.items() if name == mutant.name]
        seen = {verdict.address: verdict for verdict in mine}
        if mutant.case and not self.killed(mutant):
            others = sorted(name for name, v in seen.items() if v.outcome == BROKEN)
            by = f"only by {', '.join(others)}" if others else "by nothing"
            yield f"{mutant.name} is not killed by {mutant.case!r}, named for it, but {by}"
        for name, verdict in seen.items():
            wanted = mutant.expects(name) or verdict.outcome
            if verdict.outcome != wanted:
                said = verdict.reason or "all held"
                yield f"{mutant.name}, {name}: {verdict.outcome}, not {wanted}: {said}"
                yield f"    {verdict.replay}"

    @property
    def exit_code(self) -> int:
        """0 if all is as it was said, 1 if not; 2 if nothing was tried, or only unknowns differ."""
        outcomes = {
            verdict.outcome
            for mutant in self.mutants
            for (name, case), verdict in self.cells.items()
            if name == mutant.name and mutant.expects(case) not in ("", verdict.outcome)
        }
        if not self.problems():
            return 0 if self.cells else 2
        return 2 if outcomes == {UNKNOWN} else 1

    def frame(self) -> pd.DataFrame:
        """The outcomes: a row for each mutant, a column for each case, empty where not tried."""
        import pandas as pd

        rows = [[self.outcome(m.name, c.name) for c in self.cases] for m in self.mutants]
        index = pd.Index([mutant.name for mutant in self.mutants], name="mutant")
        return pd.DataFrame(rows, index, [case.name for case in self.cases], dtype="string")

    def verdicts(self) -> pd.DataFrame:
        """A row for each cell: mutant, case, tier, outcome, named, reason, replay."""
        import pandas as pd

        named = {mutant.name: mutant.case for mutant in self.mutants}
        rows = [
            (name, case, v.how, v.outcome, case == named[name], v.reason, v.replay)
            for (name, case), v in self.cells.items()
        ]
        columns = ["mutant", "case", "tier", "outcome", "named", "reason", "replay"]
        return pd.DataFrame(rows, columns=columns)

    def text(self) -> str:
        """The matrix in letters: `X` broken by the case named in advance, `x` broken, `.` held."""
        wide = max(len(mutant.name) for mutant in self.mutants)
        letters = LETTERS[: len(self.cases)]
        lines = [f"{'':<{wide}}  {' '.join(letters)}"]
        for mutant in self.mutants:
            marks = " ".join(self._mark(mutant, case) for case in self.cases)
            lines.append(f"{mutant.name:<{wide}}  {marks}".rstrip())
        lines += ["", *self._legend(letters), "", self.summary()]
        return "\n".join(lines)

    def _mark(self, mutant: Mutant, case: Case) -> str:
        outcome = self.outcome(mutant.name, case.name)
        return NAMED if outcome == BROKEN and case.name == mutant.case else MARKS[outcome]

    def _legend(self, letters: str) -> Iterator[str]:
        names = [f"{letter} {c.name}" for letter, c in zip(letters, self.cases, strict=True)]
        for at in range(0, len(names), 3):
            yield "  ".join(f"{name:<22}" for name in names[at : at + 3]).rstrip()
        yield "X broken, as named in advance  x broken  . held  ? unknown  blank not tried"

    def summary(self) -> str:
        mutants = [mutant for mutant in self.mutants if mutant.case]
        killed = sum(self.killed(mutant) for mutant in mutants)
        unknown = sum(verdict.outcome == UNKNOWN for verdict in self.cells.values())
        of = f"{len(mutants)} mutant{'s' * (len(mutants) != 1)}"
        return (
            f"{of}, {killed} killed by the case named in advance; "
            f"{len(self.cells)} cells tried, {unknown} unknown"
        )

    def draw(self) -> Timeline:
        """The heat map. It is shown with its sentence as alternative text; `table` is its twin."""
        return _draw(self)


def run_matrix(
    mutants: Iterable[Mutant],
    cases: Iterable[Case] = CASES,
    *,
    only_named: bool = False,
    on_end: OnEnd | None = None,
    system: str = "restart",
) -> Matrix:
    """Tries each case over the right agent and over each mutant, on all cores.

    `only_named`: over a mutant only its unharmed run and the case named for it. Raises BadInput
    for a mutant whose old text is not in the agent once.
    """
    rows, columns = (RIGHT, *(m for m in mutants if m != RIGHT)), tuple(cases)
    return _try_cells(rows, columns, _plan(rows, columns, only_named), on_end, system)


def _plan(
    rows: Sequence[Mutant], columns: Sequence[Case], only_named: bool
) -> list[tuple[Mutant, Case]]:
    return [
        (mutant, case)
        for case in reversed(columns)  # the longest first: the cores then end together
        for mutant in rows
        if mutant == RIGHT or not only_named or case.name in (GATE, mutant.case)
    ]


def _try_cells(
    rows: Sequence[Mutant],
    columns: Sequence[Case],
    cells: Sequence[tuple[Mutant, Case]],
    on_end: OnEnd | None,
    system: str,
) -> Matrix:
    done: dict[tuple[str, str], Verdict] = {}
    with (
        tempfile.TemporaryDirectory(prefix="labkit-mutants-", dir=scratch()) as root,
        ThreadPoolExecutor(os.cpu_count() or 1) as pool,
    ):
        benches = _Benches(Path(root))

        def one(cell: tuple[Mutant, Case]) -> None:
            mutant, case = cell
            verdict = try_case(benches.of(mutant), case, replay_line(mutant, case, system))
            done[mutant.name, case.name] = verdict
            if on_end:
                on_end(mutant.name, verdict)

        list(pool.map(one, cells))
    order = [(m.name, c.name) for m in rows for c in columns if (m.name, c.name) in done]
    return Matrix(tuple(rows), tuple(columns), {key: done[key] for key in order})


class _Benches:
    """A bench for each mutant, planted when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self._root, self._benches, self._lock = root, dict[str, Bench](), threading.Lock()

    def of(self, mutant: Mutant) -> Bench:
        with self._lock:
            if mutant.name not in self._benches:
                root = self._root / mutant.name.replace(" ", "-")
                (root / "trials").mkdir(parents=True)
                agent = Agent(path=str(plant(mutant, root / "package")))
                bytecode = self._root / "bytecode"
                self._benches[mutant.name] = Bench(agent, root / "trials", bytecode)
            return self._benches[mutant.name]


def replay_line(mutant: Mutant, case: Case, system: str) -> str:
    of = f" --system {system}" if system != "restart" else ""
    return f"labkit chaos mutants{of} --only '{mutant.name}' --case '{case.name}'"


# The picture. matplotlib and pandas are imported where a picture is asked for.


def _draw(matrix: Matrix) -> Timeline:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from labkit.journal.figure import Timeline

    class HeatMap(Timeline):
        @property
        def summary(self) -> str:
            return _sentence(matrix)

        @property
        def table(self) -> pd.DataFrame:
            return matrix.frame()

    size = (max(5.6, 3.0 + 0.36 * len(matrix.cases)), 2.4 + 0.30 * len(matrix.mutants))
    figure = HeatMap(figsize=size, dpi=100, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes: Axes = figure.add_subplot()
    _paint(axes, matrix)
    axes.set_xlabel(
        "X: broken, as named in advance   x: broken   ·: held   ?: unknown", fontsize=9.5
    )
    return figure


def _sentence(matrix: Matrix) -> str:
    """What the picture shows, row by row, for who does not see it."""
    rows = []
    for mutant in matrix.mutants:
        tried = {c.name: matrix.outcome(mutant.name, c.name) for c in matrix.cases}
        broken = [name for name, outcome in tried.items() if outcome == BROKEN]
        unknown = sum(outcome == UNKNOWN for outcome in tried.values())
        words = f"broken in {', '.join(broken)}" if broken else "held in all"
        rows.append(f"{mutant.name} {words}" + (f", {unknown} unknown" if unknown else ""))
    return f"Heat map: {matrix.summary()}. {'; '.join(rows)}."


def _paint(axes: Axes, matrix: Matrix) -> None:
    from matplotlib.patches import Rectangle

    for y, mutant in enumerate(matrix.mutants):
        for x, case in enumerate(matrix.cases):
            colour = COLOURS[matrix.outcome(mutant.name, case.name)]
            axes.add_patch(Rectangle((x - 0.46, y - 0.45), 0.92, 0.9, facecolor=colour))
            mark = matrix._mark(mutant, case).replace(".", "·")
            bold = "bold" if mark == NAMED else "normal"
            axes.text(x, y, mark, ha="center", va="center", color="white", weight=bold, fontsize=11)
    axes.set_xlim(-0.5, len(matrix.cases) - 0.5)
    axes.set_ylim(len(matrix.mutants) - 0.5, -0.5)
    names = [case.name for case in matrix.cases]
    axes.set_xticks(range(len(names)), names, rotation=60, ha="left", fontsize=9.5)
    axes.set_yticks(range(len(matrix.mutants)), [m.name for m in matrix.mutants], fontsize=9.5)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


# The command.


def mutants_command(argv: Sequence[str]) -> int:
    """`labkit chaos mutants`: exits 0 if each mutant is killed by the case named for it and the
    right agent holds, 1 if not, 2 if that is unknown. With --case: 0 if the agents hold, 1 if one
    is broken, 2 if one is unknown, as for any other verdict."""
    given = _parse(argv)
    mutants, every = _select(read_mutants(given.system), given.only), SYSTEMS[given.system]
    cases = select(every, given.case)
    if given.list:
        print("\n".join(f"{m.name}: {m.wrong} ({m.case})" for m in mutants))
        return 0
    if given.case:
        return _replay(mutants, cases, given.system)
    if given.only and not given.all:
        cases = select(every, dict.fromkeys([GATE, *(m.case for m in mutants if m.case)]))
    with _progress(len(_plan([RIGHT, *mutants], cases, not given.all))) as on_end:
        matrix = run_matrix(
            mutants, cases, only_named=not given.all, on_end=on_end, system=given.system
        )
    print(matrix.text())
    print(*matrix.problems(), sep="\n", end="\n" if matrix.problems() else "")
    if given.figure:
        matrix.draw().save(given.figure)
    return matrix.exit_code


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "labkit chaos mutants", description="Agents broken on purpose: the suite must see each."
    )
    say = parser.add_argument
    say("--system", choices=list(SYSTEMS), default="restart", help="whose; the restart agent's")
    say("--only", action="append", default=[], metavar="NAME", help="only this mutant")
    say("--case", action="append", default=[], metavar="CASE", help="only this case, and its say")
    say("--all", action="store_true", help="every case over every mutant, not the named ones")
    say("--list", action="store_true", help="say what there is, try nothing")
    say("--figure", metavar="FILE", help="draw the heat map into a .png or .svg")
    return parser.parse_args(list(argv))


def _select(mutants: Sequence[Mutant], names: Collection[str]) -> list[Mutant]:
    """The mutants of these names, all without a name. The right agent has one too."""
    known = {mutant.name: mutant for mutant in (RIGHT, *mutants)}
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"no mutant {unknown[0]!r}; there are {', '.join(known)}")
    return [known[name] for name in names] or list(mutants)


def _replay(mutants: Sequence[Mutant], cases: Sequence[Case], system: str) -> int:
    """Says the verdict of each cell, and its reason."""
    cells = [(mutant, case) for mutant in mutants for case in cases]
    matrix = _try_cells(mutants, cases, cells, None, system)
    for (name, _), verdict in matrix.cells.items():
        print(f"{name}: {verdict}")
    outcomes = {verdict.outcome for verdict in matrix.cells.values()}
    return 1 if BROKEN in outcomes else 2 if UNKNOWN in outcomes else 0


@contextmanager
def _progress(cells: int) -> Iterator[OnEnd]:
    """A bar on a terminal, nothing elsewhere or without tqdm."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda name, verdict: None
        return
    with tqdm(total=cells, disable=not sys.stderr.isatty(), unit="cell") as bar:
        yield lambda name, verdict: bar.update() and None


if __name__ == "__main__":
    sys.exit(mutants_command(sys.argv[1:]))

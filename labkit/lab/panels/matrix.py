"""The crash matrix: an agent is killed at every place of its grid, and the cells fill in.

Each control is found by its CSS class, and by its description:

    .labkit-matrix         the panel           .labkit-agent     restart, durable (two buttons)
    .labkit-plan           Plan (a list)       .labkit-unsafe    Unsafe: ... (a check box)
    .labkit-run-all        Run all             .labkit-stop      Stop
    .labkit-room-switch    Room                .labkit-status    progress, then the summary
    .labkit-cells          the grid            .labkit-cell      one cell of it, a button
    .labkit-outcome        the chosen cell     .labkit-timeline  its timeline, with the kill
                           in words            .labkit-journal   its journal in an explorer
    .labkit-code           the last act

A cell has its place as a class too, as .labkit-at-after_effect-2 and .labkit-at-boundary-7, and
its place and its verdict as a title. Its text is "not tried", then the word of the verdict and
what is outside, a line each: "held", "1 report". By its word it is also of the class
.labkit-is-held, .labkit-is-waits, .labkit-is-broken, .labkit-is-unproved or .labkit-is-untried.
What belongs to the explorer, its own status and code too, is inside .labkit-journal.
"""

from __future__ import annotations

import threading
from typing import Any

from ipywidgets import HTML, Button, Checkbox, Dropdown, GridBox, ToggleButtons, VBox

from labkit.lab import cells
from labkit.lab.grid import AGENTS, Place
from labkit.lab.panels.explorer import Explorer
from labkit.lab.panels.parts import (
    AS_WIDE_AS_IT_IS,
    EXPECTED,
    Panel,
    button,
    inline,
    options,
    picture,
    row,
    within,
)
from labkit.lab.process import NotReady

__all__ = ["Matrix"]

SENTENCE = "The crash matrix: an agent is killed at every place, and each cell says what held."
# Of the column of names, and of the others; the grid scrolls where they are too many.
NAMES, WIDTH = "fit-content(15em)", "minmax(6.8em, 1fr)"
BELOW = "Below: its timeline, then its journal in the explorer."
KINDS = ("held", "waits", "broken", "unproved", "untried")


class Matrix(Panel):
    """A button for each place; Run all kills an agent at each. Shown as the last line of a cell.

    `agent` is "restart" or "durable", `plan` one of `cells.plans(agent)`, the first by default.
    Raises NotReady before `lab.begin`, UsageError for what is not there.
    """

    def __init__(self, agent: str = "restart", plan: str = "") -> None:
        places = cells.grid(agent, plan)
        super().__init__("matrix", SENTENCE)
        self.sweep: cells.Sweep | None = None
        self.chosen: cells.Outcome | None = None
        self.explorer: Explorer | None = None
        self._used = agent, plan or cells.plans(agent)[0], False
        self._refused, self._is_filling = "", False
        # Not `alone`: whoever closes need not wait a second for a click that looks for places.
        self._starting, self._may_start = threading.Lock(), True
        self._make_controls()
        self._make_views()
        self._fill_controls()
        self._listen()
        self._show_grid(places)

    # Widgets.

    def _make_controls(self) -> None:
        self.agent = ToggleButtons(
            options=list(AGENTS), description="Agent",
            style={"button_width": "auto", **AS_WIDE_AS_IT_IS},
        ).add_class("labkit-agent")  # fmt: skip
        self.plan = Dropdown(
            description="Plan", style=AS_WIDE_AS_IT_IS, layout={"width": "auto"}
        ).add_class("labkit-plan")
        self.unsafe = Checkbox(indent=False, layout={"width": "auto"}).add_class("labkit-unsafe")
        self.run_all = button("Run all", "Kills an agent at every place", "labkit-run-all")
        self.stop = button("Stop", "Ends the trials that run", "labkit-stop")
        self.stop.disabled = True

    def _make_views(self) -> None:
        self.grid = GridBox().add_class("labkit-cells")
        self.outcome = HTML().add_class("labkit-outcome")
        self.timeline = HTML().add_class("labkit-timeline")
        self.journal = VBox().add_class("labkit-journal")
        controls = row(
            self.agent, self.plan, self.run_all, self.stop, self.unsafe, self.room
        ).add_class("labkit-top")
        self.fill(
            HTML(_CSS),
            controls,
            self.status,
            self.grid,
            self.outcome,
            self.timeline,
            self.code,
            self.journal,
        )
        # What `fill` adds at the end stands above already.
        self.root.children = tuple(dict.fromkeys(self.root.children))

    def _listen(self) -> None:
        self.on(self.agent, lambda name: self._use(name, "", False))
        self.on(self.plan, lambda name: self._use(self.agent.value, name, self.unsafe.value))
        self.on(self.unsafe, lambda is_on: self._use(self.agent.value, self.plan.value, is_on))
        self.on(self.run_all, self.run)
        self.on(self.stop, self.end)

    # What a control does.

    def run(self) -> None:
        """Kills an agent at every place. Raises NotReady while trials are at work."""
        if self.is_closed:  # a click that was under way
            return
        self._refuse_at_work("Run all")
        agent, plan, unsafe = self._used
        places = cells.grid(agent, plan, unsafe=unsafe)
        with self._starting:
            if not self._may_start:  # closed while the places were looked for
                return
            self._show_grid(places)
            self.sweep = cells.Sweep(agent, plan, unsafe=unsafe, places=places)
        self.show_code(self.sweep.code)
        self._enable()
        self.say(self.sweep.words)
        self.watch()

    def _refuse_at_work(self, what: str) -> None:
        if self.sweep and not self.sweep.is_over:
            self._refused = f" {what} was refused: these trials are at work; press Stop, or wait."
            raise NotReady(self._refused.strip())

    def end(self) -> None:
        """Ends the trials that run; what has ended stays."""
        if self.sweep:
            self.sweep.stop()
            self.look()

    def _use(self, agent: str, plan: str, unsafe: bool) -> None:
        if self._is_filling or self.is_closed:
            return
        try:
            self._refuse_at_work("The change")  # a click from before the controls were grey
            self._show_grid(cells.grid(agent, plan, unsafe=unsafe))
            self._used = agent, plan or cells.plans(agent)[0], unsafe
            self.code.value = ""  # it was of another agent
        finally:  # what cannot be had is not chosen
            self._fill_controls()

    def _fill_controls(self) -> None:
        agent, plan, unsafe = self._used
        self._is_filling = True
        try:
            self.agent.value, self.unsafe.value = agent, unsafe
            known = cells.plans(agent)
            every = known if plan in known else [plan, *known]  # its file may be gone
            self.plan.options = options((name, name) for name in every)
            self.plan.value = plan
            self.unsafe.description = f"Unsafe: {cells.UNSAFE[agent]}"
        finally:
            self._is_filling = False

    def choose(self, number: int) -> None:
        """Opens the journal of a cell. Raises NotReady where it was not tried."""
        found = [each for each in self._outcomes if each.number == number]
        if not found:
            raise NotReady("this place was not tried; press Run all, or wait for it")
        self.chosen = found[0]
        for cell in self.cells:
            cell.remove_class("labkit-is-chosen")
        self.cells[number].add_class("labkit-is-chosen")
        self.outcome.value = f"<p>{inline(self.chosen, 500)}. {BELOW}</p>"
        self.redraw()

    def redraw(self) -> None:
        if self.chosen:
            drawn = self.chosen.timeline(self.style)
            self.timeline.value = picture(drawn.small_png(), drawn.summary)
            self._open(self.chosen)

    def _open(self, outcome: cells.Outcome) -> None:
        """Its journal, in the explorer: that one knows of no kill, so the timeline stands above."""
        if self.explorer is None or self.explorer.is_closed:
            with within():
                self.explorer = Explorer()
            self.explorer.room.layout.display = "none"  # it follows the switch of this panel
        self.journal.children = (self.explorer.root,)
        self.explorer.attempt(self.explorer.open, str(outcome.folder.database))
        self.explorer.choices.witness.value = str(outcome.witness)
        self.explorer.room.value = self.room.value

    # What is shown.

    @property
    def _outcomes(self) -> list[cells.Outcome]:
        return self.sweep.outcomes if self.sweep else []

    def look(self) -> bool:
        """Shows what has ended; False when no trial is at work any more."""
        sweep = self.sweep
        if sweep is None or sweep.is_over:
            return False
        try:
            ended = sweep.take()
        except EXPECTED as error:
            sweep.close()
            self.fail(error)
        else:
            self._show(sweep, ended)
        if sweep.is_over:
            sweep.close()
            self._enable()
        return not sweep.is_over

    def _show(self, sweep: cells.Sweep, ended: list[cells.Outcome]) -> None:
        for outcome in ended:
            _show_outcome(self.cells[outcome.number], outcome)
        if ended or sweep.is_over:
            self._refused = "" if sweep.is_over else self._refused
            self.say(sweep.words + self._refused)

    def _show_grid(self, places: list[Place]) -> None:
        rows = list(dict.fromkeys(place.row for place in places))
        columns = list(dict.fromkeys(place.column for place in places))
        self.cells = [_cell(place) for place in places]
        for number, cell in enumerate(self.cells):
            self.on(cell, lambda number=number: self.choose(number))
        found = {place[:2]: cell for place, cell in zip(places, self.cells, strict=True)}
        children: list[Any] = [HTML(), *(_heading(name, "column") for name in columns)]
        for name in rows:
            children.append(_heading(name, "row"))
            children += [found.get((name, column)) or HTML() for column in columns]
        for old in self.grid.children:
            old.close()
        self.grid.layout.grid_template_columns = f"{NAMES} repeat({len(columns)}, {WIDTH})"
        self.grid.children = children
        self.sweep = self.chosen = None
        self.outcome.value = self.timeline.value = ""
        self.journal.children = ()
        self.say(f"{len(places)} places, none of them tried.")

    def _enable(self) -> None:
        is_at_work = self.sweep is not None and not self.sweep.is_over
        for control in (self.agent, self.plan, self.unsafe):
            control.disabled = is_at_work
        self.stop.disabled = not is_at_work

    def close(self) -> None:
        """Ends the trials, and takes the widgets away. None begins from then on."""
        with self._starting:
            self._may_start = False
        if self.sweep:
            self.sweep.close()
        if self.explorer:
            self.explorer.close()
        super().close()


def _heading(text: str, of: str) -> HTML:
    """Of a row or a column. A step's name is broken at its dots, if it must be."""
    parts = (f"<span>{inline(part)}</span>" for part in text.replace(".", ".\n").split("\n"))
    return HTML("<wbr>".join(parts)).add_class(f"labkit-{of}")


def _cell(place: Place) -> Button:
    made = button("not tried", f"{place.row}, {place.column}: not tried", "labkit-cell")
    made.add_class(f"labkit-at-{place.at}".replace(":", "-")).add_class("labkit-is-untried")
    return made


def _show_outcome(cell: Button, outcome: cells.Outcome) -> None:
    cell.description = "\n".join(outcome.lines)
    cell.tooltip = repr(outcome)
    for kind in KINDS:
        cell.remove_class(f"labkit-is-{kind}")
    cell.add_class(f"labkit-is-{outcome.kind}")


# The colours of the timelines, each with letters that stand out on it; the word says the same.
_CSS = """<style>
.labkit-matrix .labkit-agent { display: flex; align-items: center; gap: 6px; }
.labkit-matrix .labkit-cells { grid-gap: 3px; align-items: stretch; overflow: auto; }
.labkit-matrix .labkit-cells > .widget-html { margin: 0; align-self: center; }
.labkit-matrix .labkit-column { text-align: center; }
.labkit-matrix .labkit-column span { white-space: nowrap; }
.labkit-matrix .labkit-cell { white-space: pre-line; height: auto; min-height: 2.9em; margin: 0;
  line-height: 1.3; padding: 1px 2px; font-size: var(--jp-widgets-font-size); overflow: visible;
  border: 2px solid transparent; }
.labkit-room.labkit-matrix .labkit-cells { grid-gap: 2px; }
.labkit-room.labkit-matrix .labkit-cells, .labkit-room.labkit-matrix .labkit-top {
  --jp-widgets-font-size: 17px; }
.labkit-room.labkit-matrix .labkit-cell { min-height: 2.3em; line-height: 1.1; padding: 0 2px; }
.labkit-room.labkit-matrix .labkit-cells .widget-html-content { line-height: 1.1; }
.labkit-matrix .labkit-is-untried { color: var(--jp-ui-font-color1);
  background: var(--jp-layout-color2); border: 2px dashed var(--jp-border-color1); }
.labkit-matrix .labkit-is-held { color: white; background: #0072B2; }
.labkit-matrix .labkit-is-waits { color: black; background: #009E73; }
.labkit-matrix .labkit-is-broken { color: black; background: #D55E00;
  border: 2px dashed black; }
.labkit-matrix .labkit-is-unproved { color: black; background: #CC79A7; }
.labkit-matrix .labkit-cell.labkit-is-chosen { outline: 3px solid var(--jp-ui-font-color1);
  outline-offset: -2px; }
</style>"""

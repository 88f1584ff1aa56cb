"""The instructor's panel: an agent before a room, killed by one click; what survives is seen.

Each control is found by its CSS class, and by its description:

    .labkit-instructor      the panel          .labkit-agent     restart, durable (two buttons)
    .labkit-plan            Plan (a list)      .labkit-place     a place of the grid: its text is
    .labkit-create          Create                               what AGENT_CRASH_AT takes, as
    .labkit-run             Run                                  "after_effect:2"; and "now", and
    .labkit-kill            Kill                                 "nowhere"
    .labkit-resume          Resume             .labkit-answers   which answer (a list)
    .labkit-reset           Reset              .labkit-answer    Answer
    .labkit-predict         Predict            .labkit-vote      votes for the answer that it names
    .labkit-reveal          Reveal             .labkit-result    the votes beside the outcome
    .labkit-room-switch     Room               .labkit-pages     Journal, Artifacts, What changed,
    .labkit-status          how it stands                        Code (four buttons)
    .labkit-chosen          where Run dies     .labkit-effects   what left the agent, in words
    .labkit-timeline        the picture        .labkit-tail, .labkit-artifacts, .labkit-changes,
    .labkit-code            the last act       .labkit-script    what the four pages show
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ipywidgets import (
    HTML,
    BoundedIntText,
    Dropdown,
    GridBox,
    HBox,
    ToggleButton,
    ToggleButtons,
    VBox,
)

from labkit.errors import UnknownTask
from labkit.lab.grid import AGENTS, NOW, Place
from labkit.lab.panels.parts import (
    AS_WIDE_AS_IT_IS,
    Panel,
    Tabs,
    block,
    button,
    inline,
    options,
    picture,
    row,
    table,
)
from labkit.lab.process import NotReady
from labkit.lab.stage import NOWHERE, Done, Mark, Stage
from labkit.lab.votes import NO, OUTCOMES, Ballot

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Instructor"]

SENTENCE = "The instructor's panel: create, run, kill and resume an agent, and see what survives."
HIDDEN = "<p>Hidden until the room has voted.</p>"
NOTHING = "<p>Nothing yet.</p>"
ELSEWHERE = {NOW: "now", NOWHERE: "nowhere"}
TOOLTIPS = {
    "create": "Stores the task or the run; nothing of it is done",
    "run": "Starts a process, which dies at the chosen place",
    "kill": "SIGKILL, now",
    "resume": "Starts a process that nothing kills; of what is over it does nothing again",
    "answer": "Resolves the run that waits",
    "reset": "Ends what runs; a fresh folder, no journal",
}


class Instructor(Panel):
    """An agent, its acts, and what they leave, for a room. Shown as the last line of a cell.

    `agent` is "restart" or "durable", `plan` one of its plans in the folder of the notebook. Raises
    NotReady before `lab.begin`, UsageError for what is not there.
    """

    steps = 10_000_000  # what a plan leaves takes a thousandth, and the room waits

    def __init__(self, agent: str = "restart", plan: str = "") -> None:
        self.stage = Stage(agent, plan)
        self.ballot = Ballot()
        super().__init__("instructor", SENTENCE)
        self._seen: Mark | None = None
        self._is_filling = False
        self._told = 0  # acts, before those whose outcome the room is to guess
        self._make_choices()
        self._make_acts()
        self._make_views()
        self._arrange()
        self._listen()
        self.attempt(self._show_choices)

    # Widgets.

    def _make_choices(self) -> None:
        self.agent = ToggleButtons(
            options=list(AGENTS), value=self.stage.agent.name, description="Agent",
            tooltip="Which of the two systems",
            style={"button_width": "auto", **AS_WIDE_AS_IT_IS},
        ).add_class("labkit-agent")  # fmt: skip
        self.plan = Dropdown(
            description="Plan", style=AS_WIDE_AS_IT_IS, layout={"width": "auto"}
        ).add_class("labkit-plan")
        self.places = Places()
        self.predict = ToggleButton(
            description="Predict", tooltip="Hides the outcome until the room has voted",
            layout={"width": "auto"},
        ).add_class("labkit-predict")  # fmt: skip

    def _make_acts(self) -> None:
        self.buttons = {
            act: button(act.capitalize(), tooltip, f"labkit-{act}")
            for act, tooltip in TOOLTIPS.items()
        }
        self.answers = Dropdown(
            description="with", style=AS_WIDE_AS_IT_IS, layout={"width": "auto"},
            tooltip="Which answer the run gets",
        ).add_class("labkit-answers")  # fmt: skip

    def _make_views(self) -> None:
        self.effects, self.timeline, self.result = (
            HTML().add_class(f"labkit-{name}") for name in ("effects", "timeline", "result")
        )
        self.votes = row()
        self.reveal = button("Reveal", "Shows what came, beside the votes", "labkit-reveal")
        self.pages = {
            "Journal": HTML().add_class("labkit-tail"),
            "Artifacts": HTML().add_class("labkit-artifacts"),
            "What changed": HTML().add_class("labkit-changes"),
            "Code": HTML().add_class("labkit-script"),
        }
        self.tabs = Tabs("Show", self.pages, "labkit-pages")

    def _arrange(self) -> None:
        acts = [self.buttons[act] for act in ("create", "run", "kill", "resume", "reset")]
        top = row(
            self.agent, self.plan, self.predict, self.room, *acts,
            HBox([self.buttons["answer"], self.answers]),
        )  # fmt: skip
        seen = VBox([row(self.effects, self.result), self.timeline]).add_class("labkit-seen")
        between = HBox([self.places.root, seen]).add_class("labkit-middle")
        asked = row(self.votes, self.reveal).add_class("labkit-asked")
        self.fill(HTML(_CSS), top, self.status, self.code, asked, between, self.tabs.root)
        # What `fill` puts last stands above here: on one screen, before the room looks elsewhere.
        self.root.children = self.root.children[:-2]

    def _listen(self) -> None:
        acts: dict[str, Callable[[], Done]] = {
            "create": self.stage.create,
            "run": lambda: self.stage.run(self.places.at),
            "kill": self.stage.kill,
            "resume": self.stage.resume,
            "answer": lambda: self.stage.answer(self.answers.value),
            "reset": self.stage.reset,
        }
        for name, act in acts.items():
            self.on(self.buttons[name], lambda name=name, act=act: self._act(name, act))
        self.on(self.agent, lambda name: self._use(name, ""))
        self.on(self.plan, lambda name: self._use(self.stage.agent.name, name))
        self.on(self.predict, self._turn)
        self.on(self.reveal, self._reveal)
        self.on(self.tabs.buttons, lambda _: self.tabs.turn())

    # What a control does.

    def _act(self, name: str, act: Callable[[], Done]) -> None:
        if self.is_closed:  # a click that was under way
            return
        try:
            plan, is_guessed = self.stage.plan, self._is_guessed(name)
            done = act()
            self.result.value = ""  # of the act before
            if is_guessed:
                self._told = self._told if self.ballot.is_open else len(self.stage.acts)
                self.ballot.open()
            if name == "reset":
                self._forget(is_other_plan=self.stage.plan != plan)
            self._show_last(done)
        finally:  # an error takes the place of the words, and everything else is as it is
            self.watch()
            self.refresh()

    def _is_guessed(self, act: str) -> bool:
        """Whether the room is asked what comes of it. An answer is given in the open, by somebody
        who has looked; hands that were counted before it are a guess all the same."""
        has_hands = any(box.value for box in self.votes.children)
        return self.stage.brings_news(act) and (act != "answer" or has_hands)

    def _forget(self, *, is_other_plan: bool) -> None:
        """After a reset. The grid stays, if it is there and that of the plan."""
        self.ballot.close()
        self._clear_votes()
        self.answers.index = 0
        if is_other_plan or not self.places.grid.children:
            self._show_choices()

    def _clear_votes(self) -> None:
        for box in self.votes.children:
            box.value = 0

    def _use(self, agent: str, plan: str) -> None:
        if self._is_filling or self.is_closed:
            return
        done = None
        try:
            done = self.stage.use(agent, plan)
            self.ballot.close()
            self.result.value = ""
        finally:
            self._show_choices()
        if done:
            self._show_last(done)
            self.say(" ".join([f"{agent}, {self.stage.plan}.", *done.said.splitlines()]))

    def _turn(self, is_on: bool) -> None:
        self.ballot.turn(is_on, is_at_work=self.stage.is_at_work)
        self._told = len(self.stage.acts)
        self.result.value = ""
        self.refresh()

    def _reveal(self) -> None:
        votes = {box.description: box.value for box in self.votes.children}
        came = self.ballot.reveal(votes, self.stage.outcome())
        self.result.value = f"The room: {' · '.join(map(_counted, came.itertuples()))}"
        self._clear_votes()
        self.refresh()

    # What is shown.

    def look(self) -> bool:
        """Notices what is new; False when nothing is at work any more, and nothing locked."""
        if self.is_closed:
            return False
        is_at_work = self.stage.is_at_work  # before the look: what came last is still shown
        self.attempt(self._look)
        return is_at_work or self.stage.is_locked

    def _look(self) -> None:
        self.stage.ended()
        if self.stage.mark != self._seen:
            self.refresh()

    def refresh(self) -> None:
        """Shows how it stands now. The picture comes first: the room waits for it. While the
        database is locked, what was shown stays: to read it would take ten seconds."""
        with self.stage.held():
            self._show()

    def _show(self) -> None:
        mark = self.stage.mark  # first: a process may end meanwhile, and `look` must notice
        is_hidden = self.ballot.hides(self.stage.has_started)
        is_shown = is_hidden or not self.stage.is_locked
        if is_shown:
            self._draw(is_hidden)
        self._enable(is_hidden)
        self.say(self.stage.words_unseen if is_hidden else self.stage.words)
        if is_shown:
            self._fill_pages(is_hidden)
        self._seen = mark

    @property
    def style(self) -> str:
        """Of the timeline: beside the grid, or above it, as wide as a projector shows it."""
        return "room panel" if self.room.value else "panel"

    def redraw(self) -> None:
        self.refresh()

    def _enable(self, is_hidden: bool) -> None:
        possible = self.stage.possible_unseen if is_hidden else self.stage.possible
        for act, control in self.buttons.items():
            control.disabled = act not in possible
        self.answers.disabled = "answer" not in possible
        self.reveal.disabled = not is_hidden or self.stage.is_at_work
        has_answers, ballot = bool(self.stage.answers), self.ballot
        _show(has_answers, self.buttons["answer"], self.answers)
        _show(ballot.is_on, self.votes, self.reveal)
        _show(ballot.is_on and not ballot.is_open, self.result)

    def _draw(self, is_hidden: bool) -> None:
        if is_hidden:
            self.effects.value, self.timeline.value = HIDDEN, ""
            return
        self.effects.value = f"Left outside: <b>{inline(self.stage.effects())}</b>"
        try:
            drawn = self.stage.timeline(self.style)
        except (NotReady, UnknownTask):
            self.timeline.value = "<p>There is no timeline yet: nothing is stored.</p>"
        else:
            self.timeline.value = picture(drawn.png(), drawn.summary)

    def _fill_pages(self, is_hidden: bool) -> None:
        code = self.stage.code_of(self._told if is_hidden else None)
        self.pages["Code"].value = block(code, "code of every act so far")
        if is_hidden:
            for name in ("Journal", "Artifacts", "What changed"):
                self.pages[name].value = HIDDEN
            return
        self.pages["Artifacts"].value = _table(self.stage.artifacts(), "artifacts")
        self.pages["What changed"].value = self._changes()
        try:
            self.pages["Journal"].value = _table(self.stage.tail(), "journal, latest first")
        except NotReady:
            self.pages["Journal"].value = NOTHING

    def _changes(self) -> str:
        found = self.stage.changes()
        shown = (
            block(each.sql, f"query of {each.table}")
            + _table(each.rows, f"changes of {each.table}")
            for each in found
        )
        return "".join(shown) or NOTHING

    def _show_last(self, done: Done) -> None:
        self.code.value = f"<code>{inline(done.code.splitlines()[-1])}</code>"

    def _show_choices(self) -> None:
        """How it stands, and the controls that differ by agent and plan. The grid comes last: a
        plan may be one that no agent takes, and that stays in the status."""
        self.code.value = ""
        self._refill()
        self.refresh()
        self.places.fill([])
        self.places.fill(self.stage.places)

    def _refill(self) -> None:
        stage, self._is_filling = self.stage, True
        try:
            self.agent.value = stage.agent.name
            plans = stage.plans or [stage.plan]  # their folder may be gone
            self.plan.options = options((plan, plan) for plan in plans)
            self.plan.value = stage.plan
            # None is chosen before somebody chooses: one of them sends the message again.
            self.answers.options = [("choose", ""), *((a, a) for a in stage.answers)]
            self.answers.value = ""
        finally:
            self._is_filling = False
        self.votes.children = [_vote(answer) for answer in OUTCOMES[stage.agent.name]]

    def close(self) -> None:
        """Kills what runs, and takes the widgets away."""
        self.stage.close()
        super().close()


class Places:
    """The grid: a line for each step, a button for each place to die in it; one is pressed."""

    def __init__(self) -> None:
        self.at = NOW
        self.chosen = HTML().add_class("labkit-chosen")
        self.grid = GridBox().add_class("labkit-grid")
        others = [self._button(at, name) for at, name in ELSEWHERE.items()]
        self.others = row(*others, self.chosen)
        self.root = VBox([self.grid, self.others]).add_class("labkit-places")
        self._press(NOW)

    def fill(self, places: list[Place]) -> None:
        """Shows these places; of the one that was pressed nothing is kept."""
        points = list(dict.fromkeys(place.row for place in places))
        steps = list(dict.fromkeys(place.column for place in places))
        found = {(place.row, place.column): place for place in places}
        cells: list[Any] = [*([HTML()] if points else []), *(_heading(point) for point in points)]
        for step in steps:
            cells.append(_heading(step))
            cells += [self._button_of(found[point, step]) for point in points]
        self.grid.layout.grid_template_columns = "auto " * (len(points) + 1)
        self.grid.children = cells
        self._press(NOW)

    def _button_of(self, place: Place) -> ToggleButton:
        return self._button(place.at, place.at, f"Run dies at {place.column}, {place.row}")

    def _button(self, at: str, name: str, tooltip: str = "") -> ToggleButton:
        made = ToggleButton(description=name, tooltip=tooltip, layout={"width": "auto"})
        made.at = at
        made.observe(lambda change: self._turned(at, change["new"]), "value")
        return made.add_class("labkit-place")

    def _turned(self, at: str, is_pressed: bool) -> None:
        if is_pressed or at == self.at:  # a second press lets none be without a place
            self._press(at)

    def _press(self, at: str) -> None:
        self.at = at
        for each in (*self.grid.children, *self.others.children):
            if isinstance(each, ToggleButton):
                each.value = each.at == at
        self.chosen.value = _in_words(at)


def _in_words(at: str) -> str:
    if at == NOW:
        return "The next Run works slowly, until you press Kill."
    how = f"killed at <b>{inline(at)}</b>" if at else "not killed"
    return f"The next Run is {how}."


def _heading(text: str) -> HTML:
    return HTML(inline(text)).add_class("labkit-heading")


def _vote(answer: str) -> BoundedIntText:
    made = BoundedIntText(
        description=answer, min=0, max=9999, style=AS_WIDE_AS_IT_IS, layout={"width": "auto"}
    )
    return made.add_class("labkit-vote")


def _counted(answer: Any) -> str:
    """One row of the votes: in a line, since the picture below is to stay on the screen."""
    words = f"{inline(answer.Index)}: {answer.votes}"
    return words if answer.outcome == NO else f"<b>{words}, {answer.outcome}</b>"


def _table(rows: pd.DataFrame, label: str) -> str:
    return table(list(rows.columns), rows.itertuples(index=False), label)


def _show(is_shown: bool, *widgets: Any) -> None:
    for widget in widgets:
        widget.layout.display = "" if is_shown else "none"


# Side by side where there is room for both; on a projector the picture is first, and as wide as can
# be. Its box keeps its height, so that nothing below jumps when a second lane comes.
_CSS = """<style>
.labkit-instructor .widget-toggle-buttons { display: flex; align-items: center; gap: 6px; }
.labkit-instructor .labkit-middle { flex-flow: row wrap; align-items: flex-start; gap: 0 12px; }
.labkit-instructor .labkit-places { flex: 0 0 auto; }
.labkit-instructor .labkit-seen { flex: 1 1 560px; min-width: 0; min-height: 236px; }
.labkit-instructor .labkit-plan { margin-left: 10px; }
.labkit-instructor .labkit-create { margin-left: 14px; }
.labkit-instructor .labkit-vote { margin-right: 8px; }
.labkit-instructor .labkit-vote input { flex: none; width: 3.8em; padding-right: 0; }
.labkit-room.labkit-instructor .labkit-asked, .labkit-room.labkit-instructor .labkit-result {
  --jp-widgets-font-size: 16px; }
.labkit-instructor .labkit-effects { margin-right: 14px; }
.labkit-instructor .labkit-grid { grid-gap: 0 2px; align-items: center; width: max-content;
  max-height: 275px; overflow: auto; }
.labkit-instructor .labkit-heading { max-width: 9.5em; line-height: 1.2; }
.labkit-instructor .labkit-heading .widget-html-content { line-height: 1.2; white-space: normal; }
.labkit-instructor .labkit-place.mod-active { font-weight: 700;
  outline: 2px solid var(--jp-ui-font-color1); outline-offset: -3px; }
.labkit-instructor .labkit-table, .labkit-instructor pre.labkit-block { max-height: 150px; }
.labkit-instructor .labkit-changes { max-height: 190px; overflow: auto; }
.labkit-instructor .labkit-changes .labkit-table { max-height: none; }
.labkit-instructor .labkit-script pre { user-select: all; }
.labkit-room.labkit-instructor { --jp-widgets-inline-height: 34px; }
.labkit-room.labkit-instructor .widget-html-content { line-height: 1.25; }
.labkit-room.labkit-instructor .labkit-status { min-height: 1.25em; }
.labkit-room.labkit-instructor .labkit-middle { flex-flow: column-reverse; }
.labkit-room.labkit-instructor .labkit-seen { flex: 0 0 auto; width: 100%; min-height: 254px; }
.labkit-room.labkit-instructor .labkit-places { flex-flow: row wrap; align-items: flex-end; }
.labkit-room.labkit-instructor .labkit-grid { max-height: 130px; --jp-widgets-font-size: 15px;
  --jp-widgets-inline-height: 23px; }
.labkit-room.labkit-instructor .labkit-table, .labkit-room.labkit-instructor pre.labkit-block {
  max-height: 260px; }
.labkit-room.labkit-instructor .labkit-changes { max-height: 320px; }
</style>"""

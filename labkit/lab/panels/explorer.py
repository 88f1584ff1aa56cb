"""The journal explorer: any journal of either system, from a list of events to the law one breaks.

Each control is found by its CSS class, and by its description:

    .labkit-explorer          the panel            .labkit-explorer-view       Events, Timeline,
    .labkit-explorer-found    Journals (a list)                                Replay, Laws, SQL
    .labkit-explorer-find     Find                 .labkit-explorer-kinds      Kinds (a list)
    .labkit-explorer-path     Path                 .labkit-explorer-events     the events, and there
    .labkit-explorer-open     Open                   -earlier, -later, -goto, -where
    .labkit-explorer-witness  Witness              .labkit-explorer-detail     Row, JSON,
    .labkit-explorer-task     Task                                             Neighbours, Law
    .labkit-explorer-run      Run                  .labkit-explorer-row, -json, -neighbours, -law
    .labkit-explorer-follow   Follow               .labkit-explorer-by         order, time
    .labkit-room-switch       Room                 .labkit-explorer-timeline   the picture
    .labkit-status            how it stands        .labkit-explorer-slider     Event (of the replay)
    .labkit-code              the last act         .labkit-explorer-back, -on  Back, On
    .labkit-explorer-starter  Question             .labkit-explorer-where      which event it is
    .labkit-explorer-sql      SQL (a text box)     .labkit-explorer-standing   tasks and steps then
    .labkit-explorer-ask      Ask                  .labkit-explorer-replayed   the timeline then
    .labkit-explorer-answer   what SQLite answers  .labkit-explorer-verdicts   the laws
                                                   .labkit-explorer-findings   what breaks them
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ipywidgets import HTML

from labkit.errors import BadInput, LabkitError, NotFound, StorageBusy, UsageError, describe
from labkit.journal import Journal, explore, timeline
from labkit.journal.chart import Source, path_of
from labkit.journal.explore import Contents, Glance, glance, lines
from labkit.journal.frames import Verdicts
from labkit.journal.reading import Marks, marks
from labkit.journal.starters import Starter, starters
from labkit.lab.panels.explorer_choices import Choices, opened
from labkit.lab.panels.explorer_pages import (
    ALL,
    CSS,
    EventsPage,
    LawsPage,
    PicturePage,
    ReplayPage,
    SqlPage,
    count,
    frame_table,
    typed,
)
from labkit.lab.panels.parts import (
    EXPECTED,
    Panel,
    Tabs,
    block,
    inline,
    options,
    picture,
    row,
    table,
    visible,
)
from labkit.lab.places import home

__all__ = ["Explorer"]

SENTENCE = "The journal explorer: any journal, its events, its laws, its timeline, replayed."
NEWS = "There are new events, up to seq {}: tick Follow to see them."
NOTHING_OPEN = "No journal is open: choose one, or type a path."
EVERY_S = 0.25
LIVE = 5_000  # events: a larger journal is drawn and judged when its page is shown, not live
LOCKED = 4  # looks, which do not wait: it was no writer's moment then
WIDE, WIDE_IN_ROOM = 56, 36  # characters of an event's line that a screen of 1280 x 720 shows
CONTENTS = "journal.contents()"


class Explorer(Panel):
    """Opens journals and shows them. Shown as the last line of a cell.

    `source` is a path or a `Journal`; without one, somebody chooses. `witness` is a file that the
    effects wrote, for law 4; `folder` is where the list of journals looks, the lab's runs by
    default. What cannot be opened is said in the status line.
    """

    def __init__(
        self,
        source: Source | None = None,
        *,
        witness: str | os.PathLike[str] = "",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__("explorer", SENTENCE, every_s=EVERY_S)
        self.folder = os.fspath(home() / "runs" if folder is None else folder)
        self.journal: Journal | None = None
        self.contents: Contents | None = None
        self.seq: int | None = None  # of the chosen event
        self.keys: list[int] = []  # of the events in the list
        self._replayed: list[int] = []  # of those that the slider goes through
        self._glance: Glance | None = None
        self._verdicts: Verdicts | None = None
        self._judged_at: Marks = ()
        self._told = 0  # the last seq that the status spoke of
        self._followed = 0  # the last seq before what came in last
        self._busy = 0  # looks, one after the other, that found the file locked
        self._is_lost = self._is_filling = False
        self._stale: set[str] = set()
        self._codes: dict[str, str] = {}  # of the last act on each page
        self._words: dict[str, str] = {}  # of the status, where that is not about the whole journal
        self.events, self.picture, self.replay = EventsPage(), PicturePage(), ReplayPage()
        self.choices = Choices(os.fspath(witness), self.events.kinds)
        self.laws, self.sql = LawsPage(), SqlPage()
        self._pages: dict[str, Any] = {
            "Events": self.events, "Timeline": self.picture, "Replay": self.replay,
            "Laws": self.laws, "SQL": self.sql,
        }  # fmt: skip
        roots = {name: page.root for name, page in self._pages.items()}
        self.views = Tabs("Show", roots, "labkit-explorer-view")
        self._arrange()
        self._listen()
        self.say(NOTHING_OPEN)
        with suppress(NotFound):  # nothing has run yet
            self._find()
        if source is not None:
            self.attempt(self.open, path_of(source))

    # Widgets.

    def _arrange(self) -> None:
        top = self.choices
        first = row(top.found, top.find, top.path, top.open_it)
        second = row(top.task, top.run, top.witness, top.follow, self.room)
        self.fill(HTML(CSS), first, second, self.status, self.views.root, self.code)
        self.root.children = self.root.children[:-2]  # where `fill` puts status and code

    def _listen(self) -> None:
        top = self.choices
        self._on(top.found, self._open_found)
        self._on(top.find, self._find)
        self._on(top.path, self.open)
        self._on(top.open_it, lambda: self.open(top.path.value))
        self._on(top.witness, lambda _: self._judge_anew())
        self._on(top.task, lambda _: self._choose_task())
        self._on(top.run, lambda _: self._pick())
        self._on(top.follow, lambda _: self._follow())
        self._on(self.views.buttons, lambda _: self._turn())
        self._on(self.events.kinds, lambda _: self._pick())
        self._on(self.events.detail.buttons, lambda _: self._make("Events", self._show_event))
        self._on(self.picture.by, lambda _: self._make("Timeline", self._show_timeline))
        self._on(self.replay.slider, lambda _: self._make("Replay", self._show_replay))
        self._on(self.replay.back, lambda: self._step(-1))
        self._on(self.replay.forth, lambda: self._step(1))
        self._on(self.sql.starter, self._start_with)
        self._on(self.sql.ask, self.ask)
        for chooser in (self.events.chooser, self.laws.findings):
            chooser.listen(self)
        self.events.chooser.on_choose = self._choose
        self.laws.findings.on_choose = self._choose_finding

    def _on(self, widget: Any, act: Callable[..., object]) -> None:
        """As `on`, but only for what a person does: filling a list sets its value too."""
        self.on(widget, lambda *values: None if self._is_filling else act(*values))

    @contextmanager
    def _filling(self) -> Iterator[None]:
        before, self._is_filling = self._is_filling, True
        try:
            yield
        finally:
            self._is_filling = before

    # Opening, and looking again.

    def open(self, path: str) -> None:
        """Shows another journal. Where it cannot be read, the one before stays."""
        try:
            journal, seen, contents = opened(path)
        except EXPECTED as error:
            if self.journal is None:
                raise
            below = f"Below is still {visible(os.path.basename(self.journal.path), 40)}."
            raise LabkitError(f"{visible(describe(error), 340)}. {below}") from error
        is_another = self.journal is not None and self.journal.path != journal.path
        self.journal, self.contents, self._glance = journal, contents, seen
        self._told = self._followed = contents.last_seq
        self.seq, self._verdicts, self._is_lost, self._busy = None, None, False, 0
        self._codes.clear()
        self._words.clear()
        self.sql.clear()
        with self._filling():
            self.sql.starter.options = options(
                [("choose one", ALL), *((s.title, s) for s in self._starters())], 60
            )
            self.choices.forget()
            if is_another:  # its effects are not in that file, and one may look like one of them
                self.choices.witness.value = ""
            self.choices.show_path(path)
            self.choices.fill(self._contents)
            if len(contents.tasks) == 1:
                self.choices.task.value = contents.tasks[0].id
        start = f"from labkit.journal import Journal, timeline\njournal = Journal({journal.path!r})"
        code = f"{start}\n{CONTENTS}"
        self.show_code(code)  # before that of the page in sight, which needs `journal`
        self.watch()
        self._list_events()
        self._show_anew()
        self.say(self._whole)
        self.show_code(code)

    def _starters(self) -> Sequence[Starter]:
        return starters(is_durable=self._contents.is_durable)

    def _open_found(self, path: str | object) -> None:
        if isinstance(path, str):
            self.open(path)

    def _find(self) -> None:
        with self._filling():
            self.choices.list_journals(self.folder)
        code = f"from labkit.journal import explore\nexplore.find_journals({self.folder!r})"
        super().show_code(code)  # it is of no page

    def look(self) -> bool:
        if self.journal is None:
            return False
        try:
            now = glance(self.journal, self._glance, busy_s=0)
        except StorageBusy as error:
            self._busy += 1
            if self._busy == LOCKED:
                self._lose(error)
            return True
        except EXPECTED as error:
            self._lose(error)
            return True
        was_lost, self._is_lost, self._busy = self._is_lost, False, 0
        if now.is_replaced:
            self.open(self.journal.path)
            self.say(f"The file was replaced or altered; opened again. {self._contents.summary}")
        elif now.last_seq > self._told:
            self._told = now.last_seq
            if self.choices.follow.value:
                self._catch_up()
            else:
                self.say(NEWS.format(self._told))
        elif was_lost:
            self.say(f"The file is there again. {self._contents.summary}")
        return True

    def _lose(self, error: BaseException) -> None:
        if not self._is_lost:  # said once; the next act has something else to say
            self.fail(error)
        self._is_lost = True

    def _follow(self) -> None:
        if self.choices.follow.value:
            self._catch_up()
        else:
            self._stale.add("Events")  # where the code was that of following
            self._show_page()

    def _catch_up(self) -> None:
        """Takes in what has come since, and goes to the last event."""
        journal = self._journal
        before = self._contents
        self._glance = glance(journal, self._glance)
        self.contents = journal.contents(before)
        self._told, self._followed = self._contents.last_seq, before.last_seq
        with self._filling():
            self.choices.fill(self._contents)
        self.keys += journal.seqs(**self.choices.picked, after=before.last_seq, until=self._told)
        self._verdicts = None
        if self.keys:
            self.seq = self.keys[-1]
        self._fill_events(choose=self.seq)
        self._show_live()

    def _show_live(self) -> None:
        summary, view = self._contents.summary, self.views.shown
        if self._contents.events <= LIVE or view == "Events":
            self._show_anew()
            self.say(f"Following. {summary}")
        else:
            self._stale = {*self.views.names}
            self.say(f"Following. {summary} {view} is not: turn to another page and back.")

    @property
    def _journal(self) -> Journal:
        if self.journal is None:
            raise UsageError(NOTHING_OPEN)
        return self.journal

    @property
    def _contents(self) -> Contents:
        if self.contents is None:
            raise UsageError(NOTHING_OPEN)
        return self.contents

    # What is chosen.

    def _choose_task(self) -> None:
        with self._filling():
            self.choices.fill_runs(self._contents)
        self._pick()

    def _pick(self) -> None:
        self._list_events()
        self._show_anew()
        if self.views.shown == "Events":
            self.show_code(self.choices.code)

    @property
    def _whole(self) -> str:
        summary, path = self._contents.summary, self.journal.path if self.journal else ""
        return f"{os.path.basename(path)}: {summary}"

    @property
    def _picked_words(self) -> str:
        """Of the list: how many events it has, where that is not all of them."""
        is_whole = len(self.keys) == self._contents.events
        return self._whole if is_whole else f"{count(len(self.keys), 'event')} picked."

    def _limits_nothing(self, view: str) -> str:
        """What is picked, and limits nothing on this page, in a sentence."""
        many = len(self._contents.tasks) > 1
        with_task = ["Task"] if many and view in ("Laws", "SQL") else []
        chosen = [] if view == "Events" else self.choices.chosen(*with_task, "Run", "Kinds")
        named = " and ".join(chosen)
        return f"What is picked under {named} limits Events, not this page." if named else ""

    def _list_events(self) -> None:
        try:
            self.keys = self._journal.seqs(**self.choices.picked, until=self._contents.last_seq)
        except EXPECTED:
            self.keys = []
            self.events.chooser.fill((), lambda keys: [])
            raise
        self._fill_events(choose=self.seq if self.seq in self.keys else None)

    def _fill_events(self, choose: int | None) -> None:
        all_tasks = self.choices.picked["task"] is None and len(self._contents.tasks) > 1

        def lines_of(keys: Sequence[int]) -> list[str]:
            width = WIDE_IN_ROOM if self.room.value else WIDE
            found = explore.rows(self._journal, keys)
            if len(found) != len(keys):
                raise BadInput("the journal no longer holds what was listed; press Open")
            return lines(found, with_task=all_tasks, width=width)

        self.events.chooser.fill(self.keys, lines_of, choose)

    def _choose(self, seq: int) -> None:
        self.seq = seq
        self._stale |= {"Timeline", "Replay"}  # of its task; the replay begins at it
        self._make("Events", self._show_event)

    def _choose_finding(self, number: int) -> None:
        """The last event that shows it is where it was broken; the others are its neighbours."""
        seqs = self._judged.findings()["seqs"][number]
        if not seqs:
            raise UsageError("this finding is about the tables: no event shows it")
        with self._filling():
            if max(seqs) not in self.keys:  # what is picked would hide it
                self.choices.task.value = self.choices.run.value = ALL
                self.choices.fill_runs(self._contents)
                self.events.kinds.value = ()
            self.views.buttons.value, self.events.detail.buttons.value = "Events", "Law"
        self._list_events()
        self.views.turn()
        self.events.chooser.go_to(max(seqs))
        self._stale.discard("Events")
        self._say_page("Events")

    # What is shown.

    def _turn(self) -> None:
        self.views.turn()
        if self._verdicts is not None and self._marks != self._judged_at:
            self._stale.add("Laws")
        self._show_page()

    def _show_anew(self) -> None:
        """Every page is out of date; the one in sight is made now, the others once they are."""
        self._stale = {*self.views.names}
        self._show_page()

    def _show_page(self) -> None:
        """The page in sight, with its own words and its own code."""
        view = self.views.shown
        show = {
            "Events": self._show_events,
            "Timeline": self._show_timeline,
            "Replay": self._begin_replay,
            "Laws": self._show_laws,
        }.get(view)
        if show and view in self._stale:
            self._make(view, show)
        self._stale.discard(view)
        self._say_page(view)
        super().show_code(self._codes.get(view, CONTENTS))

    def _make(self, view: str, show: Callable[[], object]) -> None:
        """Shows something on a page. Where that fails nothing stands there, and it is tried again
        when somebody turns to it."""
        self._codes.pop(view, None)
        self._words.pop(view, None)
        try:
            show()
        except EXPECTED:
            self._stale.add(view)
            self._pages[view].clear()
            super().show_code(self._codes.get(view, CONTENTS))
            raise
        if view != "Events" or "labkit-failed" in self.status.value:
            self._say_page(view)

    def _say_page(self, view: str) -> None:
        words = self._words.get(view) or self._whole
        is_behind = self._told > self._contents.last_seq
        news = NEWS.format(self._told) if is_behind else ""
        self.say(" ".join(filter(None, (words, self._limits_nothing(view), news))))

    def show_code(self, code: str) -> None:
        """As every panel's; a page that is turned to shows its own again."""
        self._codes[self.views.shown] = code
        super().show_code(code)

    def _show_events(self) -> None:
        self._show_event()
        if self.choices.follow.value:
            after, who = self._followed, "owner" if self._contents.is_durable else "run_id"
            self.show_code(self.choices.follow_code(after, who))

    def _show_event(self) -> None:
        self._words["Events"] = self._picked_words
        self.events.detail.turn()
        if self.seq is None:
            self.events.clear("<p>Choose an event.</p>")
            self.show_code(self.choices.code)
            return
        show = {
            "Row": self._show_row,
            "JSON": self._show_json,
            "Neighbours": self._show_neighbours,
            "Law": self._show_law,
        }
        show[self.events.detail.shown](self.seq)

    def _show_row(self, seq: int) -> None:
        self.show_code(f"journal.row({seq})")
        found = explore.fields(self._journal.row(seq))
        self.events.row.value = table(["column", "value"], found, f"event {seq}")

    def _show_json(self, seq: int) -> None:
        self.show_code(
            f"from labkit.journal.explore import pretty\nprint(pretty(journal.row({seq}).data))"
        )
        data = explore.pretty(self._journal.row(seq).data)
        self.events.json.value = block(data, f"data of event {seq}")

    def _show_neighbours(self, seq: int) -> None:
        self.show_code(f"journal.neighbours({seq})")
        found = [
            (each.event.seq, each.why, *lines([each.event]))
            for each in explore.neighbours(self._journal, seq)
        ]
        self.events.neighbours.value = table(
            ["seq", "why", "event"], found, f"neighbours of event {seq}"
        )

    def _show_law(self, seq: int) -> None:
        self.show_code(f"journal.laws({self._witness_code}).of({seq})")
        broken = self._judged.of(seq)
        said = zip(broken["law"], broken["promise"], broken["what"], strict=True)
        parts = [f"<p>Law {n}, {inline(promise)}: <b>{inline(what, 400)}</b>.</p>"
                 for n, promise, what in said][:20]  # fmt: skip
        none = f"<p>Event {seq} breaks no law that could be judged.</p>"
        shown = f"<p>Event {seq} breaks:</p>{''.join(parts)}" if parts else none
        self.events.law.value = shown

    @property
    def _judged(self) -> Verdicts:
        """The verdicts on the whole journal, judged once for each state of its file and of the
        witness: a table may be changed, and a witness written, without an event."""
        now = self._marks
        if self._verdicts is None or now != self._judged_at:
            self._verdicts = self._journal.laws(self.choices.witness.value or None)
            self._judged_at = now
        return self._verdicts

    @property
    def _marks(self) -> Marks:
        return marks(self._journal.path, self.choices.witness.value)

    @property
    def _witness_code(self) -> str:
        path = self.choices.witness.value
        return f"witness={path!r}" if path else ""

    def _judge_anew(self) -> None:
        self._verdicts = None
        self._show_anew()

    def _show_laws(self) -> None:
        self.show_code(f"verdicts = journal.laws({self._witness_code})\nverdicts.findings()")
        verdicts = self._judged
        shown = count(self.laws.show(verdicts), "finding")
        self._words["Laws"] = f"{count(len(verdicts.broken), 'law')} broken, {shown}."

    @property
    def _drawn_task(self) -> str:
        """Whose timeline: the chosen task, that of the chosen event, or the first."""
        if self.choices.picked["task"] is not None:
            return str(self.choices.picked["task"])
        if self.seq is not None:
            return self._journal.row(self.seq).task_id
        if not self._contents.tasks:
            raise UsageError("this journal holds no task yet")
        return self._contents.tasks[0].id

    def _show_timeline(self) -> None:
        task, by = self._drawn_task, str(self.picture.by.value)
        self.show_code(f"timeline(journal, {task!r}, by={by!r})")
        drawn = timeline(self._journal, task, by=by, style=self.style)
        self.picture.shown.value = picture(drawn.small_png(), drawn.summary)
        self._words["Timeline"] = drawn.summary

    def redraw(self) -> None:
        if self.journal is not None:
            self._fill_events(choose=self.events.chooser.chosen)  # in shorter lines, or longer ones
            self._show_anew()

    # Replay.

    def _begin_replay(self) -> None:
        """The slider goes through the events of one task, and stands at the chosen one, or the
        last."""
        self._replayed = self._journal.seqs(self._drawn_task)
        seqs = self._replayed
        slider = self.replay.slider
        with self._filling():
            slider.max = max(1, len(seqs))
            slider.value = seqs.index(self.seq) + 1 if self.seq in seqs else len(seqs)
        self._show_replay()

    def _step(self, by: int) -> None:
        self.replay.slider.value += by

    def _show_replay(self) -> None:
        if not self._replayed:
            raise UsageError("there is no event to replay")
        number, task = self.replay.slider.value, self._drawn_task
        seq = self._replayed[number - 1]
        self.show_code(
            f"journal.at({seq}, {task!r}).steps\ntimeline(journal, {task!r}, until={seq})"
        )
        event = self._journal.row(seq)
        after = f"After event {number:,} of {len(self._replayed):,}, seq {seq}"
        self.replay.where.value = f"<p>{after}: {inline(' '.join(lines([event])[0].split()))}</p>"
        standing = self._journal.at(seq, task)
        steps = standing.near(event.step_idx).drop(columns="task_id")
        self.replay.standing.value = frame_table(standing.tasks, "tasks then") + frame_table(
            steps, "steps then", len(standing.steps)
        )
        drawn = timeline(self._journal, task, style=self.replay.style(self.style), until=seq)
        self.replay.shown.value = picture(drawn.small_png(), drawn.summary)
        events = count(len(self._replayed), "event")
        self._words["Replay"] = f"A replay of {drawn.chart.subject}, {events}."

    # SQL.

    def _start_with(self, starter: Starter | object) -> None:
        if not isinstance(starter, Starter):
            return
        self.sql.box.value = starter.sql
        self.ask()

    def ask(self) -> None:
        """Runs what stands in the box; it is stopped where `Journal.ask` says."""
        self._make("SQL", self._answer)

    def _answer(self) -> None:
        query = self.sql.box.value
        self.show_code(f"journal.ask({typed(query)}).frame")
        self.sql.clear()  # it may take long
        frame, is_whole = self._journal.ask(query)
        self.sql.answer.value = frame_table(frame, "the answer", has_more=not is_whole)
        more = "" if is_whole else ", and there are more"
        self._words["SQL"] = f"{count(len(frame), 'row')}{more}."

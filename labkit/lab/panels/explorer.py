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

from ipywidgets import HTML, Checkbox

from labkit.errors import NotFound, StorageBusy, UsageError
from labkit.journal import Journal, timeline
from labkit.journal.chart import Source, path_of
from labkit.journal.explore import (
    Contents,
    Glance,
    fields,
    find_journals,
    lines,
    neighbours,
    pretty,
    rows,
)
from labkit.journal.frames import Verdicts
from labkit.journal.starters import Starter, starters
from labkit.lab.panels.explorer_pages import (
    ALL,
    CSS,
    EventsPage,
    LawsPage,
    PicturePage,
    ReplayPage,
    SqlPage,
    menu,
    text,
)
from labkit.lab.panels.parts import (
    EXPECTED,
    PAGE,
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
from labkit.lab.places import home

__all__ = ["Explorer"]

SENTENCE = "The journal explorer: any journal, its events, its laws, its timeline, replayed."
NOTHING_OPEN = "No journal is open: choose one, or type a path."
EVERY_S = 0.25
MAX_PATH = 4096  # of Linux
LIVE = 5_000  # events: a larger journal is drawn and judged when its page is shown, not live


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
        self._told = 0  # the last seq that the status spoke of
        self._is_lost = self._is_filling = False
        self._stale: set[str] = set()
        self._codes: dict[str, str] = {}  # of the last act on each page
        self._make_choices(os.fspath(witness))
        self.events, self.picture, self.replay = EventsPage(), PicturePage(), ReplayPage()
        self.laws, self.sql = LawsPage(), SqlPage()
        pages: dict[str, Any] = {
            "Events": self.events, "Timeline": self.picture, "Replay": self.replay,
            "Laws": self.laws, "SQL": self.sql,
        }  # fmt: skip
        roots = {name: page.root for name, page in pages.items()}
        self.views = Tabs("Show", roots, "labkit-explorer-view")
        self._arrange()
        self._listen()
        self.say(NOTHING_OPEN)
        with suppress(NotFound):  # nothing has run yet
            self._find()
        if source is not None:
            self.attempt(self.open, path_of(source))

    # Widgets.

    def _make_choices(self, witness: str) -> None:
        self.found = menu("Journals", "found", "The journals of the lab's runs, newest first")
        self.find = button("Find", "Looks for journals again", "labkit-explorer-find")
        self.path = text("Path", "path", "A journal's file; Enter opens it", "24em")
        self.open_it = button("Open", "Opens the file at this path", "labkit-explorer-open")
        self.witness = text(
            "Witness",
            "witness",
            "A file from outside: a line for each effect, its key first",
            "16em",
        )
        self.witness.value = witness
        self.task = menu("Task", "task", "Shows one task, or durable run, only")
        self.run = menu("Run", "run", "Shows one run only; of durable runs, one advance")
        self.follow = Checkbox(
            description="Follow", indent=False, tooltip="Shows events as they come",
            layout={"width": "auto"},
        ).add_class("labkit-explorer-follow")  # fmt: skip

    def _arrange(self) -> None:
        first = row(self.found, self.find, self.path, self.open_it)
        second = row(self.task, self.run, self.witness, self.follow, self.room)
        self.fill(HTML(CSS), first, second, self.status, self.views.root, self.code)
        self.root.children = self.root.children[:-2]  # where `fill` puts status and code

    def _listen(self) -> None:
        self._on(self.found, self._open_found)
        self._on(self.find, self._find)
        self._on(self.path, self.open)
        self._on(self.open_it, lambda: self.open(self.path.value))
        self._on(self.witness, lambda _: self._judge_anew())
        self._on(self.task, lambda _: self._choose_task())
        self._on(self.run, lambda _: self._pick())
        self._on(self.follow, lambda _: self._follow())
        self._on(self.views.buttons, lambda _: self._turn())
        self._on(self.events.kinds, lambda _: self._pick())
        self._on(self.events.detail.buttons, lambda _: self._show_event())
        self._on(self.picture.by, lambda _: self._show_timeline())
        self._on(self.replay.slider, lambda _: self._show_replay())
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
        if not path.strip():
            raise UsageError("type the path of a journal, or choose one from the list")
        if len(path) > MAX_PATH:
            raise UsageError(f"this text of {len(path):,} characters is no path; type one")
        journal = Journal(_expanded(path))
        glance, contents = journal.glance(), journal.contents()
        self.journal, self.contents, self._glance = journal, contents, glance
        self._told = contents.last_seq
        self.seq, self._verdicts, self._is_lost = None, None, False
        self._codes.clear()
        with self._filling():
            # The box shows a path as it is, so it shows none that a browser would turn around.
            self.path.value = path if path.isprintable() else ""
            self.sql.starter.options = options(
                [("choose one", ALL), *((s.title, s) for s in self._starters())], 60
            )
            for choice in (self.task, self.run):
                choice.options = [("all", ALL)]
            _choose(self.found, path)
            self.events.kinds.value = ()
            self._fill_choices()
            if len(contents.tasks) == 1:
                self.task.value = contents.tasks[0].id
        start = f"from labkit.journal import Journal, timeline\njournal = Journal({journal.path!r})"
        code = f"{start}\njournal.contents()"
        self.show_code(code)  # before that of the page in sight, which needs `journal`
        self._list_events()
        self._show_anew()
        self.say(f"{os.path.basename(journal.path)}: {contents.summary}")
        self.show_code(code)
        self.watch()

    def _starters(self) -> Sequence[Starter]:
        return starters(is_durable=self._contents.is_durable)

    def _open_found(self, path: str | object) -> None:
        if isinstance(path, str):
            self.open(path)

    def _find(self) -> None:
        found = find_journals(self.folder)
        named = [(path, os.path.join(self.folder, path)) for path in found]
        with self._filling():
            self.found.options = [(f"{len(found)} found", ALL), *options(named, 60)]
        self.show_code(
            f"from labkit.journal import explore\nexplore.find_journals({self.folder!r})"
        )

    def look(self) -> bool:
        if self.journal is None:
            return False
        try:
            now = self.journal.glance(self._glance)
        except EXPECTED as error:
            if not self._is_lost:  # said once; the next act has something else to say
                self.fail(error)
            self._is_lost = True
            # Each look would wait for as long again, and no cell runs meanwhile: Open looks anew.
            return not isinstance(error, StorageBusy)
        was_lost, self._is_lost = self._is_lost, False
        if now.is_replaced:
            self.open(self.journal.path)
            self.say(f"The file was replaced; opened again. {self._contents.summary}")
        elif now.last_seq > self._told:
            self._told = now.last_seq
            self._follow()
        elif was_lost:
            self.say(f"The file is there again. {self._contents.summary}")
        return True

    def _follow(self) -> None:
        if self.follow.value:
            self._catch_up()
        elif self._told > self._contents.last_seq:
            self.say(f"There are new events, up to seq {self._told}: tick Follow to see them.")

    def _catch_up(self) -> None:
        """Takes in what has come since, and goes to the last event."""
        before = self._contents.last_seq
        self._glance = self._journal.glance(self._glance)
        self.contents = self._journal.contents(self._contents)
        self._told = self.contents.last_seq
        with self._filling():
            self._fill_choices()
        self.keys += self._journal.seqs(**self._picked, after=before, until=self._told)
        self._verdicts = None
        if self.keys:
            self.seq = self.keys[-1]
        self._fill_events(choose=self.seq)
        self._show_live()
        self.say(f"Following. {self.contents.summary}")
        self.show_code(f"for event in journal.follow(after={before}):\n    print(event)")

    def _show_live(self) -> None:
        if self._contents.events <= LIVE or self.views.shown == "Events":
            self._show_anew()
        else:
            self._stale = {*self.views.names}

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

    def _fill_choices(self) -> None:
        """Tasks, runs and kinds, with those that were chosen still chosen."""
        tasks = [(task.summary, task.id) for task in self._contents.tasks[:PAGE]]
        _refill(self.task, _for_all(len(self._contents.tasks)), options(tasks, 60))
        self._fill_runs()
        kinds = [(f"{kind} ({count:,})", kind) for kind, count in self._contents.kinds.items()]
        chosen = self.events.kinds.value
        self.events.kinds.options = options(kinds[:PAGE])
        self.events.kinds.value = [kind for kind in chosen if kind in dict(kinds).values()]

    def _fill_runs(self) -> None:
        mine = [r for r in self._contents.runs if self.task.value in (ALL, r.task_id)]
        runs = [(run.name, run[:2]) for run in mine[:PAGE]]
        _refill(self.run, _for_all(len(mine)), options(runs))

    @property
    def _picked(self) -> dict[str, Any]:
        """What the list shows, as `Journal.seqs` takes it."""
        task, run = (None if menu.value is ALL else menu.value for menu in (self.task, self.run))
        return {
            "task": run[0] if run else task,
            "run": run[1] if run else None,
            "kinds": list(self.events.kinds.value),
        }

    def _choose_task(self) -> None:
        with self._filling():
            self._fill_runs()
        self._pick()

    def _pick(self) -> None:
        self._list_events()
        self._show_anew()
        self.say(f"{_count(len(self.keys), 'event')} picked.")
        self.show_code(self._picked_code)

    @property
    def _picked_code(self) -> str:
        chosen = {name: value for name, value in self._picked.items() if value}
        given = ", ".join(f"{name}={value!r}" for name, value in chosen.items())
        return f"journal.rows(journal.seqs({given})[:{PAGE}])"

    def _list_events(self) -> None:
        self.keys = self._journal.seqs(**self._picked, until=self._contents.last_seq)
        self._fill_events(choose=self.seq if self.seq in self.keys else None)

    def _fill_events(self, choose: int | None) -> None:
        all_tasks = self._picked["task"] is None and len(self._contents.tasks) > 1

        def lines_of(keys: Sequence[int]) -> list[str]:
            return lines(rows(self._journal, keys), with_task=all_tasks)

        self.events.chooser.fill(self.keys, lines_of, choose)

    def _choose(self, seq: int) -> None:
        self.seq = seq
        self._stale |= {"Timeline", "Replay"}  # of its task; the replay begins at it
        self._show_event()

    def _choose_finding(self, number: int) -> None:
        """The last event that shows it is where it was broken; the others are its neighbours."""
        seqs = self._judged.findings()["seqs"][number]
        if not seqs:
            raise UsageError("this finding is about the tables: no event shows it")
        with self._filling():
            self.task.value = self.run.value = ALL
            self._fill_runs()
            self.events.kinds.value = ()
            self.views.buttons.value, self.events.detail.buttons.value = "Events", "Law"
        self._list_events()
        self.views.turn()
        self.events.chooser.go_to(max(seqs))

    # What is shown.

    def _turn(self) -> None:
        self.views.turn()
        self.say(f"{os.path.basename(self._journal.path)}: {self._contents.summary}")
        self._show_page()

    def _show_anew(self) -> None:
        """Every page is out of date; the one in sight is made now, the others once they are."""
        self._stale = {*self.views.names}
        self._show_page()

    def _show_page(self) -> None:
        show = {
            "Events": self._show_event,
            "Timeline": self._show_timeline,
            "Replay": self._begin_replay,
            "Laws": self._show_laws,
        }.get(self.views.shown)
        if show and self.views.shown in self._stale:
            show()
        else:
            self.show_code(self._codes.get(self.views.shown, "journal.contents()"))
        self._stale.discard(self.views.shown)

    def show_code(self, code: str) -> None:
        """As every panel's; a page that is turned to shows its own again."""
        self._codes[self.views.shown] = code
        super().show_code(code)

    def _show_event(self) -> None:
        self.events.detail.turn()
        if self.seq is None:
            self.events.clear()
            self.show_code(self._picked_code)
            return
        show = {
            "Row": self._show_row,
            "JSON": self._show_json,
            "Neighbours": self._show_neighbours,
            "Law": self._show_law,
        }
        show[self.events.detail.shown](self.seq)

    def _show_row(self, seq: int) -> None:
        found = fields(self._journal.row(seq))
        self.events.row.value = table(["column", "value"], found, f"event {seq}")
        self.show_code(f"journal.row({seq})")

    def _show_json(self, seq: int) -> None:
        data = pretty(self._journal.row(seq).data)
        self.events.json.value = block(data, f"data of event {seq}")
        self.show_code(
            f"from labkit.journal.explore import pretty\nprint(pretty(journal.row({seq}).data))"
        )

    def _show_neighbours(self, seq: int) -> None:
        found = [
            (each.event.seq, each.why, *lines([each.event]))
            for each in neighbours(self._journal, seq)
        ]
        self.events.neighbours.value = table(
            ["seq", "why", "event"], found, f"neighbours of event {seq}"
        )
        self.show_code(f"journal.neighbours({seq})")

    def _show_law(self, seq: int) -> None:
        broken = self._judged.of(seq)
        said = zip(broken["law"], broken["promise"], broken["what"], strict=True)
        parts = [f"<p>Law {n}, {inline(promise)}: <b>{inline(what, 400)}</b>.</p>"
                 for n, promise, what in said][:20]  # fmt: skip
        none = f"<p>Event {seq} breaks no law that could be judged.</p>"
        shown = f"<p>Event {seq} breaks:</p>{''.join(parts)}" if parts else none
        self.events.law.value = shown
        self.show_code(f"journal.laws({self._witness_code}).of({seq})")

    @property
    def _judged(self) -> Verdicts:
        """The verdicts on the whole journal, judged once for each state of it."""
        if self._verdicts is None:
            self._verdicts = self._journal.laws(self.witness.value or None)
        return self._verdicts

    @property
    def _witness_code(self) -> str:
        return f"witness={self.witness.value!r}" if self.witness.value else ""

    def _judge_anew(self) -> None:
        self._verdicts = None
        self._show_anew()

    def _show_laws(self) -> None:
        verdicts = self._judged
        self.laws.verdicts.value = _frame_table(verdicts.frame().reset_index(), "the laws")
        found = verdicts.findings()
        texts = [
            f"law {law}: {what}" for law, what in zip(found["law"], found["what"], strict=True)
        ]
        self.laws.findings.fill(range(len(texts)), lambda keys: [texts[key] for key in keys])
        broken, shown = _count(len(verdicts.broken), "law"), _count(len(texts), "finding")
        self.say(f"{broken} broken, {shown}.")
        self.show_code(f"verdicts = journal.laws({self._witness_code})\nverdicts.findings()")

    @property
    def _drawn_task(self) -> str:
        """Whose timeline: the chosen task, that of the chosen event, or the first."""
        if self._picked["task"] is not None:
            return str(self._picked["task"])
        if self.seq is not None:
            return self._journal.row(self.seq).task_id
        if not self._contents.tasks:
            raise UsageError("this journal holds no task yet")
        return self._contents.tasks[0].id

    def _show_timeline(self) -> None:
        task, by = self._drawn_task, str(self.picture.by.value)
        drawn = timeline(self._journal, task, by=by, style=self.style)
        self.picture.shown.value = picture(drawn.small_png(), drawn.summary)
        self.show_code(f"timeline(journal, {task!r}, by={by!r})")

    def redraw(self) -> None:
        if self.journal is not None:
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
        event = self._journal.row(seq)
        after = f"After event {number:,} of {len(self._replayed):,}, seq {seq}"
        self.replay.where.value = f"<p>{after}: {inline(' '.join(lines([event])[0].split()))}</p>"
        standing = self._journal.at(seq, task)
        steps = standing.near(event.step_idx).drop(columns="task_id")
        self.replay.standing.value = _frame_table(standing.tasks, "tasks then") + _frame_table(
            steps, "steps then", len(standing.steps)
        )
        drawn = timeline(self._journal, task, style=self.replay.style(self.style), until=seq)
        self.replay.shown.value = picture(drawn.small_png(), drawn.summary)
        self.show_code(
            f"journal.at({seq}, {task!r}).steps\ntimeline(journal, {task!r}, until={seq})"
        )

    # SQL.

    def _start_with(self, starter: Starter | object) -> None:
        if not isinstance(starter, Starter):
            return
        self.sql.box.value = starter.sql
        self.ask()

    def ask(self) -> None:
        """Runs what stands in the box; it is stopped after a number of steps, never by a clock."""
        query = self.sql.box.value
        self.show_code(f"journal.ask({_typed(query)}).frame")
        self.sql.answer.value = ""
        frame, is_whole = self._journal.ask(query)
        self.sql.answer.value = _frame_table(frame, "the answer", has_more=not is_whole)
        self.say(f"{_count(len(frame), 'row')}{'' if is_whole else ', and there are more'}.")


def _expanded(path: str) -> str:
    try:
        return os.path.expanduser(path)
    except ValueError:  # no system has a user of this name, as "\0"
        return path


def _for_all(number: int) -> str:
    return f"all ({number:,})" if number <= PAGE else f"all ({number:,}; {PAGE} are listed)"


def _refill(choice: Any, for_all: str, made: Sequence[tuple[str, object]]) -> None:
    """New options, the value kept where it is still among them."""
    chosen = choice.value
    choice.options = [(for_all, ALL), *made]
    _choose(choice, chosen)


def _choose(choice: Any, value: object) -> None:
    is_there = value in [each for _, each in choice.options]
    choice.value = value if is_there else ALL


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _typed(text: str) -> str:
    """As somebody types it in a cell, over several lines where that says the same."""
    is_plain = text.isprintable() or text.replace("\n", "").isprintable()
    return f'"""{text}"""' if is_plain and not {*'\\"'} & {*text} else repr(text)


def _frame_table(frame: Any, label: str, total: int = 0, *, has_more: bool = False) -> str:
    found = frame.itertuples(index=False, name=None)
    return table(list(frame.columns), found, label, total=total, has_more=has_more)

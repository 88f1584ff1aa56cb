"""What all panels share: harmless text, a status line, rows to choose from, and a panel's life.

Whatever comes from a journal, a plan, a file's name or an error is shown by `inline`, `block`,
`table` or a `Chooser`, never by itself: a task may be called `<img src=x onerror=...>`. All of them
cut, since what a widget holds goes to the browser as a whole at each change.

    class Counter(Panel):                             # every panel looks like this one
        def __init__(self) -> None:
            super().__init__("counter", "A panel that counts.")
            self.more = button("More", "Counts one more", "labkit-counter-more")
            self.shown = HTML()
            self.on(self.more, self.count)            # errors become one line in the status
            self.fill(self.more, self.shown)

        def count(self) -> None:
            ...                                       # one public function, and what it returned
            self.say("counted"), self.show_code("lab.count()")
"""

from __future__ import annotations

import asyncio
import base64
import html
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from ipywidgets import HTML, BoundedIntText, Button, HBox, Select, Stack, ToggleButtons, VBox
from ipywidgets import ToggleButton as Toggle

from labkit.errors import Fatal, LabkitError, describe
from labkit.journal.explore import STEPS
from labkit.journal.reading import limited
from labkit.lab import verbs
from labkit.lab.process import NotReady

__all__ = [
    "CELL", "CLOSED", "LIMIT", "PAGE", "Chooser", "Panel", "Tabs", "block", "button", "inline",
    "options", "picture", "row", "table", "visible", "within",
]  # fmt: skip

LIMIT = 20_000  # characters that one widget may hold
CELL = 80  # characters of a cell in a table
LINE = 100  # of a row to choose
PAGE = 200  # rows at a time
EVERY_S = 0.1
BRIEF_S = 0.5  # for a file that is locked: no cell of the notebook runs while a panel waits
CLOSED = "This panel is closed; run its cell again."
AS_WIDE_AS_IT_IS = {"description_width": "initial"}
EXPECTED = (LabkitError, Fatal, OSError)  # a panel says these and goes on


def visible(value: object, limit: int = 200, *, lines: bool = False) -> str:
    """Text with control, direction and other invisible characters written out, cut at `limit`.

    `lines` keeps line ends and tabs. It is plain text still: in HTML use `inline` or `block`.
    """
    text = value if isinstance(value, str) else str(value)
    kept, left = text[:limit], len(text) - limit
    shown = "".join(c if c.isprintable() or (lines and c in "\n\t") else _name(c) for c in kept)
    return f"{shown}… ({left:,} more characters)" if left > 0 else shown


def _name(character: str) -> str:
    return character.encode("unicode_escape").decode()


def inline(value: object, limit: int = 200) -> str:
    """`visible` as HTML for within a line. Text from right to left stays in its place."""
    return f"<bdi>{html.escape(visible(value, limit))}</bdi>"


def block(value: object, label: str, limit: int = 10_000) -> str:
    """`visible` as HTML with its line ends, in a box that scrolls, by the keyboard too."""
    text = _within(visible(value, limit, lines=True))
    named = f'role="region" aria-label="{html.escape(visible(label))}"'
    return f'<pre class="labkit-block" tabindex="0" {named}>{text}</pre>'


def _within(text: str) -> str:
    """Escaped, and not above LIMIT: `&` alone takes five characters there."""
    escaped = html.escape(text)
    while len(escaped) > LIMIT:
        text = text[: len(text) * LIMIT // len(escaped) - 40]
        escaped = html.escape(f"{text}… (cut here)")
    return escaped


def table(
    names: Sequence[object],
    rows: Iterable[Sequence[object]],
    label: str,
    *,
    total: int = 0,
    has_more: bool = False,
) -> str:
    """An HTML table of at most PAGE rows and LIMIT characters. A sentence below says what is left
    out of `total` rows, or of those given, or that there are more (`has_more`, where nobody
    counted). A missing value is an empty cell.
    """
    every = list(rows)
    head = "".join(f'<th scope="col">{inline(name, CELL)}' for name in names)
    # Without the end tags that HTML can do without: a third of the characters.
    lines: list[str] = []
    room = LIMIT - len(head) - 600
    for values in every[:PAGE]:
        lines.append("<tr>" + "".join(f"<td>{_cell(value)}" for value in values))
        room -= len(lines[-1])
        if room < 0:
            lines.pop()
            break
    said = _left_out(len(lines), max(total, len(every)), has_more)
    named = f'role="region" aria-label="{html.escape(visible(label))}"'
    body = f"<table><thead><tr>{head}<tbody>{''.join(lines)}</table>"
    return f'<div class="labkit-table" tabindex="0" {named}>{body}</div>{said}'


def _cell(value: object) -> str:
    if isinstance(value, bytes):  # first: 100 MB of them as text take five seconds
        value = f"{len(value):,} bytes, not text"
    if not isinstance(value, str) and str(value) in _MISSING:
        return ""
    text = html.escape(visible(value, CELL))
    return text if text.isascii() else f"<bdi>{text}</bdi>"


_MISSING = frozenset({"None", "nan", "<NA>", "NaT"})


def _left_out(shown: int, total: int, has_more: bool) -> str:
    if has_more:
        return f"<p>The first {shown:,} rows are shown; there are more.</p>"
    if shown == total:
        return "" if total else "<p>No rows.</p>"
    return f"<p>The first {shown:,} of {total:,} rows are shown.</p>"


def picture(png: bytes, alt: str) -> str:
    """An image with its sentence as alternative text; `widgets.Image` has none."""
    data = base64.b64encode(png).decode()
    sentence = html.escape(visible(alt, 1000), quote=True)
    return f'<img class="labkit-picture" alt="{sentence}" src="data:image/png;base64,{data}">'


def button(description: str, tooltip: str, css_class: str, icon: str = "") -> Button:
    """As wide as its words. `css_class` is what a browser test finds it by."""
    made = Button(description=description, tooltip=tooltip, icon=icon, layout={"width": "auto"})
    return made.add_class(css_class)


def row(*children: Any) -> HBox:
    """Controls side by side, in a second line where the first is full."""
    return HBox(children, layout={"flex_flow": "row wrap", "align_items": "center"})


class Chooser:
    """Rows to choose from with the arrow keys, at most PAGE at a time, with Earlier, Later and Go.

    `root` is the widget; `on_choose` is called with the key of a row when it was chosen.
    """

    def __init__(self, name: str, css_class: str, rows: int = 12, key_name: str = "seq") -> None:
        self.on_choose: Callable[[int], None] = lambda key: None
        self.select = Select(
            description=name, tooltip="Arrow keys choose", rows=rows, style=AS_WIDE_AS_IT_IS,
            layout={"width": "auto", "height": "auto"},
        ).add_class("labkit-rows")  # fmt: skip
        self.earlier = button("Earlier", f"The {PAGE} rows before", f"{css_class}-earlier")
        self.later = button("Later", f"The {PAGE} rows after", f"{css_class}-later")
        self.goto = BoundedIntText(
            description=f"Go to {key_name}", tooltip="Enter goes there", min=0, max=2**53,
            style=AS_WIDE_AS_IT_IS,
            layout={"width": "13em"}, continuous_update=False,
        ).add_class(f"{css_class}-goto")  # fmt: skip
        self.where = HTML().add_class(f"{css_class}-where")
        paging = row(self.earlier, self.later, self.goto, self.where)
        self.root = VBox([self.select, paging]).add_class(css_class)
        self._keys: Sequence[int] = ()
        self._lines_of: Callable[[Sequence[int]], Sequence[str]] = lambda keys: [""] * len(keys)
        self._first, self._is_filling = 0, False

    @property
    def chosen(self) -> int | None:
        """The key of the chosen row."""
        key = self.select.value
        return None if key is None else int(key)

    def listen(self, panel: Panel) -> None:
        """Its buttons work from now on, and its errors go to the panel's status."""
        panel.on(self.earlier, lambda: self._turn(-PAGE))
        panel.on(self.later, lambda: self._turn(PAGE))
        panel.on(self.goto, self.go_to)
        panel.on(self.select, self._tell)

    def fill(
        self,
        keys: Sequence[int],
        lines_of: Callable[[Sequence[int]], Sequence[str]],
        choose: int | None = None,
    ) -> None:
        """Shows rows with these keys, which ascend; `lines_of` gives the lines of one page of them.

        The row `choose`, or the last one before it, is chosen, without `on_choose`; else none is.
        """
        self._keys, self._lines_of = keys, lines_of
        at = None if choose is None or not keys else self._index_of(choose)
        self._show(self._page_of(at or 0), at)

    def go_to(self, key: int) -> None:
        """Chooses the row with that key, or the last one before it."""
        if self._keys:
            at = self._index_of(key)
            self._show(self._page_of(at), at)
            self.on_choose(self._keys[at])

    def _index_of(self, key: int) -> int:
        return max(0, bisect_right(self._keys, key) - 1)

    @staticmethod
    def _page_of(index: int) -> int:
        return index // PAGE * PAGE

    def _turn(self, by: int) -> None:
        self._show(self._first + by, None)

    def _show(self, first: int, chosen: int | None) -> None:
        last_page = self._page_of(max(0, len(self._keys) - 1))
        self._first = min(max(0, first), last_page)
        keys = list(self._keys[self._first : self._first + PAGE])
        width = len(f"{keys[-1]}") if keys else 0
        lines = zip(keys, self._lines_of(keys), strict=True)
        # A browser joins spaces in a list, unless they are of the kind that stays.
        shown = [(f"{key:>{width}}  {visible(line, LINE)}", key) for key, line in lines]
        options = [(text.replace(" ", "\xa0"), key) for text, key in shown]
        self._is_filling = True
        try:
            self.select.options = options
            self.select.index = None if chosen is None else chosen - self._first
        finally:
            self._is_filling = False
        self.earlier.disabled = self._first == 0
        self.later.disabled = self._first == last_page
        self.where.value = self._in_words(len(keys))

    def _in_words(self, shown: int) -> str:
        total = len(self._keys)
        if not total:
            return "No rows."
        if shown == total:
            return f"{total:,} row{'' if total == 1 else 's'}"
        return f"rows {self._first + 1:,} to {self._first + shown:,} of {total:,}"

    def _tell(self, key: int | None) -> None:
        if key is not None and not self._is_filling:
            self.on_choose(int(key))


def options(named: Iterable[tuple[str, object]], limit: int = 40) -> list[tuple[str, object]]:
    """For a list or a menu: names made visible and cut, each once, since widgets go by the name."""
    seen: Counter[str] = Counter()
    made: list[tuple[str, object]] = []
    for name, value in named:
        label = visible(name, limit)
        seen[label] += 1
        made.append((f"{label} ({seen[label]})" if seen[label] > 1 else label, value))
    return made


class Tabs:
    """Pages of which one is shown. Buttons, since they are reached by the keyboard everywhere."""

    def __init__(self, name: str, pages: dict[str, Any], css_class: str) -> None:
        self.names = list(pages)
        self.buttons = ToggleButtons(
            options=self.names,
            description=name,
            tooltip=f"{name}: which page",
            style={"button_width": "auto", **AS_WIDE_AS_IT_IS},
        ).add_class(css_class)
        self.pages = Stack(list(pages.values()), selected_index=0)
        self.root = VBox([self.buttons, self.pages])

    @property
    def shown(self) -> str:
        return str(self.buttons.value)

    def turn(self) -> None:
        """Shows the page whose button is pressed."""
        self.pages.selected_index = self.names.index(self.shown)


@contextmanager
def within() -> Iterator[None]:
    """A panel that is made here is a part of another one, which closes it: it takes no place of its
    own beside the notebook, so it closes no other panel of its name, and none closes it."""
    token = _is_within.set(True)
    try:
        yield
    finally:
        _is_within.reset(token)


_is_within = ContextVar("within", default=False)


class Panel:
    """Widgets, a status line, the code of the last act, and one task that looks at what goes on.

    `sentence` is what a stored notebook shows instead of the widgets. An open notebook closes the
    panel at `lab.end()` and at the next `lab.begin()`; an earlier panel of this `name` is closed
    at once.
    """

    steps = STEPS  # of SQLite's machine, in which a reading of the panel ends

    def __init__(self, name: str, sentence: str, *, every_s: float = EVERY_S) -> None:
        self.name, self.sentence, self.every_s = name, sentence, every_s
        self.status = HTML().add_class("labkit-status")
        self.code = HTML().add_class("labkit-code")
        self.room = Toggle(
            description="Room", tooltip="Larger letters, for a projector", layout={"width": "auto"}
        ).add_class("labkit-room-switch")
        self.root = VBox().add_class("labkit-panel").add_class(f"labkit-{name}")
        self.is_closed = False
        self.last_code = ""
        self.alone = threading.RLock()  # whoever holds it may change the panel
        self._loop, self._is_looking = _running_loop(), False
        self._task: asyncio.Task[None] | Future[None] | None = None
        self.on(self.room, self._switch_room)
        if not _is_within.get():
            self._stand_beside()

    def _stand_beside(self) -> None:
        with suppress(NotReady):  # a panel works without a notebook too
            beside = verbs.current_notebook().beside
            if self.name in beside:
                beside[self.name].close()
            beside[self.name] = self

    def fill(self, *children: Any) -> None:
        """What the panel consists of, from top to bottom; style, status and code are added."""
        self.root.children = (HTML(_CSS), *children, self.status, self.code)

    def on(self, widget: Any, act: Callable[..., object]) -> None:
        """Calls `act()` at each click of a button, `act(value)` at each change of another widget.

        An error that labkit raises on purpose becomes the status line. It must not leave from here:
        a StorageFault, which is no Exception, would end the kernel.
        """
        if isinstance(widget, Button):
            widget.on_click(lambda _: self.attempt(act))
        else:
            widget.observe(lambda change: self.attempt(act, change["new"]), "value")

    def attempt(self, act: Callable[..., object], *values: object) -> None:
        """Calls `act(*values)`; an error that is to be expected is shown in one line.

        One at a time: JupyterLab hands what a widget says to a subshell of the kernel, which is
        another thread than that of the cells, where the panel looks.
        """
        with self.alone, limited(BRIEF_S, self.steps):
            try:
                act(*values)
            except EXPECTED as error:
                self.fail(error)

    def say(self, text: str) -> None:
        """One line, which a screen reader reads out."""
        self._tell("", text)

    def fail(self, error: BaseException) -> None:
        self._tell("labkit-failed", describe(error))

    def _tell(self, css_class: str, text: str) -> None:
        said = (
            f'<div role="status" aria-live="polite" class="{css_class}">{inline(text, 400)}</div>'
        )
        self.status.value = said

    def show_code(self, code: str) -> None:
        """The code that does what was just done, to be copied to a cell."""
        self.last_code = code
        self.code.value = f"<p>The same in a cell:</p>{block(code, 'code of the last act', 2000)}"

    def look(self) -> bool:
        """Looks once at what goes on, and shows it. False where there is nothing more to come."""
        return False

    def watch(self) -> None:
        """Looks every `every_s` seconds until `look` returns False, in a task of the loop in which
        the panel was made: that of a subshell ends with its page. Where no loop runs, as in a test,
        somebody calls `look` instead.
        """
        with self.alone:
            loop = self._loop or _running_loop()
            if loop is None or self._is_looking:
                return
            self._is_looking = True
            if loop is _running_loop():
                self._task = loop.create_task(self._keep_looking())
            else:
                self._task = asyncio.run_coroutine_threadsafe(self._keep_looking(), loop)

    async def _keep_looking(self) -> None:
        try:
            while self._look_again():
                await asyncio.sleep(self.every_s)
        finally:
            self._is_looking = False

    def _look_again(self) -> bool:
        # No cell runs while this waits, and what somebody asked for may take long.
        if not self.alone.acquire(blocking=False):
            return True
        try:
            with limited(BRIEF_S, self.steps):
                self._is_looking = not self.is_closed and self.look()
        except EXPECTED as error:
            self.fail(error)
        finally:
            self.alone.release()
        return self._is_looking  # if not, the next `watch` starts another task

    def _switch_room(self, is_room: bool) -> None:
        change = self.root.add_class if is_room else self.root.remove_class
        change("labkit-room")
        self.redraw()

    @property
    def style(self) -> str:
        """The style of a timeline: "room" or "notebook"."""
        return "room" if self.room.value else "notebook"

    def redraw(self) -> None:
        """Draws the pictures again, in another style."""

    def close(self) -> None:
        """Ends its task and takes its widgets away: where they were, a line says so. A second call
        does nothing."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._task is not None:
            self._task.cancel()
        gone, self.root.children = self.root.children, (HTML(f"<p>{CLOSED}</p>"),)
        for each in gone:
            _close(each)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        if self.is_closed:
            return {"text/plain": f"{self.sentence} It is closed."}
        return {**self.root._repr_mimebundle_(), "text/plain": self.sentence}

    def __repr__(self) -> str:
        return self.sentence


def _running_loop() -> asyncio.AbstractEventLoop | None:
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


def _close(widget: Any) -> None:
    for child in getattr(widget, "children", ()):
        _close(child)
    for name in ("layout", "style"):
        if part := getattr(widget, name, None):
            part.close()
    widget.close()


# JupyterLab's own colours: legible in its light and its dark theme, and in any other.
# The script: a notebook takes the arrow keys for its cells, also from a list that has the focus;
# only what carries this attribute keeps its keys. Save and the sidebar (S, B) are handed on from
# the panel itself. The handle of a slider has no name of its own. A click into a number takes it
# whole, so that what is typed takes its place; the wheel scrolls the page instead of counting.
# There is no panel where a cell is run again while its old output is still being drawn.
_CSS = """<style onload="
const panel = this.closest('.labkit-panel');
if (panel) {
const tend = () => {
  for (const part of panel.querySelectorAll('select, input, textarea, button, [tabindex]'))
    part.setAttribute('data-lm-suppress-shortcuts', '');
  for (const part of panel.querySelectorAll('[role=slider], .widget-readout'))
    part.setAttribute('aria-label',
      part.closest('.jupyter-widgets').querySelector('label')?.textContent ?? '');
  for (const part of panel.querySelectorAll('.widget-toggle-button'))
    part.setAttribute('aria-pressed', part.classList.contains('mod-active'));
};
const watched = {childList: true, subtree: true, attributes: true, attributeFilter: ['class']};
new MutationObserver(tend).observe(panel, watched);
tend();
if (!panel.isTended) {
  panel.isTended = true;
  const isNumber = (element) => element.matches('input[type=number]');
  panel.addEventListener('click', ({target}) => isNumber(target) && target.select());
  panel.addEventListener('wheel', ({target}) => isNumber(target) && target.blur());
  panel.addEventListener('keydown', (event) => {
    const {key, keyCode, ctrlKey, metaKey, isTrusted} = event;
    if (!isTrusted || !(ctrlKey || metaKey) || !['s', 'b'].includes(key)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const same = {key, keyCode, ctrlKey, metaKey, bubbles: true, cancelable: true};
    panel.dispatchEvent(new KeyboardEvent('keydown', same));
  }, true);
}
}
">
.labkit-panel { color: var(--jp-ui-font-color1); max-width: 100%; }
.labkit-panel .widget-html-content { line-height: 1.4; min-width: 0; overflow-wrap: anywhere; }
.labkit-panel .widget-html { height: auto; min-width: 0; }
.labkit-panel select, .labkit-panel textarea, .labkit-panel .labkit-code pre {
  font-family: var(--jp-code-font-family); }
.labkit-panel .labkit-rows select { font-size: var(--jp-widgets-font-size); overflow: auto; }
.labkit-panel pre.labkit-block { margin: 0; padding: 4px 8px; max-height: 14em; overflow: auto;
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: inherit;
  color: var(--jp-content-font-color1); background: var(--jp-layout-color2);
  border: 1px solid var(--jp-border-color1); }
.labkit-panel .labkit-table { overflow: auto; max-height: 18em; }
.labkit-panel .labkit-table table { border-collapse: collapse; width: auto; margin: 0;
  font-family: var(--jp-code-font-family); font-size: inherit; }
.labkit-panel .labkit-table th { position: sticky; top: 0; background: var(--jp-layout-color2); }
.labkit-panel .labkit-table th, .labkit-panel .labkit-table td { padding: 1px 8px;
  text-align: left; white-space: nowrap; color: var(--jp-content-font-color1);
  border: 1px solid var(--jp-border-color2); }
.labkit-panel p { margin: 2px 0; }
.labkit-panel .labkit-picture { max-width: 100%; background: white; }
.labkit-panel .labkit-status { min-height: 1.6em; font-weight: 600; }
.labkit-panel .labkit-failed { border-left: 4px solid var(--jp-error-color1); padding-left: 6px; }
.labkit-panel .widget-toggle-button.mod-active { font-weight: 700;
  outline: 2px solid var(--jp-ui-font-color1); outline-offset: -3px; }
.labkit-panel .labkit-failed::before { content: "Error: "; }
.labkit-panel .jupyter-widgets :focus-visible,
.labkit-panel .widget-toggle-button.mod-active:focus-visible {
  outline: 2px solid var(--jp-brand-color1) !important; outline-offset: -1px; }
.labkit-room { --jp-widgets-font-size: 19px; --jp-widgets-inline-height: 38px;
  --jp-code-font-size: 18px; font-size: 19px; }
.labkit-panel .widget-html-content { font-size: var(--jp-widgets-font-size); }
</style>"""

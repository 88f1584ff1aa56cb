"""The parts of panels, driven without a browser: values are set, buttons are clicked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

import pandas as pd
import pytest
from ipywidgets import HTML, Text

from labkit.errors import BadInput, StorageFault
from labkit.lab import verbs
from labkit.lab.panels import parts
from labkit.lab.panels.parts import (
    CLOSED,
    LIMIT,
    PAGE,
    Chooser,
    Panel,
    Tabs,
    block,
    button,
    inline,
    options,
    picture,
    table,
    visible,
)

NASTY = (
    "<img src=x onerror=alert(1)>",
    "</pre><script>alert(1)</script>",
    '" onfocus="alert(1)',
    "\x1b[31mred",
    "a\u202egnp.exe",
    "nul\0here",
    "\u2028line\u2029",
    "lone \ud800 surrogate",
)


@pytest.mark.parametrize("text", NASTY)
def test_text_is_shown_and_obeyed_by_nobody(text: str) -> None:
    for html in (inline(text), block(text, text), table([text], [[text]], text)):
        assert "<img" not in html
        assert "<script" not in html
        assert '" onfocus' not in html
        assert html.count("</pre>") == html.startswith("<pre")
        assert not any(character in html for character in "\x1b\u202e\0\u2028\ud800")


def test_what_is_invisible_is_written_out() -> None:
    assert visible("a\x1b[31m\u202eb\n") == "a\\x1b[31m\\u202eb\\n"
    assert visible("a\n\tb\r", lines=True) == "a\n\tb\\r"


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    assert visible("x" * 10, 4) == "xxxx… (6 more characters)"
    assert visible("x" * 10, 10) == "x" * 10
    assert "9,999,900 more characters" in visible("\x1b" * 10_000_000, 100)


@pytest.mark.parametrize("text", ["&" * 10_000_000, "\u202e" * 100_000, "x" * 100_000])
def test_no_widget_holds_more_than_its_limit(text: str) -> None:
    assert len(block(text, "data", 100_000)) <= LIMIT + 200
    assert len(table(["a"], [[text]] * 1000, "rows")) <= LIMIT + 200


def test_a_table_says_what_it_leaves_out() -> None:
    rows = [(n, None, float("nan"), b"\0\1") for n in range(PAGE + 1)]
    html = table(["n", "nothing", "nan", "bytes"], rows, "numbers")
    assert html.count("<tr>") == PAGE + 1  # and the head
    assert f"The first {PAGE} of {PAGE + 1} rows are shown." in html
    assert "<td>0<td><td><td>2 bytes, not text" in html
    assert "<td><td><td>nan" in table(["a", "b", "c"], [(pd.NA, pd.NaT, "nan")], "missing")
    assert "rows are shown" not in table(["n"], rows[:1], "one")
    assert "No rows." in table(["n"], [], "none")
    assert "The first 1 of 7 rows are shown." in table(["n"], [[1]], "cut", total=7)


def test_a_table_of_rows_that_nobody_counted() -> None:
    html = table(["n"], [[n] for n in range(3)], "endless", has_more=True)
    assert html.endswith("<p>The first 3 rows are shown; there are more.</p>")


def test_names_in_a_menu_are_visible_and_each_is_once() -> None:
    made = options([("a\u202e", 1), ("b" * 99, 2), ("b" * 98, 3), ("a\u202e", 4)], limit=9)
    labels = [label for label, _ in made]
    assert labels[0] == "a\\u202e"
    assert labels[3] == "a\\u202e (2)"
    assert len(set(labels)) == 4
    assert [value for _, value in made] == [1, 2, 3, 4]


def test_a_picture_has_its_sentence() -> None:
    assert 'alt="2 &quot;runs&quot;"' in picture(b"png", '2 "runs"')


def lines_of(keys: Sequence[int]) -> list[str]:
    return [f"row  {key}" for key in keys]


@pytest.fixture
def chooser() -> Chooser:
    made = Chooser("Events", "labkit-test-events")
    made.listen(Panel("test", "A panel."))
    return made


def test_a_chooser_shows_a_page_and_turns_it(chooser: Chooser) -> None:
    asked: list[int] = []

    def count_lines(keys: Sequence[int]) -> list[str]:
        asked.append(len(keys))
        return lines_of(keys)

    chooser.fill(range(1, 100_001), count_lines)
    assert len(chooser.select.options) == PAGE
    assert chooser.where.value == "rows 1 to 200 of 100,000"
    assert chooser.chosen is None
    assert (chooser.earlier.disabled, chooser.later.disabled) == (True, False)
    chooser.later.click()
    assert chooser.select.options[0][1] == 201
    chooser.earlier.click()
    assert chooser.select.options[0][1] == 1
    chooser.goto.value = 99_999
    assert chooser.chosen == 99_999
    assert chooser.later.disabled
    assert max(asked) == PAGE  # 100,000 lines are never made


def test_a_row_is_visible_and_cut(chooser: Chooser) -> None:
    chooser.fill([1], lambda keys: ["\u202e" + "x" * 10_000_000])
    [(label, _)] = chooser.select.options
    assert label.startswith("1\xa0\xa0\\u202exxx")
    assert len(label) < 200


def test_spaces_of_a_row_stay(chooser: Chooser) -> None:
    chooser.fill([5, 1000], lines_of)
    assert [label for label, _ in chooser.select.options] == [
        "\xa0\xa0\xa05\xa0\xa0row\xa0\xa05",
        "1000\xa0\xa0row\xa0\xa01000",
    ]


def test_a_chooser_tells_what_was_chosen_by_hand_only(chooser: Chooser) -> None:
    told: list[int] = []
    chooser.on_choose = told.append
    chooser.fill([3, 5, 9], lines_of, choose=5)
    assert (chooser.chosen, told) == (5, [])
    chooser.select.index = 2
    assert told == [9]
    chooser.go_to(8)  # the last one before it
    assert told == [9, 5]
    chooser.fill([], lines_of)
    assert (chooser.chosen, chooser.where.value, told) == (None, "No rows.", [9, 5])


def test_tabs_show_the_page_of_their_button() -> None:
    tabs = Tabs("View", {"One": HTML("1"), "Two": HTML("2")}, "labkit-test-tabs")
    tabs.buttons.value = "Two"
    tabs.turn()
    assert (tabs.shown, tabs.pages.selected_index) == ("Two", 1)


class Counter(Panel):
    """A panel as `parts` describes it."""

    def __init__(self, raises: BaseException | None = None) -> None:
        super().__init__("counter", "A panel that counts.", every_s=0)
        self.raises, self.looks, self.drawn = raises, 0, []
        self.more = button("More", "Counts one more", "labkit-counter-more")
        self.text = Text()
        self.on(self.more, self.count)
        self.on(self.text, self.say)
        self.fill(self.more, self.text)

    def count(self) -> None:
        if self.raises:
            raise self.raises
        self.say("counted")
        self.show_code("lab.count('<b>')")

    def look(self) -> bool:
        self.looks += 1
        self.count()
        return self.looks < 3

    def redraw(self) -> None:
        self.drawn.append(self.style)


def test_an_act_says_what_it_did_and_how_to_do_it() -> None:
    panel = Counter()
    panel.more.click()
    assert 'role="status"' in panel.status.value
    assert "counted" in panel.status.value
    assert "lab.count(&#x27;&lt;b&gt;&#x27;)" in panel.code.value
    panel.text.value = "<i>"
    assert "&lt;i&gt;" in panel.status.value


@pytest.mark.parametrize("error", [BadInput("no <b>"), StorageFault("no <b>"), OSError("no <b>")])
def test_an_error_is_one_line_and_the_panel_goes_on(error: BaseException) -> None:
    panel = Counter(error)
    with suppress(type(error)):  # if it left, the status would not have it
        panel.more.click()
    assert "labkit-failed" in panel.status.value
    assert "no &lt;b&gt;" in panel.status.value
    panel.raises = None
    panel.more.click()
    assert "labkit-failed" not in panel.status.value


def test_a_defect_is_not_taken_for_bad_input() -> None:
    with pytest.raises(ZeroDivisionError):
        Counter(ZeroDivisionError()).attempt(Counter(ZeroDivisionError()).count)


@pytest.mark.parametrize("error", [None, StorageFault("gone")])
def test_it_looks_until_nothing_more_comes(error: BaseException | None) -> None:
    panel = Counter()

    async def watch() -> None:
        panel.watch()
        panel.watch()  # not a second task
        await panel._task  # type: ignore[misc]

    if error is None:
        asyncio.run(watch())
        assert panel.looks == 3
        return
    panel.raises = error  # as by a file that is gone; it comes back, and the panel goes on

    def come_back(looks: int = 2, usual: Any = panel.look) -> bool:
        if panel.looks == looks:
            panel.raises = None
        return bool(usual())

    panel.look = come_back  # type: ignore[method-assign]
    asyncio.run(watch())
    assert panel.looks == 3
    assert "counted" in panel.status.value


def test_it_looks_in_the_loop_in_which_it_was_made() -> None:
    """Not in that of a subshell, the thread in which JupyterLab's messages arrive."""

    async def watch_from_another_thread() -> set[int]:
        panel = Counter()
        threads: set[int] = set()
        usual = panel.look

        def look() -> bool:
            threads.add(threading.get_ident())
            return usual()

        panel.look = look  # type: ignore[method-assign]
        await asyncio.to_thread(panel.watch)
        while panel.looks < 3:
            await asyncio.sleep(0)
        return threads

    assert asyncio.run(watch_from_another_thread()) == {threading.get_ident()}


def test_what_a_person_does_waits_for_a_look() -> None:
    """Both change the panel, each in its own thread."""
    panel = Counter()
    with ThreadPoolExecutor(1) as pool:
        with panel.alone:
            act = pool.submit(panel.attempt, panel.count)
            assert wait([act], timeout=0.05).not_done  # the control is the next line
            assert "counted" not in panel.status.value
        act.result()
    assert "counted" in panel.status.value


def test_a_look_waits_for_nothing_that_a_person_does() -> None:
    """It is in the thread of the cells, none of which runs while it waits."""
    panel = Counter()
    has_begun, may_end = threading.Event(), threading.Event()

    def act() -> None:
        has_begun.set()
        may_end.wait(5)  # a look that waits for this, waits so long, and looks then

    with ThreadPoolExecutor(1) as pool:
        person = pool.submit(panel.attempt, act)
        has_begun.wait()
        assert panel._look_again()  # there will be another one
        may_end.set()
        person.result()
    assert panel.looks == 0
    panel._look_again()
    assert panel.looks == 1
    panel.close()


def test_without_a_loop_nothing_is_started() -> None:
    panel = Counter()
    panel.watch()
    assert panel._task is None


def test_close_ends_the_task_and_every_widget() -> None:
    panel = Counter()
    panel.raises = StorageFault("for ever")

    async def close_while_it_looks() -> None:
        panel.watch()
        task = panel._task
        assert task
        await asyncio.sleep(0)
        panel.close()
        await asyncio.wait([task])

    asyncio.run(close_while_it_looks())
    assert panel.looks >= 1
    assert [w.comm for w in (panel.more, panel.text, panel.text.layout)] == [None] * 3
    [left] = panel.root.children  # whoever looks at it still is told
    assert left.value == f"<p>{CLOSED}</p>"
    panel.close()
    assert panel._repr_mimebundle_() == {"text/plain": "A panel that counts. It is closed."}


def test_what_is_stored_of_it_is_a_sentence() -> None:
    bundle = Counter()._repr_mimebundle_(include=None, exclude=None)
    assert bundle["text/plain"] == "A panel that counts."
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_the_room_switch_changes_the_letters_and_the_pictures() -> None:
    panel = Counter()
    panel.room.value = True
    assert "labkit-room" in panel.root._dom_classes
    panel.room.value = False
    assert "labkit-room" not in panel.root._dom_classes
    assert panel.drawn == ["room", "notebook"]


def test_the_notebook_closes_its_panel(capsys: pytest.CaptureFixture[str]) -> None:
    verbs.begin("01")
    first, second = Counter(), Counter()
    assert (first.is_closed, second.is_closed) == (True, False)
    verbs.begin("01")
    assert second.is_closed
    third = Counter()
    verbs.end()
    assert third.is_closed


def test_every_control_says_what_it_is_for() -> None:
    chooser = Chooser("Events", "labkit-test-events")
    for control in (chooser.select, chooser.goto):
        assert control.description
    for control in (chooser.earlier, chooser.later, Counter().room):
        assert control.description
        assert control.tooltip


def test_what_is_public_is_all_there() -> None:
    assert [name for name in parts.__all__ if not hasattr(parts, name)] == []

"""The journal explorer over a journal made to harm: text is shown, cut, and obeyed by nobody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.journals import make_journal
from labkit.journal.reading import Reader
from labkit.lab.panels.explorer import Explorer
from labkit.lab.panels.parts import LIMIT, PAGE
from tests.journal.conftest import Tamper, killed_twice, tamper
from tests.lab.panels.exploring import descendants, is_fine, said, show, sizes, texts, visit

__all__ = ["killed_twice", "tamper"]  # fixtures

PICTURE = 150_000  # characters: an image is no text, but stays small
NASTY = (
    "<img src=x onerror=alert(1)></pre><script>alert(1)</script>"
    "\x1b[31m\u202egpj.exe\u2066\u200f $\\alpha$ &lt; \r\n\u2028"
)


@pytest.fixture
def nasty(tamper: Tamper, tmp_path: Path) -> Path:
    """Every text column of every table carries it, with a NUL and ten megabytes behind it."""
    literal = f"CAST(x'{NASTY.encode().hex()}00' AS TEXT)"
    long = "printf('%.10000000c', '<')"
    data = f"json_object({literal}, {literal} || iif(seq = 4, {long}, ''))"
    ids = "task_id = {0}, run_id = {0} || run_id, owner = {0} || owner, kind = kind || {0}"
    return tamper(
        f"UPDATE events SET {ids.format(literal)}, step = {literal}, data = {data}",
        f"UPDATE events SET step = step || {long} WHERE seq = 5",
        f"UPDATE tasks SET id = {literal}, goal = {literal}, plan = {literal}",
        f"UPDATE steps SET task_id = {literal}, tool = {literal}, output = {literal} || {long}",
        "UPDATE events SET kind = 'step_started' WHERE seq IN (3, 5)",
        "UPDATE events SET kind = 'task_created', data = '{\"steps\":3}' WHERE seq = 1",
    )


def test_nothing_in_a_nasty_journal_is_obeyed(nasty: Path) -> None:
    panel = Explorer(nasty, folder=nasty.parent)
    assert panel.contents
    assert panel.contents.tasks[0].id == NASTY + "\0"
    seen: list[str] = []
    for each in descendants(panel.root):
        for name in {"value", "_options_labels"} & set(each.trait_names()):
            each.observe(lambda change: seen.append(str(change["new"])), name)
    visit(panel)
    assert is_fine(panel)
    for text in (*texts(panel), *seen):
        assert not set("\x1b\u202e\u2066\u200f\0\u2028\r") & set(text)
    for html in texts(panel):
        assert "<img" not in html.replace('<img class="labkit-picture"', "")
        assert "<script" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in "".join(texts(panel))
    panel.close()


def test_a_path_that_a_browser_would_turn_around_is_not_in_the_box(nasty: Path) -> None:
    panel = Explorer(nasty.rename(nasty.with_name("a\u202egnp.db")))
    assert is_fine(panel)
    assert panel.choices.path.value == ""
    panel.close()


def test_no_widget_holds_more_than_it_may(nasty: Path) -> None:
    panel = Explorer(nasty)
    visit(panel)
    assert {name: size for name, size in sizes(panel).items() if size > 1.3 * LIMIT} == {}
    pictures = [html for html in texts(panel) if "<img class" in html]
    assert len(pictures) == 2
    assert max(map(len, pictures)) < PICTURE
    panel.close()


def test_a_large_journal_is_cut(tmp_path: Path) -> None:
    path = make_journal(tmp_path / "large.db", 1_000)
    panel = Explorer(path)
    assert "2,001 events" in said(panel)
    assert panel.events.chooser.where.value == "rows 1 to 200 of 2,001"
    panel.events.chooser.goto.value = 1_900
    assert panel.seq == 1_900
    visit(panel)
    show(panel, "Replay")
    panel.replay.slider.value = 1_000  # in the middle of the steps, which are shown around it
    assert "<tr><td>499<td>noop" in panel.replay.standing.value
    assert {name: size for name, size in sizes(panel).items() if size > 1.3 * LIMIT} == {}
    panel.close()


def test_opening_reads_the_data_of_one_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other events are counted: of a million each may have a megabyte."""
    path = make_journal(tmp_path / "large.db", 1_000)
    read: list[int] = []
    pieces = Reader.pieces

    def counting(self: Reader, sql: str, values: Sequence[Any]) -> Iterator[list[Any]]:
        for piece in pieces(self, sql, values):
            read.append(len(piece) if "data" in sql else 0)
            yield piece

    monkeypatch.setattr(Reader, "pieces", counting)
    panel = Explorer(path)
    assert sum(read) == PAGE
    panel.close()

"""The timeline: figure, table and text say the same; no text of a journal becomes HTML."""

from __future__ import annotations

import gc
import html
import io
import re
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch

from labkit.errors import UnknownTask, UsageError
from labkit.journal import Journal, painter, timeline, timeline_table, timeline_text
from labkit.journal.chart import MAX_LANES, make_chart
from labkit.journal.figure import Timeline
from labkit.journal.figure import draw as draw_chart
from labkit.journal.painter import FACES, SIZES, paint
from labkit.journal.reading import Event
from tests.conftest import run_python
from tests.journal.conftest import Tamper
from tests.journal.histories import History

SUMMARY = (
    "Timeline of task demo (done): 3 runs, 5 attempts (2 finished, 1 deduplicated, 2 no entry), "
    "2 recoveries, 2 ended without an entry."
)


def draw(events: list[Event], **more: Any) -> Timeline:
    figure = Timeline(dpi=100, layout="constrained")
    figure.chart = make_chart(events, set())
    paint(figure, figure.chart, **{"by": "order", "size": SIZES["notebook"], "dark": False, **more})
    return figure


def one_lane_each(lanes: int, step: str = "tool", task: str = "t") -> list[Event]:
    """A task_created, and `lanes` runs that each start one attempt and say no more."""
    created = Event(1, 0.0, task, None, None, "task_created", None, None, None, '{"steps":1}')
    names = [f"{n:08x}" for n in range(lanes)]
    starts = [
        Event(n + 2, n + 1.0, task, name, name, "step_started", 0, step, n + 1, "{}")
        for n, name in enumerate(names)
    ]
    return [created, *starts]


def outlines_of(figure: Figure) -> list[PathPatch]:
    """One for each outcome that is there."""
    return [patch for patch in figure.axes[0].patches if isinstance(patch, PathPatch)]


def bars_of(figure: Figure) -> dict[str, int]:
    """How many polygons each colour has."""
    return {
        to_hex(outline.get_facecolor()).upper(): len(outline.get_path().to_polygons())
        for outline in outlines_of(figure)
    }


def words_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


# What it says.


def test_it_is_one_figure_that_says_one_sentence(killed_twice: Path) -> None:
    figure = timeline(Journal(killed_twice), "demo")
    assert isinstance(figure, Figure)
    assert len(figure.axes) == 1
    assert repr(figure) == figure.summary == SUMMARY
    assert repr(timeline(killed_twice, "demo")) == SUMMARY  # a path will do


def test_a_lane_for_each_run_and_a_bar_for_each_attempt(killed_twice: Path) -> None:
    figure = timeline(killed_twice, "demo")
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["run 00000001", "run 00000002", "run 00000003"]
    assert bars_of(figure) == {"#0072B2": 2, "#009E73": 1, "#CC79A7": 2}
    assert words_of(figure) == [
        "2 write_artifact #2", "2 write_artifact", "1 #2", "1 summarize", "0 fetch",
        "ended without an entry", "ended without an entry", "done",
    ]  # fmt: skip


@pytest.mark.parametrize(("style", "last"), [("panel", 4), ("panel", 10), ("room panel", 7)])
def test_the_last_bar_of_a_lane_has_its_whole_name(style: str, last: int) -> None:
    """However short it is, and wherever in the lane: a number alone is read as a name."""
    made = Event(1, 0.0, "t", None, None, "task_created", None, None, None, '{"steps":1}')
    begun = Event(2, 0.0, "t", "a", "a", "run_started", None, None, None, '{"recovered":[]}')
    more = [begun._replace(seq=seq, kind="step_error") for seq in range(3, last)]
    torn = Event(last, 0.0, "t", "a", "a", "step_started", 2, "write_artifact", 1, "{}")
    chart = make_chart([made, begun, *more, torn], set(), killed=["a"])
    figure = draw_chart(chart, style=style)
    assert words_of(figure) == ["2 write_artifact", "killed"]
    figure.png()  # it is laid out then
    name, ending = (text.get_window_extent() for text in figure.axes[0].texts)
    assert name.x1 <= figure.bbox.x1
    assert ending.x1 <= figure.bbox.x1


def test_a_very_long_name_does_not_press_the_bars_together() -> None:
    events = attempts_in_turn(3, 1, "step_finished")
    long = [event._replace(step=event.step and event.step * 30) for event in events]
    axes, usual = draw(long).axes[0], draw(events).axes[0]
    assert axes.get_xlim() == usual.get_xlim()
    assert [text.get_text() for text in axes.texts] == ["2", "1", "0", "ended without an entry"]


def test_the_table_twin(killed_twice: Path) -> None:
    table = timeline_table(killed_twice, "demo")
    columns = (
        table[["owner", "what", "outcome", "begin_seq", "end_seq"]].astype("string").fillna("-")
    )
    assert [" ".join(row).replace("000000", "") for row in columns.itertuples(index=False)] == [
        "01 attempt finished 3 4",
        "01 attempt no entry 5 5",
        "01 ended without an entry - 5 5",
        "02 recovery - 6 6",
        "02 attempt finished 8 9",
        "02 attempt no entry 10 10",
        "02 ended without an entry - 10 10",
        "03 recovery - 11 11",
        "03 attempt deduplicated 13 14",
        "03 deduplication - 14 14",
        "03 done - 15 15",
    ]
    assert timeline(killed_twice, "demo").table.equals(table)


TEXT = f"""\
{SUMMARY[:79]}
{SUMMARY[80:]}
run 00000001            [0==]     [1//?                                                ended \
without an entry
run 00000002                           R         [1==]     [2//?                       ended \
without an entry
run 00000003                                                    R         [2::]     !  done
"""


def test_the_text_twin(killed_twice: Path) -> None:
    text = timeline_text(killed_twice, "demo")
    assert text.startswith(TEXT)
    legend = text.removeprefix(TEXT).splitlines()
    assert legend[0].startswith("[n attempt at step n, by order of entries; = finished")
    assert max(map(len, legend)) <= 80
    assert all(line.endswith(",") for line in legend[:-1])  # no explanation is cut in two


@pytest.mark.parametrize(
    ("at_work", "status"), [((), "running, as the tables say"), (["00000001"], "running")]
)
def test_running_is_what_the_tables_say(at_work: list[str], status: str, left_open: Path) -> None:
    """After a kill they go on saying it: nothing told them."""
    figure = timeline(left_open, "demo", at_work=at_work)
    assert repr(figure).startswith(f"Timeline of task demo ({status}): ")
    assert f"Task demo: {status}" in figure.axes[0].get_title(loc="left")


def test_a_bar_without_an_end_is_torn_off(killed_twice: Path) -> None:
    """It has more corners than a rectangle, and stays inside the same box."""
    outlines = outlines_of(timeline(killed_twice, "demo"))
    corners = {len(bar) for outline in outlines for bar in outline.get_path().to_polygons()}
    assert len(corners) == 2


def test_killed_is_what_the_caller_knows(killed_twice: Path) -> None:
    known: dict[str, Any] = {"killed": {"00000001"}, "at_work": {"00000002"}}
    figure = timeline(killed_twice, "demo", **known)
    assert words_of(figure)[-3:] == ["killed", "at work", "done"]
    assert "1 killed, 1 at work." in repr(figure)
    endings = [
        line.rsplit("  ", 1)[1]
        for line in timeline_text(killed_twice, "demo", **known).splitlines()
        if line.startswith("run ")
    ]
    assert endings == ["killed", "at work", "done"]
    assert {"killed", "at work"} < set(timeline_table(killed_twice, "demo", **known)["what"])


@settings(max_examples=25, deadline=None)
@given(
    st.builds(History, st.integers(0, 10**9), st.integers(1, 4)), st.sampled_from(["order", "time"])
)
def test_the_picture_is_the_table_for_any_history(history: History, by: str) -> None:
    again = {idx for idx, step in enumerate(history.steps) if step[2]}
    chart = make_chart(history.events, again)
    figure = draw(history.events, by=by)
    figure.chart = chart
    table = figure.table
    starts = [event for event in history.events if event.kind == "step_started"]
    assert sum(bars_of(figure).values()) == (table["what"] == "attempt").sum() == len(starts)
    assert (table["what"] == "recovery").sum() == sum(
        event.kind == "step_recovered" for event in history.events
    )
    assert table["owner"].nunique() == history.runs
    assert len(chart.endings) == history.runs


# How it looks.


@pytest.mark.parametrize("by", ["order", "time"])
@pytest.mark.parametrize("lanes", [1, 5, 900])
def test_a_bar_without_length_can_be_seen(lanes: int, by: str) -> None:
    figure = draw(one_lane_each(lanes), by=by)
    low, high = figure.axes[0].get_xlim()
    pixels = 960 * 0.85
    [outline] = outlines_of(figure)
    bars = outline.get_path().to_polygons()
    assert len(bars) == lanes
    for x in (np.asarray(bar)[:, 0] for bar in bars):
        assert (x.max() - x.min()) / (high - low) * pixels > 3


def test_a_clock_that_jumps_back_stays_in_the_picture(tamper: Tamper) -> None:
    path = tamper("UPDATE events SET ts = 1767225000 WHERE seq BETWEEN 8 AND 9")
    axes = timeline(path, "demo", by="time").axes[0]
    assert axes.get_xlim()[0] < -600


@pytest.mark.parametrize("by", ["order", "time"])
def test_bars_stand_where_the_table_says(tamper: Tamper, by: str) -> None:
    figure = timeline(tamper(""), "demo", by=by)
    begin = "begin_seq" if by == "order" else "begin_s"
    wanted = figure.table.loc[figure.table.what == "attempt", begin]
    drawn = [
        polygon[:, 0].min()
        for patch in figure.axes[0].patches
        for polygon in map(np.asarray, patch.get_path().to_polygons())
    ]
    assert sorted(drawn) == pytest.approx(sorted(wanted.astype(float)))
    low, high = figure.axes[0].get_xlim()
    assert all(low < x < high for x in drawn)


def test_each_colour_has_its_pattern_and_word(tamper: Tamper) -> None:
    path = tamper("UPDATE events SET kind = 'step_error' WHERE seq = 4")
    figure = timeline(path, "demo")
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == [
        "finished", "deduplicated: its effect was there already", "error or interrupted",
        "no entry of its end", "recovery", "error", "deduplication",
    ]  # fmt: skip
    hatches = [outline.get_hatch() or "" for outline in outlines_of(figure)]
    assert hatches == [hatch for _, hatch in FACES.values()]
    assert len(set(hatches)) == 4


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("paper", ["#FFFFFF", "#111111"])
@pytest.mark.parametrize("colour", [face for face, _ in FACES.values()])
def test_colours_reach_three_to_one(colour: str, paper: str) -> None:
    """The contrast that WCAG 2.2 asks of graphics (1.4.11)."""
    dark, light = sorted([luminance(colour), luminance(paper)])
    assert (light + 0.05) / (dark + 0.05) >= 3


@pytest.mark.sampled
@pytest.mark.parametrize(("style", "dark"), [("notebook", False), ("room", True)])
@pytest.mark.parametrize("lanes", [1, 3, 9, 30])
def test_it_fits_a_projector(lanes: int, style: str, dark: bool) -> None:
    figure = draw(one_lane_each(lanes), size=SIZES[style], dark=dark)
    image = matplotlib.image.imread(io.BytesIO(figure.png()))
    height, width, _ = image.shape
    assert width <= 1280
    assert height <= 720
    assert np.allclose(image[0, 0, :3], 17 / 255 if dark else 1)
    # Nothing is cut off: the border is paper all around.
    border = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])[:, :3]
    assert np.allclose(border, image[0, 0, :3])


def test_many_lanes_are_capped_with_a_sentence() -> None:
    figure = draw(one_lane_each(MAX_LANES + 2))
    cap = "Only the first 1,000 of 1,002 runs are shown."
    assert cap in repr(figure)
    assert figure.axes[0].get_title(loc="left").endswith(cap)
    assert bars_of(figure) == {"#CC79A7": MAX_LANES}
    assert figure.table["owner"].nunique() == MAX_LANES


def test_few_artists_however_many_bars() -> None:
    axes = draw(one_lane_each(900)).axes[0]
    assert (len(axes.collections), len(axes.patches)) == (1, 1)  # the lanes, and one outcome


def attempts_in_turn(steps: int, lanes: int, closer: str) -> list[Event]:
    """Each run makes an attempt, then the next run one."""
    events = [
        Event(2 * idx + half, 0.0, "t", run, run, kind, idx, "tool", 1, "{}")
        for idx, run in enumerate(f"{idx % lanes:08x}" for idx in range(steps))
        for half, kind in enumerate(("step_started", closer), start=2)
    ]
    created = f'{{"steps":{steps}}}'
    return [Event(1, 0.0, "t", None, None, "task_created", None, None, None, created), *events]


@pytest.mark.parametrize("lanes", [1, 3])
def test_bars_that_overlap_look_the_same_when_drawn_as_one(
    lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = attempts_in_turn(1000, lanes, "step_error")
    joined = draw(events)
    assert bars_of(joined) == {"#D55E00": lanes}
    monkeypatch.setattr(painter, "_joined", lambda *bars: bars)
    single = draw(events)
    assert bars_of(single) == {"#D55E00": 1000}
    one, other = (matplotlib.image.imread(io.BytesIO(f.png())) for f in (joined, single))
    assert np.abs(one - other).max() < 0.1


@pytest.mark.parametrize("closer", ["step_finished", "step_error"])
def test_many_bars_do_not_hide_each_other(closer: str) -> None:
    """Their edges are paper: with a pixel for each bar, nothing else would be seen."""
    figure = draw(attempts_in_turn(5000, 20, closer))
    image = matplotlib.image.imread(io.BytesIO(figure.png()))[:, :, :3]
    colour = to_rgb(FACES["finished" if closer == "step_finished" else "error"][0])
    coloured = np.isclose(image, colour, atol=0.02).all(axis=2).any(axis=0)
    assert coloured.sum() > 500  # of the 960 columns of pixels


def test_bars_of_many_events_stay_within_the_width(killed_twice: Path) -> None:
    for width in (1, 7, 40, 100):
        text = timeline_text(killed_twice, "demo", width=width)
        lines = [line for line in text.splitlines() if line.startswith("run ")]
        margin = len("run 00000001  ")
        assert max(len(line[margin:].split("  ended")[0].rstrip()) for line in lines) <= width + 8


# What a journal may try.


EVIL = '<img src=x onerror="alert(1)">'


def test_text_of_a_journal_is_no_html() -> None:
    figure = draw(one_lane_each(1, task=EVIL))
    shown = figure._repr_html_()
    assert EVIL not in shown
    assert html.escape(EVIL) in shown
    assert re.findall(r"<(\w+)", shown) == ["img"]


def test_text_of_a_journal_is_no_mathematics() -> None:
    figure = draw(one_lane_each(1, step=r"$\frac{a$", task="$x_1$"))
    assert r"0 $\frac{a$" in words_of(figure)
    figure.png()  # an unbalanced formula would raise here


def test_characters_that_the_font_lacks() -> None:
    """With warnings as errors: matplotlib would warn about each missing glyph."""
    figure = draw(one_lane_each(1, step="步骤", task="имя🙂"))
    figure.png()
    assert figure.axes[0].get_title(loc="left") == "Task имя\N{REPLACEMENT CHARACTER}: pending"
    assert "имя🙂" in repr(figure)


def test_control_characters_do_not_reach_a_terminal(tamper: Tamper) -> None:
    path = tamper("UPDATE events SET owner = char(27) || '[2J' WHERE owner = '00000001'")
    text = timeline_text(path, "demo")
    assert "\x1b" not in text
    assert "run \\x1b[2J" in text


# Files and refusals.


def test_the_same_journal_gives_the_same_bytes(killed_twice: Path, tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "a.svg", "b.svg"):
        timeline(killed_twice, "demo").save(tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.svg").read_text("utf-8").lstrip().startswith("<?xml")


def test_a_png_names_no_software(killed_twice: Path) -> None:
    png = timeline(killed_twice, "demo").png()
    assert png.startswith(b"\x89PNG")
    assert b"matplotlib" not in png.lower()
    assert zlib.crc32(png) == zlib.crc32(timeline(killed_twice, "demo").png())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: timeline(path, "demo", by="size"), "by='size': use one of order, time"),
        (lambda path: timeline(path, "demo", style="x"), "style='x': use one of notebook, room"),
        (lambda path: timeline(path, "demo").save("x.gif"), "as .gif: use .png or .svg"),
        (lambda path: timeline(path, "demo").save("x"), "as a name without ending"),
    ],
)
def test_refusals(call: Callable[[Path], object], message: str, killed_twice: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        call(killed_twice)


@pytest.mark.parametrize("read", [timeline, timeline_table, timeline_text])
def test_an_unknown_task(read: Callable[..., object], killed_twice: Path) -> None:
    with pytest.raises(UnknownTask, match="no task 'nope'"):
        read(killed_twice, "nope")


def test_a_task_without_a_run(tamper: Tamper) -> None:
    path = tamper("DELETE FROM events WHERE seq > 1")
    figure = timeline(path, "demo")
    figure.png()
    assert repr(figure) == "Timeline of task demo (pending): 0 runs, 0 attempts, 0 recoveries."
    assert timeline_text(path, "demo") == repr(figure)
    assert len(timeline_table(path, "demo")) == 0


def test_no_figure_is_kept(killed_twice: Path) -> None:
    figure = timeline(killed_twice, "demo")
    figure.png()
    gone = weakref.ref(figure)
    del figure
    gc.collect()
    assert gone() is None


def test_pyplot_is_not_imported(killed_twice: Path, tmp_path: Path) -> None:
    code = """if True:
        import sys
        from labkit.journal import timeline
        timeline(sys.argv[1], "demo").save("x.png")
        print("matplotlib.pyplot" in sys.modules)"""
    done = run_python("-c", code, str(killed_twice), cwd=tmp_path)
    assert (done.code, done.out) == (0, "False\n")

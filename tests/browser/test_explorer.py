"""The journal explorer in a real JupyterLab: any journal is opened, and what happened is found."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from bench.journals import make_journal
from labkit import guard
from labkit.journal import Journal
from tests.browser.lab_page import DARK, LIGHT, LabPage, PanelInPage
from tests.browser.looks import controls, nameless, problems_of_a_panel
from tests.conftest import NOTES, PLAN, run_python
from tests.journal.conftest import Tamper, answered, killed_twice, tamper

__all__ = ["answered", "killed_twice", "tamper"]  # fixtures
pytestmark = [pytest.mark.proof, pytest.mark.timeout(180)]

BEGIN = """
from labkit.lab.panels import Explorer

panel = Explorer({path!r}, folder={folder!r})
panel
"""
CLOSE = "panel.close()"
OPENS_WITHIN_MS = 2000
VIEWS = ("Events", "Timeline", "Replay", "Laws", "SQL")
DETAILS = ("Row", "JSON", "Neighbours", "Law")
BROKEN = "UPDATE events SET step_idx = 0 WHERE seq = 8"  # it starts again what has finished


class Exploring(PanelInPage):
    def __init__(self, lab: LabPage) -> None:
        super().__init__(lab, "labkit-explorer")
        self.picture = self.root.locator("img:visible")
        self.events = self.root.get_by_label("Events", exact=True)
        self.rows = self.events.locator("option")

    def part(self, name: str) -> Locator:
        return self.root.locator(f".labkit-explorer-{name}")

    def show(self, view: str) -> None:
        """A page, until what it is for stands on it."""
        self.press(view)
        shown = {
            "Events": self.events,
            "Timeline": self.part("timeline").locator("img"),
            "Replay": self.part("replayed").locator("img"),
            "Laws": self.part("verdicts").locator("td").first,
            "SQL": self.root.get_by_label("SQL", exact=True),
        }
        expect(shown[view]).to_be_visible()

    def show_of_it(self, detail: str) -> None:
        self.press(detail)
        expect(self.part(detail.lower())).to_be_visible()
        expect(self.part(detail.lower())).not_to_have_text("Choose an event.")

    def opens(self, path: Path) -> None:
        self.root.get_by_label("Path", exact=True).fill(str(path))
        self.press("Open")


def explore(lab: LabPage, path: Path) -> Exploring:
    lab.write("explorer.ipynb", BEGIN.format(path=str(path), folder=str(path.parent)), CLOSE)
    lab.run_cell(0)
    exploring = Exploring(lab)
    exploring.says("event")
    return exploring


def test_from_a_row_to_its_json_its_law_and_the_timeline(lab: LabPage, tamper: Tamper) -> None:
    panel = explore(lab, tamper(BROKEN))
    panel.says(r"altered\.db: 15 events, 1 task")
    expect(panel.rows).to_have_count(15)
    panel.rows.nth(7).click()
    expect(panel.part("row")).to_contain_text("step_started")
    panel.press("JSON")
    expect(panel.part("json")).to_contain_text('"tool"')
    panel.press("Neighbours")
    expect(panel.part("neighbours").locator("tr")).not_to_have_count(0)
    panel.press("Law")
    expect(panel.part("law")).to_contain_text("Law 2")
    expect(panel.part("law")).to_contain_text("started again after it had finished")
    panel.press("Timeline")
    expect(panel.picture).to_have_attribute("alt", re.compile("Timeline of task demo"))
    panel.press("Laws")
    expect(panel.part("verdicts")).to_contain_text("broken")
    panel.root.get_by_label("Findings").locator("option", has_text="law\xa02").click()
    expect(panel.events).to_be_visible()
    expect(panel.part("law")).to_contain_text("Law 2")
    lab.run_cell(1)
    expect(panel.root).to_have_text("This panel is closed; run its cell again.")


def test_the_buttons_of_an_event_stand_in_one_row_and_still(lab: LabPage, tamper: Tamper) -> None:
    """Whatever page of it is shown: they are pressed one after the other."""
    panel = explore(lab, tamper(BROKEN))
    buttons = panel.part("detail").locator("button")
    label = panel.part("detail").locator(".widget-label")
    expect(buttons).to_have_count(4)
    assert label.evaluate("label => label.scrollWidth <= label.clientWidth")  # it is not cut
    places = [[button.bounding_box() for button in buttons.all()]]
    panel.rows.nth(7).click()
    for detail in DETAILS:
        panel.show_of_it(detail)
        places.append([button.bounding_box() for button in buttons.all()])
    assert len({box["y"] for each in places for box in each if box}) == 1
    for moved in zip(*places, strict=True):
        x = [box["x"] for box in moved if box]
        assert max(x) - min(x) < 12  # a pressed one has bold letters


def test_the_list_is_limited_to_kinds_tasks_and_runs(lab: LabPage, killed_twice: Path) -> None:
    panel = explore(lab, killed_twice)
    kinds = panel.root.get_by_label("Kinds")
    kinds.select_option("step_recovered (2)")
    expect(panel.rows).to_have_count(2)
    panel.says("2 events picked")
    kinds.select_option([])
    expect(panel.rows).to_have_count(15)
    panel.root.get_by_label("Run", exact=True).select_option("00000002")
    expected = len(Journal(killed_twice).seqs("demo", run="00000002"))
    assert 0 < expected < 15
    expect(panel.rows).to_have_count(expected)


def test_a_journal_is_replayed_by_a_slider(lab: LabPage, killed_twice: Path) -> None:
    panel = explore(lab, killed_twice)
    panel.press("Replay")
    expect(panel.part("where").last).to_contain_text("After event 15 of 15")
    slider = panel.root.get_by_role("slider", name="Event")
    slider.focus()
    for key, number in (("Home", 1), ("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2)):
        lab.page.keyboard.press(key)
        expect(panel.part("where").last).to_contain_text(f"After event {number} of 15")
    expect(panel.part("standing")).to_contain_text("running")
    expect(panel.picture).to_have_attribute("alt", re.compile("1 run"))
    panel.press("On")
    expect(panel.part("where").last).to_contain_text("After event 3 of 15")


def test_a_query_is_answered_and_a_write_is_refused(lab: LabPage, tamper: Tamper) -> None:
    path = tamper()
    panel = explore(lab, path)
    panel.press("SQL")
    # "choose one", and five
    expect(panel.root.get_by_label("Question").locator("option")).to_have_count(6)
    panel.root.get_by_label("Question").select_option(index=1)
    expect(panel.root.get_by_label("SQL", exact=True)).to_have_value(
        re.compile("select", re.IGNORECASE)
    )
    panel.press("Ask")
    expect(panel.part("answer").locator("td")).not_to_have_count(0)
    box = panel.root.get_by_label("SQL", exact=True)
    box.fill("SELECT count(*) AS found FROM journal WHERE kind = 'step_recovered'")
    panel.press("Ask")
    expect(panel.part("answer")).to_contain_text(re.compile(r"found\s*2"))
    for query in ("DELETE FROM events", "PRAGMA journal_mode = DELETE", "SELECT nonsense"):
        box.fill(query)
        panel.press("Ask")
        expect(panel.status.and_(lab.page.locator(".labkit-failed"))).to_be_visible()
        assert "Traceback" not in panel.root.inner_text()
        box.fill("SELECT 1")
        panel.press("Ask")
        expect(lab.page.locator(".labkit-failed")).to_have_count(0)
    assert len(Journal(path).events()) == 15


def test_ctrl_enter_asks_once_and_runs_no_cell(lab: LabPage, killed_twice: Path) -> None:
    panel = explore(lab, killed_twice)
    panel.press("SQL")
    box = panel.root.get_by_label("SQL", exact=True)
    box.fill("SELECT count(*) AS asked FROM journal")
    box.press("Control+Enter")
    expect(panel.part("answer")).to_contain_text(re.compile(r"asked\s*15"))
    box.fill("SELECT nonsense")
    box.press("Enter")  # a new line, no question
    expect(box).to_have_value("SELECT nonsense\n")
    expect(panel.part("answer")).to_contain_text("15")
    asked = panel.button("Ask").evaluate_handle(COUNT_CLICKS)
    box.press("Control+Enter")
    expect(lab.page.locator(".labkit-failed")).to_be_visible()
    expect(panel.part("answer").locator("td")).to_have_count(0)
    assert asked.evaluate("(clicks) => clicks.length") == 1
    expect(panel.button("Ask")).to_have_attribute("title", re.compile(r"Ctrl\+Enter"))
    expect(lab.page.locator(".jp-InputPrompt:visible").nth(1)).to_have_text("[ ]:")


COUNT_CLICKS = """
(button) => {
  const clicks = [];
  button.addEventListener('click', (event) => clicks.push(event));
  return clicks;
}
"""
ROWS_ARE_WHOLE = """
(select) => {
  const room = select.clientWidth;
  const canvas = document.createElement('canvas').getContext('2d');
  canvas.font = getComputedStyle(select).font;
  const style = getComputedStyle(select.options[0]);
  const around = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
  return [...select.options]
    .map((option) => canvas.measureText(option.text).width + around - room)
    .filter((over) => over > 0);
}
"""


@pytest.mark.parametrize("source", ["killed_twice", "answered"])
@pytest.mark.parametrize("is_room", [False, True])
def test_each_row_is_seen_to_its_end(
    source: str, is_room: bool, lab: LabPage, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(source)
    panel = explore(lab, path)
    lab.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    if is_room:
        panel.press("Room")
        expect(panel.rows.filter(has_text="…")).not_to_have_count(0)
    assert panel.events.evaluate(ROWS_ARE_WHOLE) == []
    [started] = [event for event in Journal(path).read() if event.seq == 3]
    shown = panel.rows.nth(2).inner_text().replace("\xa0", " ").split()
    who = str(started.owner if started.is_durable else started.run_id)
    assert shown[:3] == ["3", "step_started", "0"]
    assert shown[-2] == f"#{started.attempt}"
    assert (shown[-1][:2], shown[-1][-2:]) == (who[:2], who[-2:])
    panel.root.evaluate("(panel) => panel.scrollIntoView()")
    lab.photograph(f"explorer-rows-{source}{'-room' * is_room}")


def test_after_a_reload_of_the_page_a_saved_panel_is_there_and_works(
    another_tab: LabPage, killed_twice: Path
) -> None:
    lab = another_tab
    panel = explore(lab, killed_twice)
    panel.rows.nth(7).click()
    expect(panel.part("row")).to_contain_text("step_started")
    lab.save()
    lab.reload()
    expect(panel.part("row")).to_contain_text("step_started")
    panel.press("Timeline")
    expect(panel.picture).to_have_attribute("alt", re.compile("Timeline of task demo"))
    panel.press("SQL")
    panel.root.get_by_label("SQL", exact=True).fill("SELECT 6 * 7 AS answer")
    panel.root.get_by_label("SQL", exact=True).press("Control+Enter")
    expect(panel.part("answer")).to_contain_text("42")
    lab.run_cell(1)
    expect(panel.root).to_have_text("This panel is closed; run its cell again.")


def test_after_a_reload_without_saving_its_cell_shows_it_again(
    another_tab: LabPage, killed_twice: Path
) -> None:
    lab = another_tab
    panel = explore(lab, killed_twice)
    lab.reload()
    expect(panel.root).to_have_count(0)
    lab.run_cell(0)
    panel.says("15 events")
    panel.press("Laws")
    expect(panel.part("verdicts")).to_contain_text("held")
    lab.run_cell(1)


LOST = "Error displaying widget: model not found"


def test_a_saved_panel_whose_kernel_has_ended_says_so_until_its_cell_is_run(
    another_tab: LabPage, killed_twice: Path
) -> None:
    """The panel is in the kernel; the file has only its number. The words are JupyterLab's own."""
    lab = another_tab
    panel = explore(lab, killed_twice)
    lab.save()
    lab.restart_kernel()
    lab.reload()
    expect(lab.outputs.first).to_have_text(LOST)
    lab.run_cell(0)
    panel.says("15 events")
    expect(lab.page.get_by_text(LOST)).to_have_count(0)
    assert {error.partition("\n")[0] for error in lab.errors} <= {"Error: widget model not found"}
    lab.errors.clear()
    lab.run_cell(1)


CLICK_TO_ROWS = """
(panel) => {
  window.shownAfter = null;
  let clicked;
  const button = panel.querySelector('.labkit-explorer-open');
  button.addEventListener('click', (event) => { clicked = event.timeStamp; }, {once: true});
  const observer = new MutationObserver(() => {
    const status = panel.querySelector('[role=status]').innerText;
    const rows = panel.querySelectorAll('.labkit-explorer-events option').length;
    if (!clicked || !status.includes('100,001 events') || rows < 100) return;
    observer.disconnect();
    requestAnimationFrame(() => { window.shownAfter = performance.now() - clicked; });
  });
  observer.observe(panel, {childList: true, subtree: true});
}
"""


def test_a_hundred_thousand_events_open_within_two_seconds(
    lab: LabPage, killed_twice: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the click to the rows. The best of three: other programs may be at work here."""
    many = make_journal(tmp_path / "many.db", 50_000)
    panel = explore(lab, killed_twice)
    took_ms = []
    for _ in range(3):
        panel.root.get_by_label("Path", exact=True).fill(str(many))
        panel.root.evaluate(CLICK_TO_ROWS)
        panel.press("Open")
        shown = lab.page.wait_for_function("() => window.shownAfter", timeout=60_000)
        took_ms.append(float(shown.json_value()))
        expect(panel.part("events-where")).to_contain_text("of 100,001")
        panel.opens(killed_twice)
        panel.says("15 events")
    with capsys.disabled():
        print(f"\n100,001 events open in {', '.join(f'{ms:.0f}' for ms in took_ms)} ms")
    assert min(took_ms) < OPENS_WITHIN_MS


def test_the_last_of_many_events_is_reached_and_replayed(lab: LabPage, tmp_path: Path) -> None:
    panel = explore(lab, make_journal(tmp_path / "many.db", 50_000))
    expect(panel.rows).to_have_count(200)
    go = panel.root.get_by_label("Go to seq").first
    go.fill("100001")
    go.press("Enter")
    expect(panel.part("row")).to_contain_text("100001")
    expect(panel.part("events-where")).to_contain_text("to 100,001 of 100,001")
    panel.press("Timeline")
    expect(panel.picture).to_have_attribute("alt", re.compile("Timeline of task t"))
    panel.press("Replay")
    expect(panel.part("where").last).to_contain_text("of 100,001")
    lab.photograph("explorer-many")


def test_a_journal_is_followed_while_a_process_writes_it(lab: LabPage, tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "notes.txt").write_text(NOTES, encoding="utf-8")
    (tmp_path / "plan.json").write_text(PLAN, encoding="utf-8")
    made = run_python("-m", "labkit.restart", "create", "demo", "plan.json", cwd=tmp_path)
    assert made.code == 0
    path = tmp_path / "state.db"
    panel = explore(lab, path)
    panel.root.get_by_label("Follow").check()
    argv = [sys.executable, "-m", "labkit.restart", "run", "demo"]
    slow = {**os.environ, "AGENT_STEP_DELAY": "60"}
    with guard.start(argv, cwd=str(tmp_path), env=slow) as agent:
        expect(panel.rows.last).to_contain_text("step_started")
        panel.says("Following")
        assert agent.poll() is None
        assert agent.kill() == -9
    done = run_python("-m", "labkit.restart", "run", "demo", cwd=tmp_path)
    assert done.code == 0, done.err
    expect(panel.rows.last).to_contain_text("task_done")
    expect(panel.rows).to_have_count(len(Journal(path).events()))
    expect(panel.rows.filter(has_text="step_recovered")).to_have_count(1)
    panel.press("Timeline")
    expect(panel.picture).to_have_attribute("alt", re.compile("2 runs"))
    panel.root.get_by_label("Follow").uncheck()


@pytest.mark.parametrize("damage", ["no database", "cut", "malformed later", "missing", "a folder"])
def test_a_damaged_file_is_one_line(
    damage: str, lab: LabPage, tamper: Tamper, tmp_path: Path
) -> None:
    panel = explore(lab, tamper())
    other = tmp_path / "damaged.db"
    if damage == "no database":
        other.write_bytes(b"this is no database\n" * 1000)
    elif damage == "a folder":
        other.mkdir()
    elif damage != "missing":
        data = bytearray((tmp_path / "altered.db").read_bytes())
        data[1024:] = b"\xff" * (len(data) - 1024) if damage == "malformed later" else b""
        other.write_bytes(data)
    panel.opens(other)
    expect(lab.page.locator(".labkit-failed")).to_be_visible()
    line = panel.status.inner_text()
    assert "Traceback" not in panel.root.inner_text()
    assert 0 < len(line.strip().splitlines()) <= 1, line
    assert problems_of_a_panel(panel.root) == []
    panel.opens(tmp_path / "altered.db")
    panel.says("15 events")
    expect(panel.rows).to_have_count(15)


IMAGE = "<img src=x onerror=window.wasRun=1>\u202e"
NASTY = f"{IMAGE}\x1b[31m</select></pre><script>window.wasRun=1</script>"


def test_text_of_others_is_text(lab: LabPage, killed_twice: Path, tmp_path: Path) -> None:
    """In ids, in data of 10 MB, in the name of the file."""
    path = tmp_path / f"{IMAGE}.db"
    shutil.copy(killed_twice, path)
    with closing(sqlite3.connect(path)) as database, database:
        for (trigger,) in database.execute("SELECT name FROM sqlite_schema WHERE type='trigger'"):
            database.execute(f"DROP TRIGGER {trigger}")
        database.execute("PRAGMA ignore_check_constraints = ON")
        for table, column in (("tasks", "id"), ("steps", "task_id"), ("events", "task_id")):
            database.execute(f"UPDATE {table} SET {column} = ?", (NASTY,))
        huge = "json_object('output', ? || replace(hex(zeroblob(5000000)), '0', '&'))"
        database.execute(f"UPDATE events SET data = {huge} WHERE seq > 3", (NASTY,))
        database.execute(
            "UPDATE events SET owner = ?, run_id = ? WHERE run_id IS NOT NULL", [NASTY] * 2
        )
    panel = explore(lab, path)
    expect(panel.rows).to_have_count(15)
    panel.rows.nth(6).click()
    for detail in DETAILS:
        panel.show_of_it(detail)
    for view in VIEWS:
        panel.show(view)
        if view == "SQL":
            panel.root.get_by_label("SQL", exact=True).fill("SELECT * FROM journal")
            panel.press("Ask")
            expect(panel.part("answer").locator("td")).not_to_have_count(0)
        if view in ("Timeline", "Replay"):
            expect(panel.picture).to_have_attribute("alt", re.compile("onerror"))
        assert problems_of_a_panel(panel.root) == [], view
        assert not re.search("[\u202e\x1b]", panel.root.inner_text()), view
        expect(panel.root.locator("[src=x], script")).to_have_count(0)
        lab.photograph(f"explorer-nasty-{view}")
    assert lab.page.evaluate("() => window.wasRun") is None
    assert len(panel.root.evaluate("(element) => element.outerHTML")) < 2_000_000


def test_the_keyboard_alone_is_enough(lab: LabPage, tamper: Tamper) -> None:
    path = tamper(BROKEN)
    panel = explore(lab, path)
    keyboard = lab.page.keyboard

    def reach(target: Locator, *keys: str) -> None:
        lab.press_until("Tab", target)
        for key in keys:
            keyboard.press(key)

    lab.focus_cell(0)
    reach(panel.events, "Home", *["ArrowDown"] * 7)
    expect(panel.part("row")).to_contain_text("8")
    reach(panel.button("Law"), "Enter")
    expect(panel.part("law")).to_contain_text("Law 2")
    reach(panel.button("Replay"), "Space")
    reach(panel.root.get_by_role("slider", name="Event"), "Home", "ArrowRight")
    expect(panel.part("where").last).to_contain_text("After event 2 of 15")
    reach(panel.button("SQL"), "Enter")
    reach(panel.root.get_by_label("SQL", exact=True))
    keyboard.type("SELECT 6 * 7 AS answer")
    reach(panel.button("Ask"), "Enter")
    expect(panel.part("answer")).to_contain_text("42")
    reach(panel.root.get_by_label("Path", exact=True))
    keyboard.press("Control+A")
    keyboard.type(str(path.with_name("nothing.db")))
    keyboard.press("Enter")
    expect(lab.page.locator(".labkit-failed")).to_be_visible()


@pytest.mark.parametrize(
    ("source", "looks"),
    [
        ("killed_twice", [(LIGHT, False), (DARK, False), (LIGHT, True)]),
        ("answered", [(DARK, True)]),
    ],
    ids=["restart", "durable"],
)
def test_it_is_legible_and_every_control_has_a_name(
    source: str, looks: list[tuple[str, bool]], lab: LabPage, request: pytest.FixtureRequest
) -> None:
    panel = explore(lab, request.getfixturevalue(source))
    lab.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    panel.rows.nth(5).click()
    for theme, is_room in looks:
        lab.use_theme(theme)
        if is_room:
            panel.press("Room")
            expect(panel.root).to_have_class(re.compile("labkit-room"))
        for view in VIEWS:
            panel.show(view)
            panel.root.evaluate("(panel) => panel.scrollIntoView()")
            lab.photograph(f"explorer-{source}-{view}-{theme.split()[1]}{'-room' * is_room}")
            assert problems_of_a_panel(panel.root) == [], (theme, view)
            assert nameless(panel.root) == [], view
        panel.press("Ask")  # an empty box
        panel.says("is not a query")
        assert problems_of_a_panel(panel.root) == [], theme
        panel.show("Events")
        for detail in DETAILS:
            panel.show_of_it(detail)
            assert problems_of_a_panel(panel.root) == [], (theme, detail)
    named = {name for _, name in controls(panel.root)}
    assert {"Path", "Open", "Task", "Run", "Events", "Kinds", "Follow", "Witness"} <= named

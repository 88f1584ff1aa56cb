"""The controls: what these tests look for is found where it is wrong."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.lab_page import DARK, LabPage, alive
from tests.browser.looks import controls, nameless, problems_of_a_panel

pytestmark = [pytest.mark.proof, pytest.mark.timeout(180)]

SPOILED = """
import ipywidgets as widgets
pale = "<p style='color: #777; background: #888'>pale</p>"
wide = "<p style='width: 3000px'>wide</p>"
picture = "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>"
cut = widgets.Button(description="A button that is far too narrow", layout={"width": "40px"})
mute = widgets.Text()
box = widgets.VBox([*map(widgets.HTML, (pale, wide, picture)), cut, mute])
box.add_class("labkit-panel")
"""
COUNTER = """
import ipywidgets as widgets
from labkit.lab.panels.parts import Chooser, Panel, button

class Counter(Panel):
    def __init__(self):
        super().__init__("counter", "A panel that counts.")
        self.more, self.number = button("More", "Counts one more", "labkit-more"), 0
        self.rows = Chooser("Rows", "labkit-list")
        self.at = widgets.IntSlider(description="At", max=10)
        self.off = button("Off", "Cannot be pressed", "labkit-off")
        self.off.disabled = True
        self.on(self.more, self.count)
        self.fill(self.more, self.room, self.rows.root, self.at, self.off)
        self.rows.fill(range(1, 4), lambda keys: [f"row {key}" for key in keys])
    def count(self):
        self.number += 1
        self.say(f"counted {self.number}")

panel = Counter()
panel
"""
AGENT = """
from labkit import lab
lab.begin("02")
lab.run("agent create notes plan.json")
process = lab.start("agent run notes", AGENT_STEP_DELAY="60")
lab.wait_for(process, "step_started", 0)
"""
IS_CLOSED = "() => window.jupyterapp.shell.leftCollapsed"
RAISES = """
import ipywidgets as widgets
button = widgets.Button(description="Divide")
button.on_click(lambda _: 1 / 0)
button
"""


def test_what_is_wrong_in_a_panel_is_found(lab: LabPage) -> None:
    lab.write("spoiled-panel.ipynb", SPOILED)
    lab.run_all()
    panel = lab.page.locator(".labkit-panel")
    found = " | ".join(problems_of_a_panel(panel))
    for problem in ("wider than the page", "cut off", "is missing", "no alternative", "contrast"):
        assert problem in found
    assert nameless(panel) == ["textbox"]
    lab.use_theme(DARK)
    assert "contrast" in " ".join(problems_of_a_panel(panel))


def test_a_panel_works_with_the_mouse_and_with_the_keyboard(lab: LabPage) -> None:
    lab.write("counter.ipynb", COUNTER, "1")
    lab.run_all()
    panel = lab.page.locator(".labkit-panel")
    assert problems_of_a_panel(panel) == []
    assert nameless(panel) == []
    assert ("slider", "At") in controls(panel)
    more, status = panel.get_by_role("button", name="More"), panel.get_by_role("status")
    more.click()
    expect(status).to_have_text("counted 1")
    lab.focus_cell(0)
    lab.press_until("Tab", more)
    for number, key in enumerate(("Enter", "Space"), start=2):
        lab.page.keyboard.press(key)
        expect(status).to_have_text(f"counted {number}")
        expect(more).to_be_focused()
    room = panel.get_by_role("button", name="Room")
    expect(room).to_have_attribute("aria-pressed", "false")
    room.press("Enter")
    expect(room).to_have_attribute("aria-pressed", "true")
    goto = panel.get_by_label("Go to seq")
    goto.click(position={"x": 5, "y": 10})
    lab.page.keyboard.type("3")  # in the place of the 0, not before it
    expect(goto).to_have_value("3")
    goto.hover()
    lab.page.mouse.wheel(0, 10)
    expect(goto).not_to_be_focused()
    expect(goto).to_have_value("3")
    rows = panel.get_by_label("Rows")
    lab.press_until("Tab", rows)
    for key, index in (("ArrowDown", 0), ("ArrowDown", 1), ("ArrowUp", 0), ("End", 2)):
        lab.page.keyboard.press(key)
        assert rows.evaluate("(element) => element.selectedIndex") == index
        expect(rows).to_be_focused()


def test_save_and_the_sidebar_work_from_within_a_panel(lab: LabPage) -> None:
    lab.write("counter.ipynb", COUNTER)
    lab.run_all()
    panel = lab.page.locator(".labkit-panel")
    more, goto = panel.get_by_role("button", name="More"), panel.get_by_label("Go to seq")
    for number, part in enumerate((more, goto), start=1):
        was_closed = lab.page.evaluate(IS_CLOSED)
        part.focus()
        lab.page.keyboard.press("Control+b")
        lab.page.wait_for_function(f"(before) => ({IS_CLOSED})() !== before", arg=was_closed)
        more.press("Enter")
        expect(panel.get_by_role("status")).to_have_text(f"counted {number}")
    lab.page.keyboard.press("Control+s")
    lab.page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")


def test_what_the_keyboard_does_not_reach_is_found(lab: LabPage) -> None:
    lab.write("counter.ipynb", COUNTER)
    lab.run_all()
    off = lab.page.get_by_role("button", name="Off")
    lab.focus_cell(0)
    with pytest.raises(AssertionError, match="do not lead to"):
        lab.press_until("Tab", off)


def test_an_agent_that_is_left_alive_is_found(lab: LabPage) -> None:
    lab.write("agent.ipynb", AGENT, "lab.end()")
    lab.wait_until_idle()
    assert alive(lab.session) == {}
    lab.run_cell(0)
    assert any("labkit agent run notes" in command for command in alive(lab.session).values())
    lab.run_cell(1)
    lab.wait_until(lambda: alive(lab.session) == {}, "no agent is alive")


def test_what_a_control_raises_is_found(lab: LabPage) -> None:
    lab.write("raises.ipynb", RAISES)
    lab.run_all()
    lab.page.get_by_role("button", name="Divide").click()
    lab.wait_until(lambda: "ZeroDivisionError" in "".join(lab.complaints()), "the error")
    lab.page.evaluate("() => { window.complaints = [] }")


def test_a_cell_that_fails_and_an_error_of_the_page_are_found(lab: LabPage) -> None:
    lab.write("fails.ipynb", "1 / 0")
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        lab.run_all()
    lab.page.evaluate("() => console.error('said')")
    lab.page.evaluate("() => { setTimeout(() => { throw new Error('thrown') }) }")
    lab.wait_until(lambda: len(lab.errors) == 2, "both errors")
    first_lines = [error.splitlines()[0] for error in lab.errors]
    assert first_lines == ["said", "Error: thrown"]
    lab.errors.clear()


def test_a_change_of_the_theme_is_over_when_it_returns(lab: LabPage) -> None:
    lab.use_theme(DARK)
    assert lab.page.locator("#jupyterlab-splash").count() == 0

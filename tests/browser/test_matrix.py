"""The crash matrix in a real JupyterLab: every place of an agent, killed for real, cell by cell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from labkit.journal import Journal
from tests.browser.lab_page import DARK, LIGHT, LabPage, alive
from tests.browser.looks import controls, nameless, problems_of_a_panel

pytestmark = [pytest.mark.proof, pytest.mark.timeout(180)]

BEGIN = """
from labkit import lab
from labkit.lab.panels import Matrix

lab.begin("20")
panel = Matrix({agent!r})
panel
"""
END = "lab.end()"


class Grid:
    """The panel in the page, its controls, and the journals that its trials left on the disk."""

    def __init__(self, lab: LabPage) -> None:
        self.lab = lab
        self.root = lab.page.locator(".labkit-matrix")
        self.status = self.root.get_by_role("status").first
        self.cells = self.root.locator(".labkit-cell")

    def press(self, name: str) -> None:
        self.root.get_by_role("button", name=name, exact=True).click()

    def cell(self, at: str) -> Locator:
        return self.root.locator(f".labkit-at-{at.replace(':', '-')}")

    def of_kind(self, kind: str) -> Locator:
        return self.root.locator(f".labkit-is-{kind}")

    def wait_until_over(self) -> None:
        expect(self.of_kind("untried")).to_have_count(0, timeout=120_000)
        expect(self.root.get_by_role("button", name="Stop")).to_be_disabled()

    def journals(self) -> list[Path]:
        runs = self.lab.folder.parent / "lab" / "runs" / "20" / "latest"
        return sorted(path for path in runs.rglob("*.db") if path.parent.name != "first")


def show(lab: LabPage, agent: str = "restart") -> Grid:
    lab.write("matrix.ipynb", BEGIN.format(agent=agent), END)
    lab.run_cell(0)
    lab.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    grid = Grid(lab)
    expect(grid.status).to_contain_text("none of them tried")
    return grid


def test_every_point_holds_and_a_cell_opens_its_journal(lab: LabPage) -> None:
    grid = show(lab)
    expect(grid.cells).to_have_count(9)
    grid.press("Run all")
    grid.wait_until_over()
    expect(grid.of_kind("held")).to_have_count(9)
    journals = grid.journals()
    assert len(journals) >= 9
    killed = [path for path in journals if was_killed(path)]
    assert len(killed) == 9, "a cell may hold only where its kill was delivered"
    grid.cell("after_effect:2").click()
    expect(grid.root.locator(".labkit-outcome")).to_contain_text("after_effect")
    expect(grid.root.locator(".labkit-journal")).to_contain_text("step_recovered")
    for theme in (LIGHT, DARK):
        lab.use_theme(theme)
        lab.photograph(f"matrix-restart-{theme.split()[1]}")
        assert problems_of_a_panel(grid.root) == []
    assert nameless(grid.root) == []
    lab.run_cell(1)


def was_killed(path: Path) -> bool:
    """Two runs, of which the first has neither finished nor failed."""
    runs = Journal(path).runs()
    return len(runs) == 2 and runs["ended"].isna().sum() == 1


def test_the_control_goes_red(lab: LabPage) -> None:
    """Without its key the report is doubled where the agent dies after it is written."""
    grid = show(lab)
    grid.root.get_by_label(re.compile("^Unsafe")).check()
    grid.press("Run all")
    grid.wait_until_over()
    expect(grid.of_kind("broken")).not_to_have_count(0)
    expect(grid.cell("after_effect:2")).to_have_class(re.compile("labkit-is-broken"))
    expect(grid.cell("after_effect:2")).to_contain_text("2 reports")
    lab.photograph("matrix-unsafe")
    assert problems_of_a_panel(grid.root) == []
    lab.run_cell(1)


def test_a_durable_run_waits_only_where_nobody_can_know(lab: LabPage) -> None:
    grid = show(lab, "durable")
    grid.press("Run all")
    grid.wait_until_over()
    expect(grid.of_kind("broken")).to_have_count(0)
    expect(grid.of_kind("waits")).to_have_count(2)
    for at in ("boundary:6", "boundary:7"):
        expect(grid.cell(at)).to_have_class(re.compile("labkit-is-waits"))
    expect(grid.of_kind("held")).not_to_have_count(0)
    lab.use_theme(DARK)
    grid.press("Room")
    lab.photograph("matrix-durable-Dark-room")
    assert problems_of_a_panel(grid.root) == []
    lab.run_cell(1)


TOO_HIGH = """panel => {
  const screen = panel.closest('.jp-WindowedPanel-outer').clientHeight;
  const ends = [...panel.querySelectorAll('.labkit-cell')].map(
    (cell) => cell.getBoundingClientRect().bottom);
  return Math.max(0, Math.max(...ends) - panel.getBoundingClientRect().top - screen);
}"""


def test_a_room_sees_every_cell_at_once(lab: LabPage) -> None:
    """Where most lines are: of each cell three, of a broken one four."""
    grid = show(lab, "durable")
    grid.root.get_by_label(re.compile("^Unsafe")).check()
    grid.press("Run all")
    grid.wait_until_over()
    expect(grid.of_kind("broken")).not_to_have_count(0)
    grid.press("Room")
    expect(grid.root).to_have_class(re.compile("labkit-room"))
    lab.photograph("matrix-durable-unsafe-room")
    assert grid.root.evaluate(TOO_HIGH) == 0
    boxes = [each.bounding_box() for each in grid.root.locator(".labkit-top button").all()]
    assert len({round(box["y"]) for box in boxes if box}) == 1
    assert problems_of_a_panel(grid.root) == []
    lab.run_cell(1)


def test_it_is_stopped_by_the_keyboard_and_no_agent_lives_on(lab: LabPage) -> None:
    grid = show(lab)
    run_all = grid.root.get_by_role("button", name="Run all")
    stop = grid.root.get_by_role("button", name="Stop")
    lab.focus_cell(0)
    lab.press_until("Tab", run_all)
    lab.page.keyboard.press("Enter")
    expect(stop).to_be_enabled()
    lab.wait_until(lambda: alive(lab.session) != {}, "an agent is at work")
    lab.press_until("Tab", stop)
    lab.page.keyboard.press("Space")
    expect(stop).to_be_disabled()
    lab.wait_until(lambda: alive(lab.session) == {}, "no agent is alive")
    cell = grid.cell("before_effect:0")
    lab.press_until("Tab", cell)
    lab.page.keyboard.press("Enter")
    expect(grid.status).not_to_be_empty()
    assert "Traceback" not in grid.root.inner_text()
    named = {name for _, name in controls(grid.root)}
    assert "Run all" in named
    lab.run_cell(1)


def test_a_restarted_kernel_leaves_no_agent(lab: LabPage) -> None:
    grid = show(lab)
    grid.press("Run all")
    lab.wait_until(lambda: alive(lab.session) != {}, "an agent is at work")
    lab.restart_kernel()
    lab.wait_until(lambda: alive(lab.session) == {}, "no agent is alive")


def test_its_closing_leaves_no_agent(lab: LabPage) -> None:
    grid = show(lab)
    grid.press("Run all")
    lab.wait_until(lambda: alive(lab.session) != {}, "an agent is at work")
    lab.run_cell(1)
    lab.wait_until(lambda: alive(lab.session) == {}, "no agent is alive")

"""The panel of the crash matrix: buttons in, words out; what they mean is tested in test_cells."""

from __future__ import annotations

import asyncio
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from ipywidgets import Button

from labkit import lab
from labkit.errors import UsageError
from labkit.lab import cells, panels, verbs
from labkit.lab.grid import Place
from labkit.lab.panels import matrix
from labkit.lab.process import NotReady
from tests.lab.test_runs import marked

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def _nothing_lives_on(begun: Path) -> Iterator[None]:
    yield
    if verbs._open:
        verbs.end()
    assert not marked()


def text(html: str) -> str:
    return re.sub("<[^>]*>", "", html)


def said(panel: matrix.Matrix) -> str:
    assert 'role="status"' in panel.status.value
    return text(panel.status.value)


def finish(panel: matrix.Matrix) -> None:
    """Until nothing is at work, as the loop of a kernel does it, and without waiting in between."""
    assert panel.sweep is not None
    panel.sweep.wait()
    while panel.look():
        pass


def at(panel: matrix.Matrix, place: str) -> Button:
    [cell] = [cell for cell in panel.cells if f"labkit-at-{place}" in cell._dom_classes]
    return cell


def kinds(panel: matrix.Matrix) -> Counter[str]:
    known = (name for cell in panel.cells for name in cell._dom_classes)
    return Counter(name.removeprefix("labkit-is-") for name in known if "-is-" in name)


def test_one_click_fills_nine_cells_and_each_opens_its_journal() -> None:
    panel = panels.Matrix()
    assert said(panel) == "9 places, none of them tried."
    assert {cell.description for cell in panel.cells} == {"not tried"}
    panel.cells[0].click()
    assert said(panel) == "this place was not tried; press Run all, or wait for it"
    panel.run_all.click()
    assert (panel.stop.disabled, panel.agent.disabled) == (False, True)
    assert said(panel) == "0 of 9 trials have ended, 0 held."
    finish(panel)
    assert said(panel) == "9 of 9 killed and held."
    assert {cell.description for cell in panel.cells} == {"held\n1 report"}
    assert kinds(panel) == {"held": 9}
    assert (panel.stop.disabled, panel.agent.disabled) == (True, False)
    assert at(panel, "after_effect-2").tooltip == "after_effect, step 2: held, 1 report"
    assert "cells.run(&quot;restart&quot;, &quot;plan.json&quot;)" in panel.code.value
    assert not marked()

    at(panel, "after_effect-1").click()
    assert text(panel.outcome.value).startswith("after_effect, step 1: held, 1 report. Below: its")
    drawn = panel.timeline.value
    assert re.search(r'alt="Timeline of task notes \(done\): 2 runs.* 1 killed\."', drawn)
    assert panel.explorer is not None
    assert "12 events" in text(panel.explorer.status.value)
    panel.explorer.views.buttons.value = "Laws"  # the fourth needs the witness of this trial
    assert "not judged" not in panel.explorer.laws.verdicts.value
    at(panel, "before_effect-0").click()
    chosen = [cell for cell in panel.cells if "labkit-is-chosen" in cell._dom_classes]
    assert chosen == [at(panel, "before_effect-0")]
    assert "before-effect-0" in panel.explorer.choices.path.value
    panel.room.value = True
    assert panel.explorer.room.value
    assert panel.timeline.value != drawn

    another = panels.Explorer()  # in a cell of its own: neither of the two closes the other
    at(panel, "before_effect-1").click()
    assert not panel.explorer.is_closed
    panel.close()
    assert panel.explorer.is_closed
    assert not another.is_closed


@pytest.mark.proof
def test_the_unsafe_agent_turns_one_cell_red() -> None:
    panel = panels.Matrix()
    panel.unsafe.value = True
    panel.run_all.click()
    finish(panel)
    assert said(panel) == "8 of 9 killed and held; 1 broken (after_effect, step 2)."
    red = at(panel, "after_effect-2")
    assert red.description == "broken: 4\n2 reports"
    assert "labkit-is-broken" in red._dom_classes
    assert kinds(panel) == {"held": 8, "broken": 1}
    assert "unsafe=True" in panel.code.value


@pytest.mark.proof
def test_a_durable_run_waits_in_two_cells_and_its_control_sends_twice() -> None:
    panel = panels.Matrix(agent="durable")
    assert said(panel) == "13 places, none of them tried."
    panel.run_all.click()
    finish(panel)
    assert said(panel) == "13 of 13 killed and held."
    assert kinds(panel) == {"held": 11, "waits": 2}
    assert at(panel, "boundary-6").description == "held\nwaits\n0 messages"
    panel.unsafe.value = True
    assert said(panel) == "15 places, none of them tried."  # more commits, more places
    panel.run_all.click()
    finish(panel)
    assert kinds(panel) == {"held": 11, "waits": 2, "broken": 2}
    red = [cell for cell in panel.cells if "labkit-is-broken" in cell._dom_classes]
    assert {cell.description.splitlines()[1] for cell in red} == {"2 messages"}
    red[0].click()
    assert "2 messages outside, and 1 by a run that nobody kills" in text(panel.outcome.value)


def test_run_all_is_refused_while_trials_are_at_work() -> None:
    panel = panels.Matrix("durable")
    panel.run_all.click()
    sweep = panel.sweep
    panel.run_all.click()
    assert said(panel).startswith("Run all was refused: these trials are at work")
    assert panel.sweep is sweep
    assert sweep is not None
    while not sweep.outcomes:
        assert panel.look()
    still = r"\d+ of 13 trials have ended, \d+ held. Run all was refused: .*"
    assert re.fullmatch(still, said(panel))  # to be read also when the next trial ends
    finish(panel)
    assert said(panel) == "13 of 13 killed and held."


def test_a_change_is_refused_while_trials_are_at_work() -> None:
    """By a click that was under way when the controls became grey."""
    panel = panels.Matrix("durable")
    panel.run_all.click()
    sweep = panel.sweep
    for control, value in (
        (panel.agent, "restart"),
        (panel.plan, "dispatch"),
        (panel.unsafe, True),
    ):
        before, control.value = control.value, value
        assert said(panel).startswith("The change was refused: these trials are at work")
        assert control.value == before
        assert panel.sweep is sweep
    panel.stop.click()
    finish(panel)
    assert said(panel).startswith("Stopped: ")
    assert not marked()
    panel.agent.value = "restart"
    assert said(panel) == "9 places, none of them tried."


def test_a_panel_that_is_closed_while_it_looks_for_places_starts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A click goes on in its own thread while a cell begins the notebook again."""
    panel, find = panels.Matrix("durable"), cells.grid
    is_looking, has_begun = threading.Event(), threading.Event()

    def look_for(*chosen: str, unsafe: bool = False) -> list[Place]:
        is_looking.set()
        has_begun.wait()
        return find(*chosen, unsafe=unsafe)

    monkeypatch.setattr(cells, "grid", look_for)
    click = threading.Thread(target=panel.run_all.click)
    click.start()
    is_looking.wait()
    lab.begin("05")
    has_begun.set()
    click.join()
    assert panel.is_closed
    assert panel.sweep is None
    assert not verbs.current_notebook().beside
    assert not marked()


@pytest.mark.proof
def test_a_loop_that_runs_shows_the_trials_and_those_that_begin_as_they_end() -> None:
    async def twice() -> None:
        panel = panels.Matrix("durable")
        for _ in range(2):
            panel.run_all.click()
            assert panel.sweep is not None
            while not panel.sweep.is_over:  # then at once again, before the task can fall asleep
                await asyncio.sleep(0)
            assert said(panel) == "13 of 13 killed and held."

    asyncio.run(asyncio.wait_for(twice(), 60))


@pytest.mark.sampled
@pytest.mark.parametrize("agent", ["restart", "durable"])
def test_stop_ends_the_trials_and_keeps_what_has_ended(agent: str) -> None:
    panel = panels.Matrix(agent)
    panel.run_all.click()
    assert panel.sweep is not None
    while not panel.sweep.outcomes:
        panel.look()
    panel.stop.click()
    finish(panel)
    tried = len(panel.sweep.outcomes)
    assert 0 < tried < len(panel.cells)
    every = len(panel.cells)
    assert said(panel) == (
        f"Stopped: {tried} of {every} killed and held; {every - tried} not tried."
    )
    assert kinds(panel)["untried"] == every - tried
    assert not marked()
    panel.run_all.click()  # and all of them once more
    assert kinds(panel) == {"untried": every}


@pytest.mark.parametrize("agent", ["restart", "durable"])
def test_closing_during_work_leaves_no_process_behind(agent: str) -> None:
    panel = panels.Matrix(agent)
    panel.run_all.click()
    panel.close()
    assert not marked()
    assert panel.look() is False
    assert panel._repr_mimebundle_() == {"text/plain": f"{matrix.SENTENCE} It is closed."}
    panel.close()


def test_the_end_of_the_notebook_closes_it_and_so_does_a_second_panel() -> None:
    first = panels.Matrix()
    first.run_all.click()
    second = panels.Matrix()
    assert first.is_closed
    second.run_all.click()
    lab.end()
    assert second.is_closed
    assert not marked()


def test_folders_that_were_deleted_are_missed_in_one_line() -> None:
    panel = panels.Matrix("durable")
    panel.run_all.click()
    finish(panel)
    shutil.rmtree(verbs.current_notebook().root)
    panel.cells[0].click()
    assert said(panel).startswith("the folder of this trial holds no journal any more")
    panel.agent.value = "restart"
    assert said(panel) == "this folder holds no plan of the restart agent"
    assert panel.agent.value == "durable"


def test_an_agent_that_fails_unharmed_is_said_and_the_panel_goes_on(begun: Path) -> None:
    here = verbs.current_folder().path
    panel = panels.Matrix()
    plan = (here / "plan.json").read_text(encoding="utf-8")
    (here / "plan.json").write_text(plan.replace("notes.txt", "none.txt"), encoding="utf-8")
    panel.run_all.click()
    finish(panel)
    assert said(panel).startswith("not even the run that nobody kills ends well")
    assert (panel.stop.disabled, panel.agent.disabled) == (True, False)
    (here / "plan.json").write_text(plan, encoding="utf-8")
    panel.run_all.click()
    assert panel.sweep is not None
    while not panel.sweep.outcomes:
        assert panel.look()
    assert panel.sweep.outcomes[0].held


def test_it_needs_a_notebook_that_has_begun_and_an_agent_that_is_there() -> None:
    with pytest.raises(UsageError, match="no agent is called 'naive'"):
        panels.Matrix(agent="naive")
    lab.end()
    with pytest.raises(NotReady, match="no notebook has begun"):
        panels.Matrix()


def test_what_cannot_be_had_is_not_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    lab.begin("11")  # no plan of the restart agent there
    panel = panels.Matrix("durable", "dispatch")
    panel.agent.value = "restart"
    assert said(panel) == "this folder holds no plan of the restart agent"
    assert (panel.agent.value, panel.plan.value) == ("durable", "dispatch")
    panel.plan.value = "notice"
    assert said(panel) == "13 places, none of them tried."


def test_a_plan_with_a_hostile_name_is_text(begun: Path) -> None:
    here, name = verbs.current_folder().path, "<img src=x onerror=alert(1)>.json"
    shutil.copy(here / "plan.json", here / name)
    panel = panels.Matrix("restart", name)
    panel.run_all.click()
    assert "&lt;img" in panel.code.value
    assert "<img src=x" not in panel.code.value


@pytest.mark.parametrize(
    ("name", "label"),
    [("a\u202enosj.json", r"a\u202enosj.json"), ("a\nb.json", r"a\nb.json"),
     ("\udcff.json", r"\udcff.json")],
)  # fmt: skip
def test_the_name_of_a_plan_goes_to_the_browser_as_text(begun: Path, name: str, label: str) -> None:
    here = verbs.current_folder().path
    shutil.copy(here / "plan.json", here / name)
    panel = panels.Matrix()
    assert set(panel.plan._options_labels) == {label, "plan.json"}
    panel.plan.label = label
    assert panel.plan.value == name
    assert said(panel) == "9 places, none of them tried."


def test_what_a_process_said_is_text(begun: Path) -> None:
    panel = panels.Matrix()
    why, folder = "<img src=x onerror=alert(1)>", verbs.current_folder()
    outcome = cells.Outcome(0, cells.grid()[0], "not killed", "", why, "notes", folder)
    panel.sweep = SimpleNamespace(outcomes=[outcome], close=lambda: None)  # type: ignore[assignment]
    panel.cells[0].click()
    assert "(&lt;img src=x onerror=alert(1)&gt;)" in panel.outcome.value


def test_a_plan_that_was_deleted_is_missed_and_comes_back(begun: Path) -> None:
    panel, plan = panels.Matrix(), verbs.current_folder().path / "plan.json"
    kept = plan.read_bytes()
    plan.unlink()
    for _ in range(2):
        panel.run_all.click()
        assert said(panel) == "this folder holds no plan of the restart agent"
    panel.unsafe.value = True
    assert (panel.unsafe.value, panel.plan.value) == (False, "plan.json")
    plan.write_bytes(kept)
    panel.unsafe.value = True
    assert said(panel) == "9 places, none of them tried."


# Legible.


def test_every_verdict_has_letters_that_stand_out() -> None:
    found = re.findall(r"is-(\w+) \{ color: (\w+); background: (#\w+)", matrix._CSS)
    assert {kind for kind, *_ in found} == {"held", "waits", "broken", "unproved"}
    for _, letters, colour in found:
        assert contrast(luminance({"white": "#FFFFFF", "black": "#000000"}[letters]),
                        luminance(colour)) >= 4.5  # fmt: skip


def luminance(colour: str) -> float:
    """Of a colour as #RRGGBB, by the formula of WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)

"""Each original, in a real JupyterLab at 1280 x 720, in both themes, is legible and whole."""

from __future__ import annotations

import os

import pytest

from labkit.lab import content
from labkit.lab.content import Notebook
from tests.browser.lab_page import DARK, LIGHT, LabPage
from tests.browser.looks import problems_of_a_notebook

pytestmark = [pytest.mark.proof, pytest.mark.timeout(180)]


@pytest.mark.parametrize("entry", content.notebooks(), ids=lambda entry: entry.number)
def test_it_is_legible_and_whole(entry: Notebook, lab: LabPage) -> None:
    lab.open(entry.file)
    for theme in (LIGHT, DARK):
        lab.use_theme(theme)
        photograph(lab, f"{entry.number}-{theme.split()[1].lower()}")
        assert problems_of_a_notebook(lab.page) == []


def test_the_control_is_found_wanting(lab: LabPage) -> None:
    lab.open("spoiled.ipynb")
    found = " | ".join(problems_of_a_notebook(lab.page))
    for problem in ("no alternative text", "is missing", "wider than", "stderr", "contrast"):
        assert problem in found
    lab.use_theme(DARK)
    assert "contrast" in " ".join(problems_of_a_notebook(lab.page))


def photograph(lab: LabPage, name: str) -> None:
    """The first screen, for someone to look at; with PHOTOGRAPHS=all in the environment every
    screen from top to bottom, which takes ten times as long as all that is tested here."""
    scroll = "(down) => { const e = document.querySelector('.jp-WindowedPanel-outer');"
    scroll += " const was = e.scrollTop; e.scrollTop += down; return e.scrollTop > was; }"
    lab.page.evaluate(scroll, -1_000_000)
    lab.photograph(f"{name}-00")
    number = 0
    while os.environ.get("PHOTOGRAPHS") == "all" and lab.page.evaluate(scroll, 600):
        lab.photograph(f"{name}-{(number := number + 1):02d}")

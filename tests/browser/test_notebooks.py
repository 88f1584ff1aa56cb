"""Each original, in a real JupyterLab at 1280 x 720, in both themes, is legible and whole."""

from __future__ import annotations

import os

import pytest

from labkit.lab import content
from labkit.lab.content import Notebook
from tests.browser.lab_page import DARK, LIGHT, LabPage

CONTRAST_MIN = 4.5  # WCAG 2.2, success criterion 1.4.3
pytestmark = [pytest.mark.proof, pytest.mark.timeout(180)]

PROBLEMS = """
(contrastMin) => {
  const found = [];
  const panel = document.querySelector('.jp-NotebookPanel');
  const outputs = panel.querySelectorAll('.jp-OutputArea-output, .jp-RenderedMarkdown');
  for (const image of panel.querySelectorAll('.jp-OutputArea-output img')) {
    if (!image.complete || !image.naturalWidth) found.push('a figure is missing');
    if (image.alt.split(' ').length < 3)  // where there is none, JupyterLab says "Image"
      found.push('a figure has no alternative text');
    if (image.getBoundingClientRect().right > innerWidth) found.push('cut: ' + image.alt);
  }
  for (const area of panel.querySelectorAll('.jp-OutputArea-output')) {
    if (area.scrollWidth > area.clientWidth + 1)
      found.push('an output is wider than the page: ' + area.innerText.slice(0, 60));
    if (area.dataset.mimeType === 'application/vnd.jupyter.stderr')
      found.push('stderr: ' + area.innerText.slice(0, 60));
  }
  const channels = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const [r, g, b, a = 1] = channels(getComputedStyle(e).backgroundColor);
      if (b !== undefined && a > 0.9) return [r, g, b];
    }
    return [255, 255, 255];
  };
  for (const part of outputs) {
    for (const element of part.querySelectorAll('td, th, p, li, pre, code, h1, h2')) {
      if (!element.innerText.trim()) continue;
      const colours = [channels(getComputedStyle(element).color), behind(element)];
      const [one, two] = colours.map(luminance);
      const contrast = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
      if (contrast < contrastMin)
        found.push(`contrast ${contrast.toFixed(1)}: ` + element.innerText.slice(0, 60));
    }
  }
  return found;
}
"""


@pytest.mark.parametrize("entry", content.notebooks(), ids=lambda entry: entry.number)
def test_it_is_legible_and_whole(entry: Notebook, lab: LabPage) -> None:
    lab.open(entry.file)
    for theme in (LIGHT, DARK):
        lab.use_theme(theme)
        photograph(lab, f"{entry.number}-{theme.split()[1].lower()}")
        assert lab.page.evaluate(PROBLEMS, CONTRAST_MIN) == []


def test_the_control_is_found_wanting(lab: LabPage) -> None:
    lab.open("spoiled.ipynb")
    found = " | ".join(lab.page.evaluate(PROBLEMS, CONTRAST_MIN))
    for problem in ("no alternative text", "is missing", "wider than", "stderr", "contrast"):
        assert problem in found
    lab.use_theme(DARK)
    assert "contrast" in " ".join(lab.page.evaluate(PROBLEMS, CONTRAST_MIN))


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

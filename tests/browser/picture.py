"""The README's picture of the instructor's panel: a photograph from a real JupyterLab.

    python -m tests.browser.picture

It opens notebook 20, kills an agent by the panel after its report is written, and photographs what
the room sees. The picture changes only with what is to be seen.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

from playwright.sync_api import Locator, expect

from labkit.lab import content
from labkit.lab.places import originals
from tests.browser.lab_page import LabPage
from tests.browser.server import CHROMIUM, NO_CHROMIUM, chromium, jupyterlab, new_page

PICTURE = "instructor-panel.png"
PLACE = "after_effect:2"


def take(lab: LabPage, path: Path) -> str:
    """Photographs the panel of notebook 20 after a kill; returns what the picture shows, in words.

    The words are those that the panel itself gives to a screen reader, so they cannot be wrong.
    """
    file = content.notebook("20").file
    cells = json.loads((originals() / file).read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    lab.open(file)
    lab.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    for line in ('lab.begin("20")', "panels.Instructor("):
        lab.run_cell(next(n for n, source in enumerate(sources) if line in source))
    panel = lab.page.locator(".labkit-instructor")
    for name in (PLACE, "Create", "Run"):
        panel.get_by_role("button", name=name, exact=True).click()
    expect(panel.get_by_role("status")).to_have_text(re.compile("killed by SIGKILL"))
    shown = panel.locator("img")
    expect(shown).to_have_attribute("alt", re.compile("1 killed"))
    photograph(lab, panel, path)
    said = panel.get_by_role("status").inner_text()
    return f"The instructor's panel. {said} {shown.get_attribute('alt')}"


def photograph(lab: LabPage, panel: Locator, path: Path) -> None:
    lab.page.mouse.move(0, 0)
    lab.page.evaluate("() => document.activeElement.blur()")
    # Not at an edge of the page, whose line would be in the picture at times.
    panel.evaluate("(element) => element.scrollIntoView({block: 'center'})")
    panel.screenshot(path=path, animations="disabled")


def main() -> None:
    if CHROMIUM is None:
        print(f"the picture was not taken: it {NO_CHROMIUM}")
        return
    temporary = tempfile.TemporaryDirectory(prefix="labkit-picture-")
    with temporary as home, jupyterlab(Path(home)) as server, chromium() as browser:
        lab = LabPage(new_page(browser), *server)
        lab.load()
        take(lab, originals() / PICTURE)


if __name__ == "__main__":
    main()

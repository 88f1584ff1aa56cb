"""JupyterLab as somebody in front of it uses it: open, run, press, type, look."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from playwright.sync_api import ConsoleMessage, Error, Locator, Page, expect

LIGHT, DARK = "JupyterLab Light", "JupyterLab Dark"
SHOTS = Path(__file__).with_name("screenshots")
WAIT_MS = 60_000  # for JupyterLab and its kernels, which start while every core is busy
PATIENCE_MS = 30_000  # for what a panel does

OPEN = """
async ([path, id]) => {
  const file = {path, kernel: {id}};
  const panel = await window.jupyterapp.commands.execute('docmanager:open', file);
  await panel.context.ready;
  await panel.revealed;
  await panel.sessionContext.ready;
  window.complaints = [];  // what a control's function raises is shown nowhere
  panel.sessionContext.session.kernel.anyMessage.connect((_, {msg}) => {
    if (msg.header.msg_type === 'error' && msg.parent_header.msg_type !== 'execute_request')
      window.complaints.push(msg.content.traceback.join('\\n'));
  });
}
"""
IS_SHOWN = """
() => {
  const panel = window.jupyterapp.shell.currentWidget;
  const length = panel?.content?.model?.cells?.length;  // it has none while it is loaded again
  if (length === undefined) return false;
  const cells = [...panel.node.querySelectorAll('.jp-Cell')];
  const isShown = (cell) => cell.querySelector('.cm-content, .jp-RenderedMarkdown');
  return cells.length === length && cells.every(isShown);
}
"""
HAS_KERNEL = """
() => {
  const session = window.jupyterapp.shell.currentWidget?.sessionContext;
  return session?.isReady && session.session?.kernel?.status === 'idle';
}
"""
SAVE = "() => window.jupyterapp.commands.execute('docmanager:save')"
RUN_ALL = "() => window.jupyterapp.commands.execute('notebook:run-all-cells')"
RUN_CELL = """
async (number) => {
  window.jupyterapp.shell.currentWidget.content.activeCellIndex = number;
  await window.jupyterapp.commands.execute('notebook:run-cell');
}
"""
FOCUS_CELL = """
(number) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.mode = 'command';
  notebook.activeCellIndex = number;
  notebook.activeCell.node.focus();
}
"""
HAS_A_RING = """
(element) => {
  const {outlineStyle, outlineWidth} = getComputedStyle(element);
  return outlineStyle !== 'none' && parseFloat(outlineWidth) >= 1;
}
"""
RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()"
CLOSE = """
() => {
  for (const panel of [...window.jupyterapp.shell.widgets('main')])
    if (panel.sessionContext) panel.dispose();
  return new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
}
"""
CHANGE_THEME = "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"
ERRORS = """
() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
  .flatMap((cell) => cell.toJSON().outputs ?? [])
  .filter((output) => output.output_type === 'error')
  .map((output) => output.traceback.join('\\n'))
"""

# JupyterLab says this of a kernel that was restarted while it spoke: of its widgets, and of what
# its debugger was asked.
OF_A_RESTART = (
    "Comm not found for comm id",
    "Could not restore the debugger state: Canceled future for debug_request",
)


class LabPage:
    """One tab with JupyterLab, whose files lie in `folder`; its children carry `session`.

    `errors` holds what the console and the scripts of the page have complained of.
    """

    def __init__(self, page: Page, address: str, token: str, folder: Path, session: str) -> None:
        self.page, self.address, self.token = page, address, token
        self.folder, self.session = folder, session
        self.errors: list[str] = []
        self._was_restarted = False
        self._file = ""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(error.stack or str(error)))

    def _console(self, said: ConsoleMessage) -> None:
        is_of_a_restart = self._was_restarted and said.text.startswith(OF_A_RESTART)
        if said.type == "error" and not is_of_a_restart:
            self.errors.append(said.text)

    def load(self) -> None:
        """JupyterLab itself, with no file open."""
        self.page.goto(f"{self.address}/lab?token={self.token}&reset")
        self._wait_until_loaded()

    def reload(self) -> None:
        """The page, as by F5: the kernel lives on, what was not saved is lost. JupyterLab opens
        what was open when it last noted that, some time ago: so the notebook is opened here."""
        self.page.once("dialog", lambda asked: asked.accept())  # it asks, if there is such a thing
        self.page.reload()
        end = time.monotonic() + WAIT_MS / 1000
        while True:  # a page that is still being put together may lose what was asked of it
            try:
                self._wait_until_loaded()
                self.open(self._file)
                break
            except Error:
                if time.monotonic() > end:
                    raise
                self.page.wait_for_timeout(200)
        self.wait_until_idle()

    def save(self) -> None:
        self.page.evaluate(SAVE)

    def _wait_until_loaded(self) -> None:
        self.page.wait_for_function("() => window.jupyterapp", timeout=WAIT_MS)
        self.page.evaluate("() => window.jupyterapp.restored")

    def open(self, file: str, *, kernel: str | None = None) -> None:
        """A notebook, in front, with every cell in the page.

        Its kernel is the one that the tests share, unless there is another: a kernel takes a second
        to start, and two to import what a panel needs.
        """
        self._file = file
        self.page.evaluate(OPEN, [file, kernel or self.kernel()])
        self.page.wait_for_function(IS_SHOWN, timeout=WAIT_MS)

    def kernel(self) -> str:
        """The id of the server's first kernel, which is started where there is none."""
        running = json.loads(self._ask("GET", "api/kernels"))
        return str((running or [json.loads(self._ask("POST", "api/kernels"))])[0]["id"])

    def write(self, file: str, *cells: str) -> None:
        """A notebook of these cells of code, and opens it."""
        (self.folder / file).write_text(json.dumps(notebook(*cells)), encoding="utf-8")
        self.open(file)

    def run_all(self) -> None:
        """Every cell, until the kernel is idle. No cell may fail."""
        self.wait_until_idle()
        self.page.evaluate(RUN_ALL)
        self._expect_no_error()

    def run_cell(self, number: int) -> None:
        """The cell of that number from 0, until the kernel is idle. It may not fail."""
        self.wait_until_idle()
        self.page.evaluate(RUN_CELL, number)
        self._expect_no_error()

    def _expect_no_error(self) -> None:
        raised = self.page.evaluate(ERRORS)
        assert not raised, "\n".join(raised)

    def wait_until_idle(self) -> None:
        self.page.wait_for_function(HAS_KERNEL, timeout=WAIT_MS)

    def run_folder(self, number: str) -> Path:
        """The folder in which the notebook of that number works at the moment."""
        runs = self.folder.parent / "lab" / "runs" / number / "latest"
        resets = len(list(runs.glob("stage*")))
        return runs / ("first" if not resets else "stage" if resets == 1 else f"stage-{resets}")

    def restart_kernel(self) -> None:
        self._was_restarted = True
        self.page.evaluate(RESTART)
        self.wait_until_idle()

    def close_files(self) -> None:
        """Every document, unsaved; the kernel lives on. What JupyterLab says of requests that were
        under way has been said then."""
        self.page.evaluate(CLOSE)

    def press_until(self, key: str, target: Locator, *, most: int = 120) -> None:
        """Presses a key, as Tab, until `target` has the focus, and is seen to have it."""
        for _ in range(most):
            if target.evaluate("(element) => element === document.activeElement"):
                assert target.evaluate(HAS_A_RING), f"nothing shows that {target} has the focus"
                return
            self.page.keyboard.press(key)
        raise AssertionError(f"{most} times {key} do not lead to {target}")

    def focus_cell(self, number: int) -> None:
        """As a reader has it who comes by the keyboard: the cell is active, nothing in it is."""
        self.page.evaluate(FOCUS_CELL, number)

    def complaints(self) -> list[str]:
        """Of the console, of the scripts of the page, and of the functions of a panel."""
        return [*self.errors, *(self.page.evaluate("() => window.complaints ?? []"))]

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits for what is to be seen outside the page; the page goes on meanwhile."""
        end = time.monotonic() + PATIENCE_MS / 1000
        while not holds():
            assert time.monotonic() < end, f"not within {PATIENCE_MS} ms: {what}"
            self.page.wait_for_timeout(20)

    @property
    def outputs(self) -> Locator:
        return self.page.locator(".jp-NotebookPanel:visible .jp-OutputArea-output")

    def use_theme(self, theme: str) -> None:
        self.page.evaluate(CHANGE_THEME, theme)
        self.page.wait_for_selector(f"body[data-jp-theme-name='{theme}']", state="attached")
        # JupyterLab takes its splash away 200 ms later, once for each change: after two changes in
        # that time the second finds none, and throws.
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")

    def photograph(self, name: str) -> None:
        """One screen, for someone to look at."""
        SHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png")

    def end_kernels(self) -> None:
        """Every kernel of the server, also those whose tab is gone."""
        for kernel in json.loads(self._ask("GET", "api/kernels")):
            self._ask("DELETE", f"api/kernels/{kernel['id']}")

    def _ask(self, method: str, path: str) -> bytes:
        headers = {"Authorization": f"token {self.token}"}
        request = Request(f"{self.address}/{path}", method=method, headers=headers)
        with urlopen(request, timeout=60) as answer:
            return bytes(answer.read())


class PanelInPage:
    """A panel in the page, and its controls as somebody finds them."""

    def __init__(self, lab: LabPage, css_class: str) -> None:
        self.lab, self.root = lab, lab.page.locator(f".{css_class}")
        self.status = self.root.get_by_role("status")

    def button(self, name: str) -> Locator:
        return self.root.get_by_role("button", name=name, exact=True)

    def press(self, *names: str) -> None:
        for name in names:
            self.button(name).click()

    def says(self, words: str) -> None:
        expect(self.status).to_have_text(re.compile(words))


def notebook(*cells: str) -> dict[str, Any]:
    """A notebook file of these cells of code, none of them run."""
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return {
        "cells": [
            {
                "cell_type": "code", "id": f"c{number}", "metadata": {}, "source": [source],
                "outputs": [], "execution_count": None,
            }
            for number, source in enumerate(cells)
        ],
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }  # fmt: skip


def alive(session: str) -> dict[int, str]:
    """What runs under this LABKIT_SESSION besides JupyterLab and its kernels: agents, guards.

    By process id, the command. Empty where there is no /proc.
    """
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environ = b"\0" + (process / "environ").read_bytes() + b"\0"
            command = (
                (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
        except OSError:
            continue  # it has ended, or is another user's
        is_jupyter = "ipykernel_launcher" in command or " jupyterlab " in command
        if f"\0LABKIT_SESSION={session}\0".encode() in environ and command and not is_jupyter:
            found[int(process.name)] = command.strip()
    return found

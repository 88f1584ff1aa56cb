"""A real JupyterLab with its token, on the loopback, and Debian's Chromium in front of it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from labkit import guard
from labkit.lab.places import originals
from tests.browser.lab_page import LIGHT, PATIENCE_MS, LabPage, alive

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SPOILED = Path(__file__).with_name("spoiled.json")  # a notebook in which everything is wrong
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
SETTINGS = {  # every cell is in the page, so that the page can be asked about all of them
    "@jupyterlab/notebook-extension/tracker.jupyterlab-settings": {"windowingMode": "defer"},
}


expect.set_options(timeout=PATIENCE_MS)


class Server(NamedTuple):
    """Where JupyterLab listens, what it lets in, where its files lie, what its children carry."""

    address: str
    token: str
    folder: Path
    session: str


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """JupyterLab over a copy of the notebooks."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium; on Debian and Ubuntu: apt-get install chromium")
    home = tmp_path_factory.mktemp("jupyter")
    shutil.copytree(originals(), home / "notebooks")
    (home / "notebooks" / "spoiled.ipynb").write_bytes(SPOILED.read_bytes())
    for name, setting in SETTINGS.items():
        (home / "settings" / name).parent.mkdir(parents=True)
        (home / "settings" / name).write_text(json.dumps(setting), encoding="utf-8")
    token = secrets.token_hex(16)
    argv = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0",
        "--ServerApp.ip=127.0.0.1", f"--IdentityProvider.token={token}", "--expose-app-in-browser",
        f"--LabApp.user_settings_dir={home / 'settings'}",
        f"--LabApp.workspaces_dir={home / 'workspaces'}",
    ]  # fmt: skip
    session = f"browser-{secrets.token_hex(8)}"
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_PATH": str(ROOT / ".jupyter"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "LABKIT_HOME": str(home / "lab"),
        "LABKIT_SESSION": session,
    }
    log = home / "server.txt"
    with (
        open(log, "wb") as output,
        guard.start(
            argv, cwd=str(home / "notebooks"), env=environment, stdout=output, stderr=output
        ) as process,
    ):
        while not (port := re.search(r"127\.0\.0\.1:(\d+)/lab", log.read_text(encoding="utf-8"))):
            assert process.poll() is None, log.read_text(encoding="utf-8")
        yield Server(f"http://127.0.0.1:{port[1]}", token, home / "notebooks", session)
        process.kill()


# Playwright's loop runs in this thread for as long as the browser lives: no other package's tests
# may then run a loop of their own, so it ends with this one.
@pytest.fixture(scope="package")
def browser(server: Server) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))


@pytest.fixture(scope="package")
def tab(browser: Browser, server: Server) -> Iterator[LabPage]:
    """JupyterLab in a tab that the tests share: it takes seconds to load, a notebook does not."""
    lab = LabPage(new_page(browser), *server)
    lab.load()
    yield lab
    lab.page.context.close()


@pytest.fixture
def lab(tab: LabPage, request: pytest.FixtureRequest) -> Iterator[LabPage]:
    """JupyterLab in light, with no file open. At the end no agent is alive, and the console has
    shown no error. Of a test that failed there is a photograph."""
    tab.errors.clear()
    failed_before = request.session.testsfailed
    yield tab
    if request.session.testsfailed > failed_before:
        tab.photograph(f"failed-{request.node.name}")
    try:
        tab.wait_until(lambda: alive(tab.session) == {}, "no agent is alive")
        assert tab.complaints() == []
    finally:
        tab.close_files()
        tab.use_theme(LIGHT)
        if alive(tab.session):
            tab.end_kernels()


@pytest.fixture
def another_tab(browser: Browser, server: Server) -> Iterator[LabPage]:
    """One that a test may close."""
    lab = LabPage(new_page(browser), *server)
    lab.load()
    yield lab
    lab.page.context.close()
    assert lab.errors == []


def new_page(browser: Browser) -> Page:
    """Of the size of a projector."""
    return browser.new_context(viewport={"width": 1280, "height": 720}).new_page()

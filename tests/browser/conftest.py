"""The fixtures: one JupyterLab and one tab for all tests, and what must hold after each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.lab_page import LIGHT, PATIENCE_MS, LabPage, alive
from tests.browser.server import CHROMIUM, NO_CHROMIUM, Server, chromium, jupyterlab, new_page

SPOILED = Path(__file__).with_name("spoiled.json")  # a notebook in which everything is wrong

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """JupyterLab over a copy of the notebooks."""
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    with jupyterlab(tmp_path_factory.mktemp("jupyter")) as running:
        (running.folder / "spoiled.ipynb").write_bytes(SPOILED.read_bytes())
        yield running


# Playwright's loop runs in this thread for as long as the browser lives: no other package's tests
# may then run a loop of their own, so it ends with this one.
@pytest.fixture(scope="package")
def browser(server: Server) -> Iterator[Browser]:
    with chromium() as running:
        yield running


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

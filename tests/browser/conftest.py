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

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from labkit import guard
from labkit.lab.places import originals

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SPOILED = Path(__file__).with_name("spoiled.json")  # a notebook in which everything is wrong
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
SETTINGS = {  # every cell is in the page, so that the page can be asked about all of them
    "@jupyterlab/notebook-extension/tracker.jupyterlab-settings": {"windowingMode": "defer"},
}


@pytest.fixture(scope="session")
def lab_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where JupyterLab serves a copy of the notebooks; {} in it is a notebook's file."""
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
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_PATH": str(ROOT / ".jupyter"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "LABKIT_HOME": str(home / "lab"),
    }
    log = home / "server.txt"
    with (
        open(log, "wb") as output,
        guard.start(
            argv, cwd=str(home / "notebooks"), env=environment, stdout=output, stderr=output
        ) as server,
    ):
        while not (port := re.search(r"127\.0\.0\.1:(\d+)/lab", log.read_text(encoding="utf-8"))):
            assert server.poll() is None, log.read_text(encoding="utf-8")
        yield f"http://127.0.0.1:{port[1]}/lab/tree/{{}}?token={token}&reset"
        server.kill()


# Playwright's loop runs in this thread for as long as the browser lives: no other package's tests
# may then run a loop of their own, so it ends with this one.
@pytest.fixture(scope="package")
def browser(lab_url: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of the size of a projector, which keeps no error of the console to itself."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    page = context.new_page()
    errors: list[str] = []
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []

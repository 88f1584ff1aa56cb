"""A real JupyterLab with its token, on the loopback, and Debian's Chromium in front of it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from labkit import guard
from labkit.lab.places import originals

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NO_CHROMIUM = "needs Chromium; on Debian and Ubuntu: apt-get install chromium"
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
SETTINGS = {  # every cell is in the page, so that the page can be asked about all of them
    "@jupyterlab/notebook-extension/tracker.jupyterlab-settings": {"windowingMode": "defer"},
}


class Server(NamedTuple):
    """Where JupyterLab listens, what it lets in, where its files lie, what its children carry."""

    address: str
    token: str
    folder: Path
    session: str


@contextmanager
def jupyterlab(home: Path) -> Iterator[Server]:
    """JupyterLab over a copy of the notebooks, which lies in `home` with all that it writes."""
    shutil.copytree(originals(), home / "notebooks")
    for name, setting in SETTINGS.items():
        (home / "settings" / name).parent.mkdir(parents=True)
        (home / "settings" / name).write_text(json.dumps(setting), encoding="utf-8")
    token, session = secrets.token_hex(16), f"browser-{secrets.token_hex(8)}"
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


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))


def new_page(browser: Browser) -> Page:
    """Of the size of a projector."""
    return browser.new_context(viewport={"width": 1280, "height": 720}).new_page()

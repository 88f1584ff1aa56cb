"""Where things are: the checkout with the originals, and `.lab` with the learner's runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from labkit.errors import NotFound

__all__ = ["checkout", "command", "home", "originals", "settle"]


def checkout() -> Path | None:
    """The checkout this package was imported from, or None for a package installed elsewhere.

    Found from the package, never from the working directory: JupyterLab, VS Code and nbval start
    a kernel in different folders.
    """
    root = Path(__file__).resolve().parents[2]
    return root if (root / "notebooks").is_dir() and (root / "pyproject.toml").is_file() else None


def command() -> str:
    """How `labkit` is typed here: `make lab` puts it into `.venv` and not on anybody's PATH."""
    root = checkout()
    made_here = root is not None and (root / ".venv/bin/labkit").exists()
    return ".venv/bin/labkit" if made_here and not shutil.which("labkit") else "labkit"


def home() -> Path:
    """The folder of runs and progress: `LABKIT_HOME`, or `.lab` in the checkout, or `.lab` here."""
    if asked := os.environ.get("LABKIT_HOME"):
        # `~`, since a quoted one comes so.
        return Path(os.path.expanduser(asked)).absolute()
    return (checkout() or Path.cwd()) / ".lab"


def settle() -> None:
    """From now on `home` is where it is now: a cell may change the working directory."""
    os.environ["LABKIT_HOME"] = str(home())


def originals() -> Path:
    """The folder of the notebooks as published. Raises NotFound outside a checkout."""
    root = checkout()
    if root is None:
        raise NotFound(
            "this labkit is not in a checkout, so it has no notebooks; "
            "clone the repository and install it with pip install -e ."
        )
    return root / "notebooks"

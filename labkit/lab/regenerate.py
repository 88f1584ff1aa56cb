"""`python -m labkit.lab.regenerate [NN ...]`: run the originals again and store their outputs.

A notebook that shows what it showed before is not written, so nothing changed is no diff. What
would differ by machine is not stored: times of execution, widgets and their state (of a panel its
sentence stays), the version of Python.
"""

from __future__ import annotations

import base64
import copy
import io
import os
import re
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import LabkitError, NotFound
from labkit.lab import content
from labkit.lab.hints import folded
from labkit.lab.places import originals

if TYPE_CHECKING:
    from nbformat import NotebookNode

__all__ = ["execute", "main", "regenerate"]

CELL_TIMEOUT_S = 60
WIDGET = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def main(argv: list[str]) -> int:
    """Regenerates the notebooks of these numbers, or all. 1 when a cell fails."""
    try:
        for number in argv or [entry.number for entry in content.notebooks()]:
            path = originals() / content.notebook(number).file
            print(f"{path.name}: {'rewritten' if regenerate(path) else 'unchanged'}", flush=True)
    except LabkitError as error:
        with suppress(AttributeError, OSError, ValueError):  # nobody reads it: the code must do
            sys.stderr.write(f"regenerate: {error}\n")
        return error.exit_code
    return 0


def regenerate(path: Path) -> bool:
    """Executes one notebook in place; True if its text is another one now. Raises CellFailed."""
    import nbformat

    before = path.read_text(encoding="utf-8")
    stored = nbformat.reads(before, as_version=4)  # type: ignore[no-untyped-call]
    notebook = copy.deepcopy(stored)
    _fill_hints(notebook)
    execute(notebook, path.parent)
    _keep_equal_images(stored, notebook)
    after = nbformat.writes(notebook) + "\n"  # type: ignore[no-untyped-call]
    if after == before:
        return False
    path.write_text(after, encoding="utf-8")
    return True


def execute(notebook: NotebookNode, folder: Path, *, allow_errors: bool = False) -> None:
    """Runs every cell from the first in a fresh kernel whose progress and runs are thrown away.

    Raises CellFailed with the first cell that fails, unless errors are allowed; NotFound without
    nbclient.
    """
    try:
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    except ImportError:
        raise NotFound("nbclient is missing; install it with pip install -e '.[test]'") from None

    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name=KERNEL["name"],
        allow_errors=allow_errors,
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,  # how prints are cut into messages depends on timing
        resources={"metadata": {"path": str(folder)}},
    )
    with tempfile.TemporaryDirectory() as home:
        own = {"LABKIT_HOME": home, "IPYTHONDIR": home}  # not the author's progress and profile
        try:
            client.execute(env={**os.environ, **own})
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            raise CellFailed(f"a cell failed, nothing was stored:\n{error}") from None
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    _drop_widgets(notebook)


def _drop_widgets(notebook: NotebookNode) -> None:
    """A widget lives in its kernel. Stored, it would be a name that no kernel knows, and another
    one each time."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET, None)


def _fill_hints(notebook: NotebookNode) -> None:
    """Writes the hints of `content.toml` into their cells: `05-ex1-hints` has those of 05.ex1."""
    hints = {f"{each.id.replace('.', '-')}-hints": folded(each) for each in content.exercises()}
    for cell in notebook.cells:
        cell.source = hints.get(cell.id, cell.source)


def _keep_equal_images(stored: NotebookNode, executed: NotebookNode) -> None:
    """Takes the stored bytes of an image whose pixels are the same.

    How zlib packs them depends on the processor, and that is no change of a notebook.
    """
    for old_cell, cell in zip(stored.cells, executed.cells, strict=True):
        for old, new in zip(old_cell.get("outputs", []), cell.get("outputs", []), strict=False):
            was, now = (output.get("data", {}).get("text/html", "") for output in (old, new))
            if was != now and _pixels(was) is not None and _pixels(was) == _pixels(now):
                new["data"]["text/html"] = was


def _pixels(markup: str) -> tuple[str, bytes] | None:
    """The text around an image in HTML, and its pixels; None without an image."""
    image = re.search(r"data:image/png;base64,([^\"]+)", markup)
    if not image:
        return None
    from matplotlib.image import imread

    around = markup.replace(image[1], "")
    return around, imread(io.BytesIO(base64.b64decode(image[1]))).tobytes()


class CellFailed(LabkitError):
    """A cell of an original raised; the message holds its source and the traceback."""

    exit_code = 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

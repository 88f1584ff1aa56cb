"""What a published notebook must be, as one list of complaints. Reads files, runs nothing."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

from labkit.lab import content
from labkit.lab.content import Exercise, Notebook
from labkit.lab.hints import folded

Cell = dict[str, Any]
NotebookJSON = dict[str, Any]

KNOWN_TAGS = {"setup", "control", "predict", "run", "exercise", "widget", "nbval-ignore-output"}
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
CELLS_PER_FIGURE = 9
COLUMNS_MAX = 84  # of code and of what is printed: more is wrapped on a screen of 1280 x 720
LINES_MAX, MEDIAN_LINES_MAX, CODE_CELLS = 25, 6, range(8, 26)


def complaints(notebook: NotebookJSON, entry: Notebook, glossary: str) -> list[str]:
    """Each breach of the rules in one line; an empty list is a good notebook."""
    return [
        *_form(notebook),
        *_counts(_code(notebook)),
        *_rhythm(notebook),
        *(line for cell in notebook["cells"] for line in _cell(cell)),
        *(line for cell in _code(notebook) for line in _outputs(cell)),
        *_prose(notebook, entry, glossary),
        *_exercises(notebook, entry),
    ]


def source(cell: Cell) -> str:
    return "".join(cell["source"])


def _code(notebook: NotebookJSON) -> list[Cell]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _form(notebook: NotebookJSON) -> Iterator[str]:
    metadata = notebook["metadata"]
    if metadata.get("kernelspec") != KERNEL:
        yield "the kernel must be python3, or it opens on a missing one elsewhere"
    if extra := set(metadata) - {"kernelspec", "language_info"}:
        yield f"metadata {sorted(extra)}: GitHub refuses widget state, the rest is noise"
    if metadata.get("language_info") != {"name": "python"}:
        yield "language_info differs by machine; make notebooks stores it right"
    ids = [cell["id"] for cell in notebook["cells"]]
    if len(set(ids)) != len(ids):
        yield "two cells have one id"


def _counts(cells: list[Cell]) -> Iterator[str]:
    counts = [cell["execution_count"] for cell in cells]
    if counts != list(range(1, len(cells) + 1)):
        yield f"execution counts are {counts}: Restart and Run All, or make notebooks"
    if not any(cell["outputs"] for cell in cells):
        yield "no output is stored, so nothing would be compared"


def _rhythm(notebook: NotebookJSON) -> Iterator[str]:
    lines = [len(source(cell).splitlines()) for cell in _code(notebook)]
    if len(lines) not in CODE_CELLS:
        yield f"{len(lines)} code cells"
    if statistics.median(lines) > MEDIAN_LINES_MAX:
        yield f"code cells have a median of {statistics.median(lines)} lines"
    if max(lines) > LINES_MAX:
        yield f"a code cell has {max(lines)} lines"
    images = [alt for cell in _code(notebook) for alt in _alternatives(_markup(cell))]
    if len(images) * CELLS_PER_FIGURE < len(lines):
        yield f"{len(images)} figures in {len(lines)} code cells"
    kinds = "".join(cell["cell_type"][0] for cell in notebook["cells"])
    if "ccc" in kinds:
        yield "three code cells without a word between them"


def _cell(cell: Cell) -> Iterator[str]:
    text, where = source(cell), cell["id"]
    tags = cell["metadata"].get("tags", [])
    if set(cell["metadata"]) - {"tags"}:
        yield f"{where}: metadata other than tags"
    if unknown := set(tags) - KNOWN_TAGS:
        yield f"{where}: unknown tags {sorted(unknown)}; nbval ignores a misspelt one silently"
    if ("widget" in tags) != ("nbval-ignore-output" in tags):
        yield f"{where}: the output of a widget is not compared, and nothing else is let off"
    if cell["cell_type"] == "code":
        yield from _python(text, where, "exercise" in tags)
        yield from _width(text, f"{where}: a line of code")


def _python(text: str, where: str, exercise: bool) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        yield f"{where}: no plain Python (a magic? nbval passes a misspelt one)"
        return
    if text.rstrip().endswith(";"):
        yield f"{where}: nbval ignores a trailing semicolon"
    parameters = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}  # of a tool
    banned = {"input", "_", "In", "Out", "get_ipython"} - parameters
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in banned:
            yield f"{where}: {node.id} does not work under a test"
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not exercise:
            yield f"{where}: defines {node.name}; the package is the only source"


# What would be another text on another machine or at another time.
VARYING = {
    "an absolute path": r"(?<![\w.])/(?:home|root|tmp|usr|work|Users|var)/",
    "a memory address": r"0x[0-9a-f]{6,}",
    "a process id": r"\bpid\b",
    "a duration": r"\b\d+\.\d+ ?(?:s|ms|seconds)\b",
}


def _outputs(cell: Cell) -> Iterator[str]:
    for output in cell["outputs"]:
        where, kind = cell["id"], output["output_type"]
        if kind == "error":
            yield f"{where}: an error is stored"
        if output.get("name") == "stderr":
            yield f"{where}: something was written to stderr"
        data = output.get("data", {})
        printed = "".join(output.get("text", "")) + "".join(data.get("text/markdown", ""))
        yield from _width(printed, f"{where}: a printed line")
        text = "".join(output.get("text", "")) + "".join(data.get("text/plain", ""))
        for what, pattern in VARYING.items():
            if re.search(pattern, text):
                yield f"{where}: shows {what}"
        if any("widget" in name for name in data):
            yield f"{where}: stores a widget, which no kernel knows; make notebooks leaves it out"
        if any(name.startswith("image/") for name in data):
            yield f"{where}: a bare image has no alternative text in JupyterLab"
        yield from _images("".join(data.get("text/html", "")), text, where)


def _width(text: str, what: str) -> Iterator[str]:
    widest = max(map(len, text.splitlines()), default=0)
    if widest > COLUMNS_MAX:
        yield f"{what} has {widest} columns, {COLUMNS_MAX} fit"


def _markup(cell: Cell) -> str:
    pieces = (output.get("data", {}).get("text/html", "") for output in cell["outputs"])
    return "".join("".join(piece) for piece in pieces)


def _images(markup: str, text: str, where: str) -> Iterator[str]:
    for alt in _alternatives(markup):
        if len(alt.split()) < 5:
            yield f"{where}: an image without a sentence as alt"
        elif alt not in text:
            yield f"{where}: the image's sentence is not its plain text, so no test compares it"


def _alternatives(markup: str) -> list[str]:
    found: list[str] = []

    class Images(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag == "img":
                found.append(dict(attrs).get("alt") or "")

    Images().feed(markup)
    return found


def _prose(notebook: NotebookJSON, entry: Notebook, glossary: str) -> Iterator[str]:
    prose = "\n".join(source(c) for c in notebook["cells"] if c["cell_type"] == "markdown")
    code = "\n".join(source(cell) for cell in _code(notebook))
    levels = [len(marks) for marks in re.findall(r"^(#+) ", prose, flags=re.M)]
    if levels[:1] != [1] or levels.count(1) != 1:
        yield "one H1, and first"
    if any(below > above + 1 for above, below in pairwise(levels)):
        yield "a heading level is skipped"
    if f"| {entry.length} |" not in prose:
        yield f"the table does not say {entry.length} minutes"
    if f"| {_next(entry)} |" not in prose:
        yield f"the table does not say {_next(entry)!r} as what comes next"
    for words in ("After this notebook you can", "## What is still wrong", "## Key points"):
        if words not in prose:
            yield f"no {words!r}"
    if f'lab.begin("{entry.number}")' not in code or "lab.end()" not in code:
        yield "begins or ends as another notebook, or not at all"
    for anchor in re.findall(r"GLOSSARY\.md#([\w-]+)", prose):
        if f'id="{anchor}"' not in glossary:
            yield f"the glossary has no {anchor!r}"
    yield from _predictions(prose, code, entry)


def _next(entry: Notebook) -> str:
    order = content.notebooks()
    later = order[order.index(entry) + 1 :]
    return f"{later[0].number}, {later[0].title}" if later else "this is the last notebook"


def _predictions(prose: str, code: str, entry: Notebook) -> Iterator[str]:
    asked = re.findall(r'lab\.predict\("([^"]+)", "\?"\)', code)
    if asked != [question.id for question in content.questions(entry.number)]:
        yield f"asks {asked}, content.toml has other questions, or an answer is given away"
    if asked != re.findall(r'lab\.reveal\("([^"]+)"', code):
        yield "not every prediction is compared, in the same order"
    for question in content.questions(entry.number):
        for letter, text in question.options.items():
            if f"- **{letter}** {text}\n" not in prose + "\n":
                yield f"{question.id}: option {letter} of content.toml does not stand in the text"


def _exercises(notebook: NotebookJSON, entry: Notebook) -> Iterator[str]:
    cells = notebook["cells"]
    found = [i for i, c in enumerate(cells) if "exercise" in c["metadata"].get("tags", [])]
    wanted = content.exercises(entry.number)
    if [cells[i]["id"] for i in found] != [each.id.replace(".", "-") for each in wanted]:
        yield f"its exercise cells are not {[each.id for each in wanted]}, as content.toml says"
        return
    for i, exercise in zip(found, wanted, strict=True):
        yield from _exercise(cells[i - 1], cells[i], cells[i + 1], exercise)


def _exercise(text: Cell, cell: Cell, hints: Cell, exercise: Exercise) -> Iterator[str]:
    """The text says what is asked, the cell asks for the check, the hints are folded below it."""
    number = exercise.id.rpartition("ex")[2]
    if f"## Exercise {number}, {exercise.kind}, {exercise.minutes} minutes" not in source(text):
        yield f"{exercise.id}: no heading with its number, kind and minutes, as content.toml has"
    lines = source(cell).splitlines()
    if lines[-1] != f'lab.check("{exercise.id}", {exercise.name})' or "..." not in source(cell):
        yield f"{exercise.id}: needs a '...' and, last, lab.check of {exercise.name}"
    if hints["id"] != f"{cell['id']}-hints" or source(hints) != folded(exercise):
        yield f"{exercise.id}: its hints are not those of content.toml; make notebooks puts them in"
    printed = "".join("".join(output.get("text", "")) for output in cell["outputs"])
    if not printed.startswith((f"{exercise.id}  not judged", f"{exercise.id}  broken")):
        yield f"{exercise.id}: as shipped it must fail, and show that it does"

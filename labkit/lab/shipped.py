"""Is an answer still what its cell held when it was handed out? Then nobody has tried.

An exercise to repair has no `...` that could tell: its cell holds code that runs, and "Run All"
hands it to the check.
"""

from __future__ import annotations

import ast
import inspect
import json

from labkit.lab import content
from labkit.lab.content import Exercise
from labkit.lab.handing import source_of
from labkit.lab.places import originals

__all__ = ["is_as_shipped"]

PLAIN = (str, bytes, int, float, tuple, list, dict, set)


def is_as_shipped(exercise_id: str, answer: object) -> bool:
    """True for the same code or the same value; comments and white space may differ.

    False where the originals cannot be read, as outside a checkout.
    """
    try:
        shipped = _shipped(content.exercise(exercise_id))
        if inspect.isfunction(answer):
            (typed,) = ast.parse(source_of(answer)).body
            return ast.dump(typed) == ast.dump(shipped)
        # Equality of a learner's own class could be anything, and of a table it is a table.
        return type(answer) in PLAIN and bool(answer == ast.literal_eval(shipped))
    except Exception:  # no original, or a value of the learner's that cannot be compared
        return False


def _shipped(exercise: Exercise) -> ast.AST:
    """What the cell of the original defines under the name. Raises LookupError for a lack of it."""
    file = originals() / content.notebook(exercise.id.partition(".")[0]).file
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    cell_id = exercise.id.replace(".", "-")
    sources = ["".join(cell["source"]) for cell in cells if cell.get("id") == cell_id]
    for node in ast.parse(sources[0]).body:
        if isinstance(node, ast.FunctionDef) and node.name == exercise.name:
            return node
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == exercise.name:
            return node.value
    raise LookupError(exercise.name)

"""For each exercise a solution, and answers that the check must reject.

One file for each exercise, `05_ex1.py`, cut by lines that begin with `# %%`: the first part is the
solution, each other part a wrong answer, with words that the check's message must hold:

    # %% solution
    # %% wrong: happened 2 times

The parts are what a learner would type into the cell, so no file here is imported.
"""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

__all__ = ["Answers", "Wrong", "read_answers"]

MARK, SOLUTION, WRONG = "# %%", "solution", "wrong: "


class Wrong(NamedTuple):
    """`says` stands in the message of the check that rejects `source`."""

    says: str
    source: str


class Answers(NamedTuple):
    """What stands in one file."""

    solution: str
    wrong: tuple[Wrong, ...]


def read_answers(exercise_id: str) -> Answers:
    """The answers to "05.ex1". Raises OSError without a file, ValueError for a bad one."""
    path = files(__name__) / f"{exercise_id.replace('.', '_')}.py"
    before, *parts = path.read_text(encoding="utf-8").split(MARK)
    cut = [(head.strip(), body.strip()) for head, _, body in (p.partition("\n") for p in parts)]
    if before.strip() or [head for head, _ in cut if not head.startswith(WRONG)] != [SOLUTION]:
        raise ValueError(f"{path} must begin with {MARK} {SOLUTION}, then only {MARK} {WRONG}...")
    wrong = (Wrong(head.removeprefix(WRONG), body) for head, body in cut[1:])
    return Answers(cut[0][1], tuple(wrong))

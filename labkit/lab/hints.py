"""Three hints for each exercise, from `content.toml`; the last explains the solution and shows it.

A notebook holds them folded, and `make notebooks` writes them there, so they cannot differ.
"""

from __future__ import annotations

import textwrap

from labkit.lab.content import Exercise
from labkit.lab.solutions import read_answers

__all__ = ["folded", "hint"]

COLUMNS = 80


def hint(exercise: Exercise, number: int) -> str:
    """Hint 1, 2 or 3 as plain text; past the last, the last again."""
    number = min(number, len(exercise.hints))
    text = textwrap.fill(" ".join(exercise.hints[number - 1].split()), COLUMNS)
    code = f"\n\n{read_answers(exercise.id).solution}" if number == len(exercise.hints) else ""
    return f"{exercise.id}, hint {number} of {len(exercise.hints)}\n{text}{code}"


def folded(exercise: Exercise) -> str:
    """The hints as Markdown: JupyterLab opens each with a click, or with Tab and Enter."""
    last = len(exercise.hints)
    parts = []
    for number, text in enumerate(exercise.hints, start=1):
        summary = f"Hint {number} of {last}" + (": a solution" if number == last else "")
        code = f"\n\n```python\n{read_answers(exercise.id).solution}\n```" if number == last else ""
        parts.append(f"<details><summary>{summary}</summary>\n\n{text.strip()}{code}\n\n</details>")
    return "\n\n".join(parts)

"""The learner's answers, in one small file outside the notebooks.

A notebook may be copied again or moved aside; the answers stay.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from labkit.errors import BadInput
from labkit.lab.places import home

__all__ = ["predictions", "record_prediction"]


def predictions() -> dict[str, str]:
    """The recorded letter for each question id. Raises BadInput for a file that is not ours."""
    path = _path()
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))["predictions"]
        return {str(key): str(letter) for key, letter in stored.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise BadInput(f"{path} is not a progress file; move it aside and go on") from None


def record_prediction(question_id: str, letter: str) -> None:
    """Keeps the answer; a later one replaces it."""
    answers = {**predictions(), question_id: letter}
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two notebooks may be open at once: a reader sees the old file or the new one, never half.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    text = json.dumps({"predictions": answers}, indent=2, sort_keys=True)
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)


def _path() -> Path:
    return home() / "progress.json"

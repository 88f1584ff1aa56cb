"""The learner's answers, in one small file outside the notebooks.

A notebook may be copied again or moved aside; the answers stay.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from labkit.errors import BadInput, storage_faults
from labkit.lab.places import home

__all__ = ["predictions", "record_prediction"]


def predictions() -> dict[str, str]:
    """The recorded letter for each question id.

    Raises BadInput for a file that is not ours, StorageFault for one that cannot be read.
    """
    path = _path()
    try:
        with storage_faults(f"cannot read {path}"), suppress(FileNotFoundError):
            stored = json.loads(path.read_text(encoding="utf-8"))["predictions"]
            return {str(key): str(letter) for key, letter in stored.items()}
        return {}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BadInput(f"{path} is not a progress file; move it aside and go on") from None


def record_prediction(question_id: str, letter: str) -> None:
    """Keeps the answer; a later one replaces it. Raises what `predictions` raises."""
    path = _path()
    with storage_faults(f"cannot keep your answer in {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(path):
            answers = {**predictions(), question_id: letter}
            temporary = path.with_name(f".{path.name}.tmp")
            text = json.dumps({"predictions": answers}, indent=2, sort_keys=True)
            temporary.write_text(text + "\n", encoding="utf-8")
            temporary.replace(path)  # a reader sees the old file or the new one, never half


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Two notebooks may be open at once, and neither may lose the other's answer."""
    with open(path.with_name(f"{path.name}.lock"), "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # the end of this process ends it too
        yield


def _path() -> Path:
    return home() / "progress.json"

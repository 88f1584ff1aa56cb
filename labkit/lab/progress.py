"""The learner's answers and verdicts, in one small file outside the notebooks.

A notebook may be copied again or moved aside; the answers stay. The file is JSON and holds no path
or machine, so it can be copied to another one. What a newer labkit wrote in it is kept.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from labkit.errors import BadInput, storage_faults
from labkit.journal.laws import HELD
from labkit.lab.places import home

__all__ = ["checks", "path", "predictions", "record_check", "record_prediction"]

ANSWER_MAX = 4000  # characters that are kept of an answer

Stored = dict[str, Any]


def path() -> Path:
    """Where the file is, or will be after the first answer."""
    return home() / "progress.json"


def predictions() -> dict[str, str]:
    """The recorded letter for each question id.

    Raises BadInput for a file that is not ours, StorageFault for one that cannot be read.
    """
    return {str(key): str(letter) for key, letter in _read().get("predictions", {}).items()}


def checks() -> dict[str, Stored]:
    """For each exercise that was checked: `verdict` (the last), `held` (ever), `tries`, `answer`.

    Raises what `predictions` raises.
    """
    return dict(_read().get("checks", {}))


def record_prediction(question_id: str, letter: str) -> None:
    """Keeps the answer; a later one replaces it. Raises what `predictions` raises."""

    def change(stored: Stored) -> None:
        stored.setdefault("predictions", {})[question_id] = letter

    _update(change)


def record_check(exercise_id: str, verdict: str, answer: str) -> None:
    """Keeps the verdict and the answer. What has held once stays held."""

    def change(stored: Stored) -> None:
        entry = stored.setdefault("checks", {}).setdefault(exercise_id, {})
        entry["held"] = bool(entry.get("held")) or verdict == HELD
        entry["tries"] = int(entry.get("tries", 0)) + 1
        entry["verdict"], entry["answer"] = verdict, answer[:ANSWER_MAX]

    _update(change)


def _read() -> Stored:
    file = path()
    try:
        with storage_faults(f"cannot read {file}"), suppress(FileNotFoundError):
            stored = json.loads(file.read_text(encoding="utf-8"))
            parts = [stored.get("predictions", {}), *stored.get("checks", {}).values()]
            if not all(isinstance(part, dict) for part in [*parts, stored.get("checks", {})]):
                raise TypeError
            return dict(stored)
        return {}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BadInput(f"{file} is not a progress file; move it aside and go on") from None


def _update(change: Callable[[Stored], None]) -> None:
    file = path()
    with storage_faults(f"cannot keep your answer in {file}"):
        file.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(file):
            stored = _read()
            change(stored)
            temporary = file.with_name(f".{file.name}.tmp")
            text = json.dumps(stored, indent=2, sort_keys=True)
            temporary.write_text(text + "\n", encoding="utf-8")
            temporary.replace(file)  # a reader sees the old file or the new one, never half


@contextmanager
def _one_at_a_time(file: Path) -> Iterator[None]:
    """Two notebooks may be open at once, and neither may lose the other's answer."""
    with open(file.with_name(f"{file.name}.lock"), "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # the end of this process ends it too
        yield

"""The learner's answers and verdicts, in one small file outside the notebooks.

A notebook may be copied again or moved aside; the answers stay. The file is JSON and holds no path
or machine, so it can be copied to another one, or merged with the file there. What a newer labkit
wrote in it is kept, and a value of a wrong type counts as none.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from labkit.errors import BadInput, NotFound, storage_faults
from labkit.journal import bounded
from labkit.journal.laws import HELD
from labkit.lab.keeping import one_at_a_time, write_whole
from labkit.lab.places import home

__all__ = ["Gain", "checks", "merge", "path", "predictions", "record_check", "record_prediction"]

ANSWER_MAX = 4000  # characters that are kept of an answer
BYTES_MAX = 8_000_000  # a hundred times what the whole lab writes
TRIES_MAX = 10**9
ELSEWHERE = "tries_elsewhere"  # of an exercise: what other files have counted, by their id

Stored = dict[str, Any]


class Gain(NamedTuple):
    """What a merge added: ids of predictions, ids of exercises that count as held from now on.

    `kept` are the predictions that differ, where the answer of this machine stays.
    """

    predictions: list[str]
    held: list[str]
    kept: list[str]


def path() -> Path:
    """Where the file is, or will be after the first answer."""
    return home() / "progress.json"


def predictions() -> dict[str, str]:
    """The recorded letter for each question id.

    Raises BadInput for a file that is not ours, StorageFault for one that cannot be read.
    """
    return _letters(_read(path()))


def checks() -> dict[str, Stored]:
    """For each exercise that was checked: `verdict` and `answer`, both the last, `held` (ever),
    `held_answer` (the last that held) and `tries`.

    Raises what `predictions` raises.
    """
    return {key: _sound(entry) for key, entry in _read(path()).get("checks", {}).items()}


def record_prediction(question_id: str, letter: str) -> None:
    """Keeps the answer; a later one replaces it. Raises what `predictions` raises."""

    def change(stored: Stored) -> None:
        stored.setdefault("predictions", {})[question_id] = letter

    _update(change)


def record_check(exercise_id: str, verdict: str, answer: str) -> None:
    """Keeps the verdict and the answer. What has held once stays held.

    The same answer with the same verdict, as "Run All" gives it again, is no new try.
    """
    answer = answer[:ANSWER_MAX]

    def change(stored: Stored) -> None:
        _own_id(stored)
        entry = stored.setdefault("checks", {}).setdefault(exercise_id, {})
        again = (entry.get("verdict"), entry.get("answer")) == (verdict, answer)
        entry["tries"] = max(_tries(entry) + (not again), 1)
        entry["held"] = _held(entry) or verdict == HELD
        entry["verdict"], entry["answer"] = verdict, answer
        if verdict == HELD:
            entry["held_answer"] = answer

    _update(change)


def merge(file: Path) -> Gain:
    """Takes the progress of another machine in; a second time it adds nothing.

    What held on either stays held, tries add up, and a prediction of this machine stays. Raises
    NotFound for a missing file, and for each of the two files what `predictions` raises.
    """
    theirs = _read(file, missing=NotFound(f"there is no file {file}"))
    gain = Gain([], [], [])

    def change(mine: Stored) -> None:
        own, other = _letters(mine), _letters(theirs)
        gain.predictions.extend(sorted(other.keys() - own.keys()))
        gain.kept.extend(sorted(key for key in own.keys() & other.keys() if own[key] != other[key]))
        before = _all_held(mine)
        _merge(mine, theirs)
        gain.held.extend(sorted(_all_held(mine) - before))

    _update(change)
    return gain


def _merge(mine: Stored, theirs: Stored) -> None:
    given = {key: letter for key, letter in mine.get("predictions", {}).items() if _is_text(letter)}
    mine["predictions"] = {**mine.get("predictions", {}), **theirs.get("predictions", {}), **given}
    own_id = _own_id(mine)
    checked = mine.setdefault("checks", {})
    for exercise_id, entry in theirs.get("checks", {}).items():
        counts = _counts(entry.get(ELSEWHERE))
        # A file without an id, or with ours, is an older state of this one: nothing to add.
        name = theirs["id"] if _is_text(theirs.get("id")) else own_id
        counts[name] = max(_tries(entry), counts.get(name, 0))
        _merge_entry(checked.setdefault(exercise_id, {}), entry, counts, own_id)
    for name, value in theirs.items():
        mine.setdefault(name, value)


def _merge_entry(mine: Stored, theirs: Stored, counts: dict[str, int], own_id: str) -> None:
    """A count by file, and of two counts of one file the larger: so a merge can be repeated."""
    tries = max(_tries(mine), counts.pop(own_id, 0))
    elsewhere = _counts(mine.get(ELSEWHERE))
    for name, number in counts.items():
        elsewhere[name] = max(number, elsewhere.get(name, 0))
    held = _held(mine) or _held(theirs)
    for name, value in theirs.items():
        mine.setdefault(name, value)
    mine.update({"held": held, "tries": tries, **({ELSEWHERE: elsewhere} if elsewhere else {})})


def _own_id(stored: Stored) -> str:
    """Tells this file's tries from those of another one. By chance, so that it names no machine."""
    if not _is_text(stored.get("id")):
        stored["id"] = secrets.token_hex(4)
    return str(stored["id"])


def _sound(entry: Stored) -> Stored:
    """An entry with each value of its type, whoever wrote the file."""
    texts = ("verdict", "answer", "held_answer")
    return {
        "held": _held(entry),
        "tries": _tries(entry) + sum(_counts(entry.get(ELSEWHERE)).values()),
        **{name: entry[name] if _is_text(entry.get(name)) else "" for name in texts},
    }


def _letters(stored: Stored) -> dict[str, str]:
    return {key: value for key, value in stored.get("predictions", {}).items() if _is_text(value)}


def _all_held(stored: Stored) -> set[str]:
    return {key for key, entry in stored.get("checks", {}).items() if _held(entry)}


def _held(entry: Stored) -> bool:
    return entry.get("held") is True


def _tries(entry: Stored) -> int:
    return entry["tries"] if _is_count(entry.get("tries")) else 0


def _counts(value: object) -> dict[str, int]:
    entries = value.items() if isinstance(value, dict) else ()
    return {name: number for name, number in entries if _is_count(number) and number}


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= TRIES_MAX


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _read(file: Path, missing: Exception | None = None) -> Stored:
    with storage_faults(f"cannot read {file}"):
        try:
            content = bounded.read(file)
        except FileNotFoundError:
            if missing:
                raise missing from None
            return {}
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EFBIG):  # it is none of ours
                why = f"is not a progress file: {error.strerror}"
                raise BadInput(f"{file} {why}; move it aside and go on") from None
            raise
    try:
        return _parse(content)
    except (ValueError, TypeError, RecursionError):
        raise BadInput(f"{file} is not a progress file; move it aside and go on") from None


def _parse(content: bytes) -> Stored:
    """Raises ValueError, TypeError or RecursionError for what no labkit writes."""
    if len(content) > BYTES_MAX:
        raise ValueError
    stored = json.loads(content.decode("utf-8-sig"))  # an editor may have put a mark in front
    if not (isinstance(stored, dict) and stored.keys() & {"predictions", "checks"}):
        raise TypeError
    checked = stored.get("checks", {})
    parts = [stored.get("predictions", {}), checked]
    if not all(isinstance(part, dict) for part in parts):
        raise TypeError
    if not all(isinstance(entry, dict) for entry in checked.values()):
        raise TypeError
    return stored


def _update(change: Callable[[Stored], None]) -> None:
    shown = path()
    file = Path(os.path.realpath(shown))  # a link into a folder that is synchronised stays one
    with storage_faults(f"cannot keep your answer in {shown}"):
        shown.parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(shown.with_name(f"{shown.name}.lock")):
            stored = _read(shown)
            change(stored)
            text = json.dumps(stored, indent=2, sort_keys=True) + "\n"
            if len(text) > BYTES_MAX:  # it could not be read again
                raise BadInput(f"{shown} would become too large; nothing was changed")
            write_whole(file, text)

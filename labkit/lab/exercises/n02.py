"""The same crash with a journal: a step of the learner's own, killed and recovered."""

from __future__ import annotations

import json
from typing import Any

from labkit.lab.checks import Desk, Judgement, broken, held
from labkit.lab.handing import source_of
from labkit.lab.sweeps import FETCH, is_sound, step_rows, try_tool

__all__ = ["ex1"]


def ex1(count_words: Any, desk: Desk) -> Judgement:
    """`count_words` is step 1; it is killed after its call, and run again."""
    rule = "A step whose output was not committed is run again, and stores one output (promise 2)."
    source_of(count_words)
    steps = [FETCH, {"tool": count_words.__name__, "input": {}}]
    trial = try_tool(desk, count_words, steps, "after_effect:1")
    if not is_sound(trial):
        return broken(f"The second run: {trial.second!r}. {trial.second.output.strip()}", rule)
    found = json.loads(trial.journal.steps().output[1])
    notes = (trial.folder.path / "input" / "notes.txt").read_text(encoding="utf-8")
    words = len(notes.split())
    if found != {"words": words}:
        return broken(f"Stored is {found}; these notes have {words} words.", rule)
    reason = "It was killed after its call, called again, and its output is stored once."
    return held(reason, rule, step_rows(trial, 1))

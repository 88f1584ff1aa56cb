"""What the laws of both systems share: a verdict, what shows it, and the judgement of a witness."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sized
from typing import NamedTuple

from labkit.errors import BadInput
from labkit.journal.bounded import read
from labkit.journal.reading import Event, plain

__all__ = [
    "BROKEN",
    "HELD",
    "NOT_JUDGED",
    "PROMISES",
    "Finding",
    "Verdict",
    "Witness",
    "count",
    "judge_effects",
    "name_step",
    "not_judged",
    "verdict",
]

HELD, BROKEN, NOT_JUDGED = "held", "broken", "not judged"

PROMISES = {
    1: "State is preserved",
    2: "The task resumes",
    3: "Recovery is explicit",
    4: "Effects happen once in outcome",
    5: "The journal balances",
    6: "The tables equal the fold of the journal",
    # Of a durable run alone:
    7: "Only the holder of the lease writes",
    8: "A run waits for one cause",
    9: "The end is the end",
    10: "What cannot be proved is not repeated",
}

Witness = str | os.PathLike[str] | Iterable[str]

LARGEST_WITNESS = 32 << 20  # bytes: a million effects, each with a line of 32


class Finding(NamedTuple):
    """What breaks a law: a sentence, and the `seq` of the events that show it, if events do."""

    text: str
    seqs: tuple[int, ...] = ()


class Verdict(NamedTuple):
    """`law` is 1 to 6, of a durable run 1 to 10. `reason` says in one sentence why; `findings` is
    empty unless broken.
    """

    law: int
    promise: str
    verdict: str
    reason: str
    findings: tuple[Finding, ...] = ()


def verdict(law: int, findings: Iterable[Finding], held: str) -> Verdict:
    """Broken where there is a finding, else held, for the reason `held`."""
    found = tuple(findings)
    reason = plain(found[0].text, 300) if found else held
    if len(found) > 1:
        reason += f" (and {len(found) - 1} more)"
    return Verdict(law, PROMISES[law], BROKEN if found else HELD, reason, found)


def not_judged(law: int, reason: str) -> Verdict:
    return Verdict(law, PROMISES[law], NOT_JUDGED, plain(reason, 300))


def judge_effects(witness: Witness | None, tasks: Iterable[str] = ()) -> Verdict:
    """Law 4, in both systems: each key that a witness outside saw, it saw once.

    A key begins with its task or run. A file in which none does is no witness of this journal.
    """
    if witness is None:
        return not_judged(4, "no witness was given: a journal cannot prove an effect outside it")
    if isinstance(witness, (str, os.PathLike)):
        if not os.path.exists(witness):
            name = os.path.basename(os.fspath(witness))
            return not_judged(4, f"the witness {name} does not exist: it saw no effect")
        keys = _read_witness(witness)
    else:
        keys = list(witness)
    if not keys:
        return not_judged(4, "the witness saw no effect")
    repeated = [(key, times) for key, times in Counter(keys).items() if times > 1]
    if not repeated and isinstance(witness, (str, os.PathLike)):
        ours = tuple(tasks)
        if ours and not any(key.startswith(ours) for key in keys):
            name, such = os.path.basename(os.fspath(witness)), plain(ours[0], 30)
            why = f"no line of {name} begins with {such}, as the keys of this journal do"
            return not_judged(4, why)
    findings = (Finding(f"effect {key} happened {times} times") for key, times in repeated)
    return verdict(4, findings, f"{count(keys, 'effect')}, each key once")


def _read_witness(path: str | os.PathLike[str]) -> list[str]:
    try:
        lines = read(path, LARGEST_WITNESS).decode("utf-8", "replace").split("\n")
        return [words[0] for line in lines if (words := line.split())]
    except OSError as error:
        where = plain(os.fspath(path), 200)
        raise BadInput(
            f"the witness {where} cannot be read ({error.strerror}); "
            "give a text file with a line for each effect, its key first"
        ) from None


def name_step(event: Event) -> str:
    if event.is_durable:
        return f"step {event.step} of run {event.task_id}"
    return f"step {event.step_idx} of task {event.task_id}"


def count(things: Sized, name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"

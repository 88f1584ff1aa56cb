"""The task of every Python program here: read notes, shorten them, send the result, once.

Nothing of it knows the engine that runs it. What it does is counted outside the trial's folder, so
no engine's own records are taken for evidence:

    $WITNESS          a line for each effect: its key, and how many characters were sent
    $WITNESS.steps    a line for each step that begins, and for the result that an engine returns
"""

import os
import time

KEY = "t-2"
# Without a key the other side takes whatever comes; with one it takes a key that it has not yet.
HAS_KEY = os.environ.get("EFFECT") == "key"
PACE_S = float(os.environ.get("PACE", "0"))  # slow enough to be killed in between by a clock


def fetch() -> str:
    _begin(0)
    with open("notes.txt", encoding="utf-8") as file:
        return file.read()


def summarize(text: str) -> str:
    _begin(1)
    return "\n".join([line for line in text.splitlines() if line][:3])


def send(summary: str) -> str:
    """The effect. It leaves by one call, as a request leaves by one packet."""
    _begin(2)
    witness = os.environ["WITNESS"]
    if not (HAS_KEY and is_taken(witness)):
        _append(witness, f"{KEY} {len(summary)}")
    return summary


def finished(result: str) -> None:
    """What the engine says is the result. From now on the outside relies on all three steps."""
    _begin(3, len(result))


def _begin(*what: int) -> None:
    _append(os.environ["WITNESS"] + ".steps", " ".join(map(str, what)))


def is_taken(witness: str) -> bool:
    if not os.path.exists(witness):
        return False
    with open(witness, encoding="utf-8") as file:
        return any(line.split()[0] == KEY for line in file)


def _append(path: str, line: str) -> None:
    with open(path, "ab", buffering=0) as file:
        file.write(line.encode() + b"\n")
    time.sleep(PACE_S)

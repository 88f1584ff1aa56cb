"""An agent as one writes it first: it notes how far it is, and works.

Three habits are wrong on purpose. It notes a step before it does it, so that a kill in between
loses the step. It writes that note in place, so that a kill leaves an empty note and all begins
again. It goes on from what it has in memory, and after a restart there is nothing.
"""

import os

from task import fetch, finished, send, summarize


def next_step() -> int:
    if not os.path.exists("progress"):
        return 0
    with open("progress", encoding="utf-8") as file:
        words = file.read().split()
    return int(words[1]) + 1 if words else 0


def write(name: str, text: str) -> None:
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)


def main() -> None:
    memory = ""
    for step in range(next_step(), 3):
        write("progress", f"step {step} has begun")
        memory = fetch() if step == 0 else summarize(memory) if step == 1 else send(memory)
        write(f"output-{step}", memory)  # for a human; the program never reads it
        write("progress", f"step {step} is done")
    finished(memory)


main()

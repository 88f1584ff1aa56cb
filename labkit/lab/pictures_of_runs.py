"""Pictures of a message: how often it went out after each kill, and after each answer."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.patches import Patch, Rectangle

from labkit.errors import UsageError
from labkit.lab.pictures import AGAIN, FONT, NEEDED, Picture
from labkit.lab.runs import Answer, Kill, tabulate

__all__ = ["draw_answers", "draw_sends"]

SAYS = {"told": "Kim was told", "not told": "not done"}  # what the model makes of an outcome


def draw_sends(kills: Sequence[Kill]) -> Picture:
    """A row for each place: a box for each message that went out, and a word where the run waits.

    Raises UsageError without a kill.
    """
    if not kills:
        raise UsageError("give the kills of a sweep, at least one")
    most = max(kill.messages for kill in kills)
    picture = Picture(_count_sends(kills), tabulate(kills), 8.4, 0.9 + 0.26 * len(kills))
    axes = picture.add_subplot()
    for y, kill in enumerate(kills):
        for x in range(kill.messages):
            colour, hatch = (NEEDED, "") if x == 0 else (AGAIN, "xx")
            axes.barh(y, 1, 0.7, x, color=colour, hatch=hatch, edgecolor="white")
        if kill.ends != "SUCCEEDED":
            axes.text(
                kill.messages + 0.05, y, f"the run is {kill.ends}", va="center", fontsize=FONT
            )
    axes.set_yticks(range(len(kills)), [kill.place for kill in kills], fontsize=FONT)
    axes.set_ylim(len(kills) - 0.4, -0.6)  # the first place on top
    axes.set_xlim(0, 2.4)
    axes.set_xticks(range(most + 1))
    axes.set_xlabel("messages that Kim has", fontsize=FONT)
    axes.set_ylabel("killed before", fontsize=FONT)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    shown = [Patch(color=NEEDED, label="the message")]
    if most > 1:
        shown.append(Patch(facecolor=AGAIN, hatch="xx", edgecolor="white", label="sent again"))
    axes.legend(handles=shown, loc="lower right", frameon=False, fontsize=FONT)
    return picture


def _count_sends(kills: Sequence[Kill]) -> str:
    again = [kill.place for kill in kills if kill.messages > 1]
    waits = [kill.place for kill in kills if kill.ends == "WAITING"]
    sentence = f"{len(kills)} kills; sent again after {len(again)} of them"
    if again:
        sentence += f": before {', before '.join(again)}"
    sentence += f"; the run waits after {len(waits)}"
    return f"{sentence}{': before ' if waits else ''}{', before '.join(waits)}."


def draw_answers(answers: Sequence[Answer]) -> Picture:
    """A square for each answer to a run that waits: how many messages there are then, and what the
    run says of them. It is hatched where that is not so, or where there are two."""
    names = list(dict.fromkeys(each.answer for each in answers))
    lies = [each for each in answers if not _is_true(each)]
    said = ", ".join(f"{each.answer} with the message {_evidence(each)}" for each in lies)
    table = pd.DataFrame(answers)
    sentence = f"{len(answers)} answers to a run that waits; {len(lies)} go wrong: {said}."
    picture = Picture(sentence, table, 8.4, 1.0 + 0.62 * len(names))
    axes = picture.add_subplot()
    for each in answers:
        x, y = int(each.before > 0), names.index(each.answer)
        colour, hatch = (NEEDED, "") if _is_true(each) else (AGAIN, "xx")
        square = Rectangle((x - 0.47, y - 0.42), 0.94, 0.84, facecolor=colour, hatch=hatch)
        square.set_edgecolor("white")
        axes.add_patch(square)
        number = f"{each.messages} message{'' if each.messages == 1 else 's'}"
        box = {"facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.3"}
        words = f"{number}; the run says: {_says(each)}"
        axes.text(x, y, words, ha="center", va="center", fontsize=FONT, bbox=box)
    axes.set_xlim(-0.5, 1.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xticks([0, 1], ["the message was not sent", "the message was sent"], fontsize=FONT)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(names)), names, fontsize=FONT)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return picture


def _evidence(each: Answer) -> str:
    return "sent" if each.before else "not sent"


def _says(each: Answer) -> str:
    return next((word for word, text in SAYS.items() if text in each.ends), "nothing of it")


def _is_true(each: Answer) -> bool:
    """What the run says is so, and nobody was told twice."""
    wanted = {"told": 1, "not told": 0}.get(_says(each), each.before)
    return each.messages == wanted

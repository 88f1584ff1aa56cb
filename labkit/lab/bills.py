"""What a kill costs: model calls that two runs together pay, with a journal and without."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

from labkit.errors import UsageError
from labkit.lab.folder import Folder
from labkit.lab.models import Model, running_model
from labkit.lab.pictures import AGAIN, FONT, NEEDED, Picture
from labkit.lab.process import NotReady, Result
from labkit.lab.trials import TASK
from labkit.lab.verbs import current_notebook

__all__ = ["Bill", "bill", "draw_bills", "model_steps", "pay", "tabulate_bills"]

MOMENTS = ("before_effect", "call_open", "after_effect", "after_commit")
WITH_MODEL = {"AGENT_LLM": "ollama"}
WITHOUT, WITH = "without a journal", "with the journal"


class Bill(NamedTuple):
    """What one kill at `place` cost, over the killed run and the one after it."""

    place: str
    journal: bool
    needed: int
    paid: int

    def __repr__(self) -> str:
        kept = WITH if self.journal else WITHOUT
        return f"{self.place}, {kept}: {self.paid} calls paid, {self.needed} needed"


def bill(place: str, *, journal: bool = True) -> Bill:
    """Kills an agent at "moment:idx" in a folder of its own, runs it again, counts at the model.

    The moments are the crash points, and `call_open`: killed from outside while the model has the
    call and has not answered. Without `journal` it is the agent of notebook 01. Raises UsageError
    for another place, NotReady before `lab.model()` and where the kill missed.
    """
    moment, idx = _read(place)
    model = running_model()
    name = f"bill-{moment}-{idx}{'' if journal else '-naive'}".replace("_", "-")
    folder = current_notebook().open_folder(name)
    return Bill(place, journal, len(model_steps(folder)), pay(folder, model, place, journal))


def pay(folder: Folder, model: Model, place: str, journal: bool = True) -> int:
    """The calls that two runs of the plan in `folder` make, the first killed at `place`.

    Raises NotReady where the first was not killed or the second did not come to its end.
    """
    before = model.calls()
    if journal:
        folder.start(f"agent create {TASK} plan.json", {}).finish()
    command = f"agent run {TASK}" if journal else "naive plan.json"
    first = _killed(folder, model, command, place, journal)
    second = folder.start(command, WITH_MODEL).finish()
    if not first.killed or second.code:
        raise NotReady(f"{place}: the first run: {first!r}, the second: {second!r}, so no bill")
    return model.calls() - before


def model_steps(folder: Folder) -> list[int]:
    """The index of each step of the plan that asks the model."""
    steps = json.loads((folder.path / "plan.json").read_text(encoding="utf-8"))["steps"]
    return [idx for idx, step in enumerate(steps) if step["tool"] == "summarize"]


def tabulate_bills(bills: Iterable[Bill]) -> pd.DataFrame:
    """One row for each place: calls needed, paid without a journal, paid with it."""
    rows: dict[str, dict[str, int]] = {}
    for each in bills:
        row = rows.setdefault(each.place, {"needed": each.needed})
        row[WITH if each.journal else WITHOUT] = each.paid
    table = pd.DataFrame(rows.values(), pd.Index(rows, name="killed at")).astype("Int64")
    return table.reindex(columns=["needed", WITHOUT, WITH])


def draw_bills(bills: Iterable[Bill]) -> Picture:
    """The same table as a picture: two bars for each place, and a line at what was needed."""
    every = list(bills)
    if not every:
        raise UsageError("lab.draw_bills: give at least one bill")
    table = tabulate_bills(every)
    needed = int(table.needed.max())
    sentence = f"Model calls paid where {needed} are needed: " + "; ".join(
        f"killed at {place} " + ", ".join(f"{row[kept]} {kept}" for kept in row.dropna().index[1:])
        for place, row in table.iterrows()
    )
    picture = Picture(f"{sentence}.", table, 7.6, 3.2)
    axes = picture.add_subplot()
    looks = {WITHOUT: (-0.2, AGAIN, "xx"), WITH: (0.2, NEEDED, "")}
    for kept, (shift, colour, hatch) in looks.items():
        at = [row + shift for row in range(len(table))]
        bars = axes.bar(
            at, table[kept].fillna(0).astype(int), 0.38,
            color=colour, hatch=hatch, edgecolor="white", label=kept,
        )  # fmt: skip
        axes.bar_label(bars, fontsize=FONT)  # the number, so that no one has to measure
    axes.axhline(needed, color="#333333", linestyle="--", linewidth=1, label=f"needed: {needed}")
    axes.set_xticks(range(len(table)), list(table.index), fontsize=FONT)
    axes.set_ylabel("model calls paid", fontsize=FONT)
    axes.set_ylim(0, max(int(table[[WITHOUT, WITH]].max().max()), needed) + 1)
    axes.spines[["top", "right"]].set_visible(False)
    picture.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=FONT)
    return picture


def _read(place: str) -> tuple[str, int]:
    moment, _, idx = str(place).partition(":")
    if moment not in MOMENTS or not re.fullmatch("[0-9]{1,4}", idx):
        raise UsageError(f"{place!r} is no place to be killed; use {' or '.join(MOMENTS)}, :IDX")
    return moment, int(idx)


def _killed(folder: Folder, model: Model, command: str, place: str, journal: bool) -> Result:
    moment, idx = _read(place)
    if moment == "call_open":
        return _killed_in_call(folder, model, command, idx)
    if moment == "after_commit" and not journal:
        place = f"before_effect:{idx + 1}"  # nothing is committed there: the next moment it has
    return folder.start(command, {**WITH_MODEL, "AGENT_CRASH_AT": place}).finish()


def _killed_in_call(folder: Folder, model: Model, command: str, idx: int) -> Result:
    if idx not in model_steps(folder):
        raise UsageError(f"call_open:{idx}: step {idx} does not ask the model")
    model.hold(model_steps(folder).index(idx) + 1)
    try:
        process = folder.start(command, WITH_MODEL)
        model.wait_for_call(process)
        return process.kill()
    finally:
        model.release()

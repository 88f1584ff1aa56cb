"""The run sheets add up, and what they name exists."""

from __future__ import annotations

import json
import re

import pytest

from labkit.cli import COMMANDS
from labkit.lab import content
from labkit.lab.places import originals

TEXT = (originals() / "INSTRUCTOR.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\d+) \| (\d+) \| (.+?) \|", flags=re.M)
HALF_DAYS = {"Half a day": 240, "Another half day": 120, "The durable run": 100}
SHEETS = {"90 minutes": 90, **HALF_DAYS, "Five minutes": 5}
SHORT_PATH = ["00", "01", "02", "05", "06", "11"]


def sheet(name: str) -> list[tuple[int, int, str]]:
    (section,) = (part for part in TEXT.split("\n## ") if part.startswith(name))
    return [(int(begin), int(end), what) for begin, end, what in ROW.findall(section)]


def numbers(name: str) -> list[str]:
    return [what[:2] for _, _, what in sheet(name) if what[:2].isdecimal()]


@pytest.mark.parametrize("name", SHEETS)
def test_each_row_begins_where_the_last_one_ended(name: str) -> None:
    rows = sheet(name)
    assert [begin for begin, _, _ in rows] == [0, *(end for _, end, _ in rows[:-1])]
    assert rows[-1][1] == SHEETS[name]


def test_the_short_path_is_in_order_and_the_half_days_have_every_notebook() -> None:
    assert numbers("90 minutes") == SHORT_PATH
    every = {notebook.number for notebook in content.lessons()}
    all_days = [number for name in HALF_DAYS for number in numbers(name)]
    assert len(all_days) == len(every)
    assert set(all_days) == every


@pytest.mark.parametrize("name", HALF_DAYS)
def test_half_a_day_gives_each_notebook_its_minutes_or_more(name: str) -> None:
    for begin, end, what in sheet(name):
        if what[:2].isdecimal():
            assert end - begin >= content.notebook(what[:2]).minutes, what


def test_the_live_kill_presses_what_notebook_20_says() -> None:
    notebook = json.loads((originals() / content.notebook("20").file).read_text(encoding="utf-8"))
    (cell,) = (cell for cell in notebook["cells"] if cell["id"] == "20-sheet-text")
    assert ROW.findall("".join(cell["source"])) == [
        (str(begin), str(end), what) for begin, end, what in sheet("Five minutes")
    ]


def test_each_option_that_hands_will_choose_is_one() -> None:
    rows = re.findall(r"^\| (\d\d) \| \"(.+?)\" \| (.+?):", TEXT, flags=re.M)
    for number, _, hands in rows:
        options = {text for q in content.questions(number) for text in q.options.values()}
        for said in re.findall(r"\*(.+?)\*", hands):
            assert said in options, (number, said)
    assert len(rows) == 11


def test_the_commands_exist() -> None:
    assert set(re.findall(r"\blabkit (\w+)", TEXT)) <= COMMANDS.keys()


def test_the_exercises_exist() -> None:
    for exercise_id in re.findall(r"lab\.hint\(\"(.+?)\"\)", TEXT):
        content.exercise(exercise_id)

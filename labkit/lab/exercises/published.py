"""A learner's publisher is called, killed in each of its calls, and given to agents; what it did.

`look_at` calls and kills it, `run_agents` has it called by agents. Every fault has a sentence of
its own, which says what was seen and which accident that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from labkit.errors import LabkitError, ensure
from labkit.journal.bounded import read_text
from labkit.lab.checks import Desk
from labkit.lab.folder import new_directory
from labkit.lab.handing import hand_over, source_of
from labkit.lab.process import NotReady
from labkit.lab.publishing import Ask, Function, Made, make, name_of, visible
from labkit.lab.sweeps import FETCH, Unending, give_plan, is_sound, side_by_side, step_rows
from labkit.lab.trials import POINTS, Trial, crash_and_resume

__all__ = [
    "Evidence",
    "Fault",
    "artifacts_of",
    "fault_in_agents",
    "fault_in_calls",
    "is_doubled",
    "look_at",
    "rows_of",
    "rows_of_agent",
    "run_agents",
]

NAME = "week-7.md"
CONTENT = "A report that the notebook never showed.\n" * 3 + "Its last line ends with é.\n"
OTHER = "The report of another task.\n"
KILLS_MAX = 24  # a function that writes letter by letter makes thousands of calls
LIMIT_S = 8.0

# Step 1 of the agents, after `fetch`; it stands below the learner's function.
TOOL = """


def report_for_the_check(input, ctx, idem_key):
    import os

    os.makedirs("artifacts", exist_ok=True)
    {name}("artifacts", idem_key + ".md", ctx[0]["text"].encode())
    return {{"name": idem_key + ".md"}}
"""
STEPS = [FETCH, {"tool": "report_for_the_check", "input": {}}]


class Kill(NamedTuple):
    """A process killed in one call, and those that came after it; `where` says it in words."""

    where: str
    made: tuple[Made, ...]


class Evidence(NamedTuple):
    """What was seen of one publisher.

    Four calls: into an empty folder; the same again; where another task's file has the name; where
    one takes the name at the last moment. Then kills in each call: `once` and a second call,
    `twice` and a second kill.
    """

    plain: Made
    again: Made
    taken: Made
    raced: Made
    once: tuple[Kill, ...] = ()
    twice: tuple[Kill, ...] = ()


class Fault(NamedTuple):
    """What is wrong, in a sentence or two, and the lines that show it."""

    seen: str
    rows: tuple[str, ...] = ()


def look_at(publish: Callable[..., Any], desk: Desk) -> Evidence:
    """Calls it and kills it in each of its calls. Raises NotSelfContained."""
    root = desk.fresh("calls")
    hand_over(publish, root)  # raises for a function that cannot work there
    function = Function(publish.__name__, source=source_of(publish))
    plain, again, taken, raced = _four_calls(function, root.path)
    if not plain.returned:
        return Evidence(plain, again, taken, raced)
    once, twice = _kills(function, root.path, _places(plain))
    return Evidence(plain, again, taken, raced, once, twice)


def run_agents(
    function: Callable[..., Any], desk: Desk, points: Sequence[str] = POINTS, tool: str = TOOL
) -> list[Trial]:
    """An agent for each crash point, killed there and run again; its step 1 calls the function.

    `tool` is the source of that step. Raises Unending for an agent that does not end.
    """
    return side_by_side(partial(_trial, function, desk, f"{point}:1", tool) for point in points)


def fault_in_calls(seen: Evidence) -> Fault | None:
    """What to mend first, or None."""
    return next((fault for look in LOOKS for fault in look(seen)), None)


def fault_in_agents(trials: Sequence[Trial]) -> Fault | None:
    """As someone outside sees it, who counts reports; or None."""
    return next((fault for trial in trials for fault in _in_agent(trial)), None)


def is_doubled(seen: Evidence) -> bool:
    """True if a second call with the same content published it again."""
    held = visible(seen.again.files).values()
    return sum(text.count(CONTENT) for text in held) > 1


def rows_of(seen: Evidence, trial: Trial) -> tuple[str, ...]:
    """The calls of one attempt, and the step of an agent."""
    return (_calls(seen.plain), *rows_of_agent(trial))


# The evidence.


def _four_calls(function: Function, root: Path) -> list[Made]:
    folders = [new_directory(root, "published") for _ in range(3)]
    (folders[1] / NAME).write_text(OTHER, encoding="utf-8")
    first, taken, raced = (Ask(folder, NAME, CONTENT) for folder in folders)
    return make(function, [first, first, taken, raced._replace(plant=OTHER)])


class Place(NamedTuple):
    """The call to die in: its number from 0; in the middle of it, or just before it."""

    at: int
    half: bool
    where: str


def _places(plain: Made) -> list[Place]:
    """Before each call, and in the middle of each write; of many writes in a row the ends."""
    names = [name_of(event) for event in plain.events]
    places = []
    for at, name in enumerate(names):
        if name == "write" and names[at - 1 : at] == names[at + 1 : at + 2] == ["write"]:
            continue
        places.append(Place(at, False, f"just before its {name}"))
        if name == "write":
            places.append(Place(at, True, "in the middle of its write"))
    return places[:KILLS_MAX]


def _kills(
    function: Function, root: Path, places: list[Place]
) -> tuple[tuple[Kill, ...], tuple[Kill, ...]]:
    first_write = next((place for place in places if place.half), None)
    asks: list[Ask] = []
    for place in places:
        once, twice = (
            Ask(new_directory(root, "published"), NAME, CONTENT, die_at=place.at, half=place.half)
            for _ in range(2)
        )
        cut = Ask(twice.folder, NAME, CONTENT, first_write.at if first_write else None, True)
        asks += [once, Ask(once.folder, NAME, CONTENT), twice, cut]
    made = make(function, asks)
    found = [(place.where, made[4 * n : 4 * n + 4]) for n, place in enumerate(places)]
    return (
        tuple(Kill(where, tuple(four[:2])) for where, four in found),
        tuple(Kill(where, tuple(four[2:])) for where, four in found),
    )


def _trial(function: Callable[..., Any], desk: Desk, crash_at: str, tool: str) -> Trial:
    folder = desk.fresh(crash_at.replace(":", "-"))
    give_plan(folder, STEPS)
    options = hand_over(function, folder, tool.format(name=function.__name__))
    try:
        return crash_and_resume(folder, crash_at, options=options, timeout_s=LIMIT_S)
    except NotReady:
        ended = f"an agent with your function had not ended after {LIMIT_S:g} s"
        raise Unending(f"{ended} and was killed") from None


# What it shows, each in one look.


def _returns(seen: Evidence) -> Iterator[Fault]:
    if not seen.plain.returned:
        yield Fault(f"Called once, in an empty folder, it {_ended(seen.plain)}", _line(seen.plain))
    elif not seen.again.returned:
        yield Fault(
            f"Called again with the same content, it {_ended(seen.again)} The second attempt must "
            "find the file of the first, see that it holds the same, and leave it.",
            _line(seen.again),
        )


def _is_not_doubled(seen: Evidence) -> Iterator[Fault]:
    if is_doubled(seen):
        yield Fault("Called again with the same content, it published a second report.")


def _in_agent(trial: Trial) -> Iterator[Fault]:
    """The witness counts texts, whatever name they stand under."""
    ensure(trial.first.code, LabkitError(f"the agent was not killed at {trial.crash_at}"))
    found, text = artifacts_of(trial), _notes(trial)
    holding = {name: held.count(text) for name, held in found.items() if text in held}
    place, rows = f"An agent was killed at {trial.crash_at} and run again", rows_of_agent(trial)
    if len(holding) > 1:
        yield Fault(
            f"{place}: the same report stands under {len(holding)} names. The second attempt must "
            "come to the name of the first: use the name that it is given.", rows,
        )  # fmt: skip
    elif sum(holding.values()) > 1:
        ((name, number),) = holding.items()
        yield Fault(
            f"{place}: {name} holds the report {number} times. An append cannot see that the "
            "report is there already.", rows,
        )  # fmt: skip
    elif not is_sound(trial, laws=(1, 2, 3, 5, 6)) or not holding:
        said = trial.second.output.strip().rpartition("\n")[2]
        yield Fault(f"{place}; the second run: {trial.second!r}. {said}", rows)


def _has_its_name(seen: Evidence) -> Iterator[Fault]:
    found = visible(seen.plain.files)
    if NAME not in found:
        if not found:
            yield Fault(f"It returned, and a reader finds no {NAME}: nothing was published.")
            return
        yield Fault(
            f"Asked for {NAME}, a reader finds {', '.join(found)}. The name is made from the key, "
            "so that two attempts always share a file and two tasks never do."
        )
    elif found[NAME] != CONTENT:
        yield Fault(f"{NAME} does not hold the content that was given, byte for byte.")


def _is_whole(seen: Evidence) -> Iterator[Fault]:
    for kill in sorted(seen.once, key=lambda kill: kill.made[0].calls != ("half a write",)):
        for name, text in visible(kill.made[0].files).items():
            if text == CONTENT:
                continue
            what = "an empty file" if not text else "half a report"
            if name == NAME:
                yield Fault(
                    f"Killed {kill.where}, it left {what} under {NAME}, and a reader reads that. "
                    "Write under another name; give the file its own name when it is whole.",
                    (_calls(kill.made[0]),),
                )
            else:
                yield Fault(
                    f"Killed {kill.where}, it left {what} under a name that a reader sees and "
                    "takes for a report. Let a temporary name begin with a dot.",
                )


def _goes_on(seen: Evidence) -> Iterator[Fault]:
    for kill in seen.once:
        second = kill.made[1]
        if not second.returned:
            yield Fault(
                f"Killed {kill.where} and called again, it {_ended(second)} A second attempt meets "
                "what the first one left behind.", _line(second),
            )  # fmt: skip
        elif visible(second.files).get(NAME) != CONTENT:
            yield Fault(f"Killed {kill.where} and called again, it left no whole {NAME}.")


def _spares_others(seen: Evidence) -> Iterator[Fault]:
    found = seen.taken.files.get(NAME)
    if found != OTHER:
        yield Fault(
            f"Another task's file stood under {NAME}, and it is gone. An open for writing and a "
            "rename replace what they find; link refuses.", (_calls(seen.taken),),
        )  # fmt: skip
    elif seen.raced.files.get(NAME) != OTHER:
        yield Fault(
            f"Just before its rename another process published under {NAME}, and that file is "
            "gone. A look comes too early; link looks and gives the name in one call.",
            (_calls(seen.raced),),
        )
    elif seen.taken.returned or seen.raced.returned:
        yield Fault(
            f"Another task's file, of other content, stood under {NAME}, and your function "
            "returned as if its report were published. Nobody will ever miss it: raise.",
            (_calls(seen.taken),),
        )


def _syncs_the_file(seen: Evidence) -> Iterator[Fault]:
    named = _naming(seen.plain)
    if named is None:
        yield Fault("The check saw no call that gives the file its name. Use os.link.",
                    (_calls(seen.plain),))  # fmt: skip
        return
    giving = seen.plain.events[named]
    if not giving["inside"]:
        yield Fault("Its temporary file lies in another folder. A link and a rename work only "
                    "inside one file system: write it beside the final name.")  # fmt: skip
    synced = [
        (at, event["size"])
        for at, event in enumerate(seen.plain.events)
        if name_of(event) == "fsync file" and event["inode"] == giving["inode"]
    ]
    size, rows = len(CONTENT.encode()), (_calls(seen.plain),)
    if any(at < named and held == size for at, held in synced):
        return
    if any(at < named for at, _ in synced):
        yield Fault(f"At its fsync {synced[0][1]} of {size} bytes had left Python. Call flush() "
                    "before it: fsync knows nothing of Python's buffer.", rows)  # fmt: skip
    elif synced:
        yield Fault("It gives the name first and calls fsync on the file after. A power cut "
                    "between the two leaves an empty file under its name.", rows)  # fmt: skip
    else:
        yield Fault("It never calls fsync on the file. After a power cut the name may be there "
                    "and the content not.", rows)  # fmt: skip


def _syncs_the_folder(seen: Evidence) -> Iterator[Fault]:
    named, rows = _naming(seen.plain) or 0, (_calls(seen.plain),)
    folders = [(at, event["right"]) for at, event in enumerate(seen.plain.events)
               if name_of(event) == "fsync folder"]  # fmt: skip
    if any(at > named and right for at, right in folders):
        return
    if any(right for _, right in folders):
        yield Fault("It calls fsync on the folder before the name is in it.", rows)
    elif folders:
        yield Fault("It calls fsync on another folder than the one with the name in it.", rows)
    else:
        yield Fault("It never calls fsync on the folder. After a power cut the step can be done "
                    "and its file not there: the name was only in memory.", rows)  # fmt: skip


def _syncs_the_folder_again(seen: Evidence) -> Iterator[Fault]:
    for kill in seen.once:
        first, second = kill.made
        if _naming(first) is not None and "fsync folder" not in second.calls:
            yield Fault(
                f"Killed {kill.where}, it was called again, found its file and returned without "
                "fsync of the folder. The first attempt died before its own, so nobody made it.",
                (f"first attempt   {_calls(first)}", f"second attempt  {_calls(second)}"),
            )


def _shares_no_temporary(seen: Evidence) -> Iterator[Fault]:
    for kill in seen.twice:
        text = visible(kill.made[1].files).get(NAME, CONTENT)
        if text != CONTENT:
            yield Fault(
                f"Killed {kill.where}, the temporary file and {NAME} were one file with two "
                f"names. The next attempt wrote into it, was killed too, and {NAME} is half a "
                "report. Give each attempt a temporary name of its own."
            )


def _cleans_up(seen: Evidence) -> Iterator[Fault]:
    if set(seen.plain.files) - {NAME}:
        yield Fault("It returned and left its temporary file beside the report: unlink it.")


LOOKS = (
    _returns, _is_not_doubled, _has_its_name, _is_whole, _goes_on, _spares_others,
    _syncs_the_file, _syncs_the_folder, _syncs_the_folder_again, _shares_no_temporary, _cleans_up,
)  # fmt: skip


def _naming(made: Made) -> int | None:
    """The number of the call that gave the file its final name, or None."""
    given = (n for n, e in enumerate(made.events) if e.get("final") and not e.get("failed"))
    return next(given, None)


def _ended(made: Made) -> str:
    return f"{made.ended}." if not made.ended.endswith(".") else made.ended


def _line(made: Made) -> tuple[str, ...]:
    return (made.line,) if made.line else ()


def _calls(made: Made) -> str:
    return f"its calls: {', '.join(made.calls) or 'none'}"


def _notes(trial: Trial) -> str:
    return (trial.folder.path / "input" / "notes.txt").read_text(encoding="utf-8")


def artifacts_of(trial: Trial) -> dict[str, str]:
    """What a reader finds in the folder of an agent, by name."""
    paths = [path for path in trial.folder.artifacts.glob("*") if path.is_file()]
    return visible({path.name: read_text(path) or "" for path in sorted(paths)})


def rows_of_agent(trial: Trial) -> tuple[str, ...]:
    """Its step 1 in the journal, and the names of what it published."""
    found = [f"artifacts: {', '.join(artifacts_of(trial)) or 'nothing'}"]
    return (*step_rows(trial, 1), *found)

"""`lab.check`: an answer to an exercise is held, broken or not judged, in words; it never raises.

Each exercise is one function in `labkit.lab.exercises`. It gets the learner's answer and a `Desk`,
makes its own evidence there (a fresh folder, a real kill, a witness), and returns a `Judgement`.
What a learner's function does, in this Python or in an agent, is its own affair: an exception, a
loop without an end or a missing name becomes a judgement that says so.
"""

from __future__ import annotations

import ast
import inspect
import os
import signal
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from types import FrameType
from typing import Any, NamedTuple

from labkit.errors import Fatal, LabkitError, describe
from labkit.journal.laws import BROKEN, HELD, NOT_JUDGED
from labkit.journal.reading import plain
from labkit.lab.content import Exercise
from labkit.lab.folder import Folder
from labkit.lab.handing import NotSelfContained, source_of

__all__ = [
    "Desk",
    "Judgement",
    "as_text",
    "ask",
    "broken",
    "held",
    "is_unanswered",
    "judge",
    "not_judged",
]

COLUMNS, ROW_MAX, TEXT_MAX = 80, 160, 1600
LIMIT_S = 2.0  # for one call of a learner's function in this Python
AGAIN_S = 0.2
PARTS_MAX = 100_000  # of a value: a range can have more than anybody can look at


class Judgement(NamedTuple):
    """`rule` is what must hold, `reason` what was seen, `rows` the lines that show it."""

    verdict: str
    reason: str
    rule: str = ""
    rows: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return self.verdict

    def text(self, exercise_id: str) -> str:
        """As a learner reads it, at most 80 columns wide, rows excepted. Text of a journal or a
        function is text: nothing in it moves a cursor or changes a colour."""
        lines = [f"{plain(str(exercise_id))}  {self.verdict}"]
        lines += _entry("rule", self.rule) + _entry("seen", self.reason)
        lines += [f"        {plain(row, ROW_MAX)}" for row in self.rows]
        return "\n".join(lines)


def held(reason: str, rule: str = "", rows: Sequence[str] = ()) -> Judgement:
    return Judgement(HELD, reason, rule, tuple(rows))


def broken(reason: str, rule: str = "", rows: Sequence[str] = ()) -> Judgement:
    return Judgement(BROKEN, reason, rule, tuple(rows))


def not_judged(reason: str, rule: str = "", rows: Sequence[str] = ()) -> Judgement:
    return Judgement(NOT_JUDGED, reason, rule, tuple(rows))


class Desk(NamedTuple):
    """What a check works with: fresh folders inside the notebook's run folder."""

    exercise: Exercise
    open_folder: Callable[[str], Folder]

    def fresh(self, name: str = "") -> Folder:
        """A folder that did not exist, with the notes and the plan in it and no journal."""
        return self.open_folder("-".join(filter(None, ["check", self.exercise.id[3:], name])))


def judge(exercise: Exercise, answer: object, desk: Desk) -> Judgement:
    """The verdict on one answer. Raises nothing but KeyboardInterrupt."""
    if is_unanswered(answer):
        return not_judged('The "..." is still there. Put your answer in its place, run the cell.')
    number, _, name = exercise.id.partition(".")
    try:
        answer = _as_python(answer)
        if isinstance(answer, str | list | dict | tuple | set) and not answer:
            return not_judged("Your answer is empty. Write it down, run the cell again.")
        ask_exercise = getattr(import_module(f"labkit.lab.exercises.n{number}"), name)
        result: Judgement = ask_exercise(answer, desk)
    except _Rejected as rejected:
        return rejected.judgement
    except NotSelfContained as error:
        return not_judged(f"{error}.", "An agent runs your function in a process of its own.")
    except (LabkitError, Fatal) as error:
        return not_judged(f"The check could not be made: {error}.")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an answer of a kind that the check did not think of
        return not_judged(f"The check cannot read this answer: {describe(error)}.")
    return result


def ask(function: Callable[..., Any], *given: Any) -> Any:
    """What the learner's function returns. A call that goes wrong ends the check with a verdict."""
    if not callable(function):
        raise _Rejected(not_judged(f"{function!r} is no function. Give its name, without ()."))
    try:
        with _as_before(), _time_limit():
            value = _as_python(function(*given))
    except _Rejected:
        raise
    except _TooLong:
        took = f"Your function had not ended after {LIMIT_S:g} s, so it was stopped."
        raise _Rejected(not_judged(took)) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _Rejected(_of_exception(function, error)) from None
    if value is None or value is ...:
        raise _Rejected(not_judged("Your function returns nothing. Is there a return in it?"))
    return value


def as_text(answer: object) -> str:
    """The answer as it is kept in the progress: a function's source, a value's repr."""
    try:
        return source_of(answer) if inspect.isfunction(answer) else repr(answer)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a repr of the learner's own, or a source that is gone
        return f"no text: {describe(error)}"


class _Rejected(Exception):
    def __init__(self, judgement: Judgement) -> None:
        super().__init__(judgement.reason)
        self.judgement = judgement


class _TooLong(BaseException):
    pass


def _as_python(value: Any) -> Any:
    """numpy's numbers and arrays as Python's own, also as parts: pandas gives them, and to a
    learner they are the same. Rejects what nobody can look through."""
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
    long = value[PARTS_MAX:] if type(value) in (range, list, tuple) else None
    if long or (type(value) in (set, dict) and len(value) > PARTS_MAX):
        raise _Rejected(not_judged(f"This has more than {PARTS_MAX} parts; a few are asked."))
    if type(value) is dict:
        return {key: _part(part) for key, part in value.items()}
    return type(value)(map(_part, value)) if type(value) in (list, tuple) else value


def _part(value: Any) -> Any:
    return value.tolist() if type(value).__module__ == "numpy" else value


@contextmanager
def _as_before() -> Iterator[None]:
    """What comes after a learner's function works in the folder of before and prints where it did.
    A fork in the function makes a second Python; only the first goes on from here."""
    here, where = os.getpid(), None
    with suppress(OSError):  # a folder that is gone already
        where = os.getcwd()
    with redirect_stdout(sys.stdout), redirect_stderr(sys.stderr):
        try:
            yield
        finally:
            if os.getpid() != here:
                os._exit(0)
            with suppress(OSError):
                os.chdir(where or ".")


@contextmanager
def _time_limit() -> Iterator[None]:
    """Ends a loop without an end. Python hands signals to the main thread only: elsewhere none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stops = _Stops()
    before, trace = signal.signal(signal.SIGALRM, stops), sys.gettrace()
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S, AGAIN_S)
    try:
        try:
            yield
        finally:
            stops.over = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
        if sys.gettrace() is not trace:
            sys.settrace(trace)


class _Stops:
    """Raises in the function, and again for one that catches everything and goes on: then in the
    line that comes after, which is in its `except`, where nothing catches it."""

    def __init__(self) -> None:
        self.over, self.count = False, 0

    def __call__(self, _: int, frame: FrameType | None) -> None:
        if self.over:
            return
        self.count += 1
        if self.count > 1:
            sys.settrace(lambda *_: None)
            while frame and frame.f_code.co_filename != __file__:
                frame.f_trace, frame = self._raise, frame.f_back
        raise _TooLong

    def _raise(self, _: FrameType, event: str, given: object) -> Any:
        if event == "line" and not self.over:
            raise _TooLong
        return self._raise


def _of_exception(function: Callable[..., Any], error: BaseException) -> Judgement:
    """Says which line of the learner's own function raised, as a traceback would."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    rows = [f"line {lines[-1].lineno}: {lines[-1].line}"] if lines else []
    return broken(f"Your function raised {describe(error)}.", "It must return, not raise.", rows)


def is_unanswered(answer: object) -> bool:
    """True for the answer as shipped: `...`, or a function that still holds one."""
    if answer is ...:
        return True
    if not inspect.isfunction(answer):
        return False
    try:
        (tree,) = ast.parse(source_of(answer)).body
    except (NotSelfContained, ValueError, SyntaxError):
        return False
    return any(isinstance(node, ast.Constant) and node.value is ... for node in ast.walk(tree))


def _entry(name: str, text: str) -> list[str]:
    if not text:
        return []
    lines = textwrap.wrap(plain(" ".join(text.split()), TEXT_MAX), COLUMNS - 8)
    return [f"{name if n == 0 else '':8}{line}" for n, line in enumerate(lines)]

"""What is accepted comes back as it went in; everything else is refused with its place."""

import enum
import json
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import PermanentError
from labkit.jsonvalues import MAX_DEPTH, NotJSON, to_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | TEXT
    | st.floats(allow_nan=False).filter(lambda number: abs(number) != float("inf"))
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20
)


class Color(enum.IntEnum):
    RED = 1


class Name(str):
    __slots__ = ()


STRANGERS = [
    float("nan"),
    float("inf"),
    float("-inf"),
    b"bytes",
    bytearray(b"bytes"),
    {1},
    frozenset(),
    (1, 2),
    1j,
    object(),
    Color.RED,
    Name("x"),
    OrderedDict(a=1),
    {1: "integer key"},
    {None: "null key"},
    {True: "true key"},
    {Name("x"): "a key of another type"},
    "\ud800",
    {"\udfff": "surrogate key"},
    10**5000,
]


@settings(max_examples=60)
@given(VALUES)
def test_what_is_accepted_comes_back_unchanged(value: Any) -> None:
    """`repr` tells 1 from 1.0 and from True, and -0.0 from 0.0."""
    assert repr(json.loads(to_json(value))) == repr(value)


@settings(max_examples=60)
@given(VALUES, st.sampled_from(STRANGERS))
def test_a_stranger_is_refused_wherever_it_hides(value: Any, stranger: Any) -> None:
    for hidden in ([value, stranger], {"a": value, "b": {"c": stranger}}, [[[stranger]], value]):
        with pytest.raises(NotJSON):
            to_json(hidden)


@pytest.mark.parametrize("number", range(len(STRANGERS)))
def test_the_message_says_what_to_use_instead(number: int) -> None:
    with pytest.raises(NotJSON, match=r"; (use|build|replace)|JSON has no number for; use"):
        to_json(STRANGERS[number])


def test_the_message_says_where() -> None:
    with pytest.raises(NotJSON, match=r"^the output\.rows\[1\]\.when is of type bytes"):
        to_json({"rows": [{}, {"when": b""}]})
    with pytest.raises(NotJSON, match=r"^plan\[0\]"):
        to_json([set()], "plan")


def nested(depth: int) -> list[Any]:
    root: list[Any] = []
    value = root
    for _ in range(depth):
        value.append([])
        value = value[0]
    return root


def test_nesting_ends_at_the_limit_and_nothing_overflows() -> None:
    assert json.loads(to_json(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(NotJSON, match="deeper"):
            to_json(nested(depth))


def test_a_cycle_is_refused() -> None:
    cycle: dict[str, Any] = {}
    cycle["self"] = [cycle]
    with pytest.raises(NotJSON):
        to_json(cycle)


def test_a_long_message_stays_short() -> None:
    with pytest.raises(NotJSON) as raised:
        to_json({"k" * 1000: {1}})
    assert len(str(raised.value)) < 300


def test_no_other_attempt_can_help() -> None:
    assert issubclass(NotJSON, PermanentError)

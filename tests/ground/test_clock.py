"""Time and ids: real ones, or those that the lab asks for."""

import time
from collections.abc import Callable

import pytest

from labkit.clock import clock, run_ids
from labkit.errors import UsageError


def test_the_real_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABKIT_CLOCK", raising=False)
    before = time.time()
    assert before <= clock()() <= time.time()


@pytest.mark.parametrize(
    ("asked", "readings"),
    [("100", [100, 101, 102]), ("100+0.5", [100, 100.5, 101]), ("1.5+60", [1.5, 61.5, 121.5])],
)
def test_a_clock_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: str, readings: list[float]
) -> None:
    monkeypatch.setenv("LABKIT_CLOCK", asked)
    now = clock()
    assert [now() for _ in readings] == readings
    assert isinstance(clock()(), float)


def test_real_ids_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABKIT_RUN_IDS", raising=False)
    ids = {run_ids()(1) for _ in range(100)}
    assert len(ids) == 100
    assert all(len(name) == 8 and int(name, 16) >= 0 for name in ids)


def test_ids_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_RUN_IDS", "aaaaaaaa,00c0ffee")
    assert [run_ids()(n) for n in (1, 2, 3, 300)] == [
        "aaaaaaaa",
        "00c0ffee",
        "00000003",
        "0000012c",
    ]


@pytest.mark.parametrize(
    ("name", "value", "make"),
    [
        ("LABKIT_CLOCK", "noon", clock),
        ("LABKIT_CLOCK", "1+", clock),
        ("LABKIT_CLOCK", "-1", clock),
        ("LABKIT_CLOCK", "nan", clock),
        ("LABKIT_RUN_IDS", "abc", run_ids),
        ("LABKIT_RUN_IDS", "aaaaaaaa,", run_ids),
        ("LABKIT_RUN_IDS", "AAAAAAAA", run_ids),
    ],
)
def test_a_bad_value_says_what_is_right(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, make: Callable[[], object]
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=name):
        make()

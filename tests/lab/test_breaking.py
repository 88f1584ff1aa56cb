"""Notebook 08's verbs: what they break is broken, and an injector that does nothing is red."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit import lab
from labkit.chaos.mutants import count
from labkit.errors import LabkitError, UsageError
from labkit.lab import breaking, images
from labkit.lab.images import Sight
from tests.restart.kit import needs_strace

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    lab.begin("08")
    yield
    lab.end()


@pytest.mark.parametrize(
    "mutant", [m for m in breaking.AGENTS.values() if m.file], ids=lambda mutant: mutant.name
)
def test_each_agent_differs_in_one_place(mutant: breaking.Mutant) -> None:
    assert count(mutant) == 1


def test_another_name_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no agent 'x'"):
        breaking.agent("x")


@needs_strace
def test_a_missing_fsync_is_held_at_every_kill_and_broken_by_a_power_cut() -> None:
    agent = breaking.agent("folder not synced")
    assert breaking.in_words(breaking.kill_at_points(agent)) == "held"
    cuts = breaking.lose_all(agent)
    assert cuts.kinds[0] == cuts.word == "done but no file"
    lab.fresh("image")
    breaking.leave_image(cuts)
    assert set(lab.journal().steps().status) == {"done"}
    assert not any(name.startswith("artifacts/") for name in lab.files())


@needs_strace
def test_the_right_agent_holds_and_an_injector_that_does_nothing_is_unknown() -> None:
    right = breaking.agent()
    held = breaking.lose_all(right)
    assert held.word == "held"
    with pytest.raises(UsageError, match="none of these disks is broken"):
        breaking.leave_image(held)
    killed = breaking.kill_at_calls(right, 3)
    assert (killed.planned, breaking.in_words(killed)) == (3, "held")
    blunt = breaking.kill_at_calls(right, 3, breaking.BLUNT)
    assert (blunt.delivered, breaking.in_words(blunt)) == (0, "unknown")


@needs_strace
@pytest.mark.parametrize(
    ("way", "broken"), [("in_place", True), ("by_link", True), ("publish_once", False)]
)
def test_the_disks_of_a_publisher(way: str, broken: bool) -> None:
    disks = images.disks(way)
    assert bool(disks.broken) is broken
    assert [sight for sight in disks.sights if sight.told and sight.finds == images.WHOLE]


@needs_strace
def test_a_call_is_forced_to_the_disk_by_the_fsync_after_it() -> None:
    disks = images.disks("publish_once")
    named = dict(zip(disks.ops, disks.settled, strict=True))
    assert named["link artifacts/week.md"] == disks.ops.index("fsync artifacts")
    assert images.disks("by_link").settled[3] is None


@needs_strace
def test_a_program_that_fails_has_no_disks() -> None:
    with pytest.raises(LabkitError, match="exits 1"):
        images.disks("nested", "artifacts/2026", "0")


def test_a_report_that_was_not_acknowledged_may_be_missing_but_not_torn() -> None:
    assert not Sight(False, (), ()).is_broken
    assert Sight(True, (), ()).is_broken
    assert Sight(False, (), ("kept", "zeros", "kept")).is_broken
    assert not Sight(True, (), ("kept", "kept", "kept")).is_broken

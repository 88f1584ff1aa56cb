"""Exercises of notebook 06: what is a good key, whatever way it is made."""

from __future__ import annotations

import hashlib
import json
import uuid

import pytest

from labkit.lab.exercises import n06

LOOKS = (n06._unstable, n06._no_name, n06._shared)


@pytest.mark.parametrize(
    "key_for",
    [
        lambda task_id, idx, attempt: f"{task_id}#{idx}",
        lambda task_id, idx, attempt: f"({task_id}) [{idx}]",
        lambda task_id, idx, attempt: f"{task_id.encode().hex()}-{idx}",
        lambda task_id, idx, attempt: hashlib.sha512(f"{task_id}/{idx}".encode()).hexdigest(),
        lambda task_id, idx, attempt: str(uuid.uuid5(uuid.NAMESPACE_URL, f"{task_id}/{idx}")),
    ],
    ids=["hash sign", "brackets", "hex", "digest", "uuid"],
)
def test_a_key_may_hold_what_a_name_may_hold(key_for: object) -> None:
    assert not [fault for look in LOOKS for fault in look(key_for)]


@pytest.mark.parametrize(
    "key_for",
    [
        lambda task_id, idx, attempt: f"{task_id}/{idx}",
        lambda task_id, idx, attempt: f"{task_id}\\{idx}",
        lambda task_id, idx, attempt: f".{task_id}-{idx}",
        lambda task_id, idx, attempt: f"{task_id}\n{idx}",
        lambda task_id, idx, attempt: f"{task_id}-{idx}\udcff",
        lambda task_id, idx, attempt: json.dumps([task_id, idx]),
    ],
    ids=["slash", "backslash", "dot", "newline", "surrogate", "json"],
)
def test_what_is_no_name_on_some_system_is_no_key(key_for: object) -> None:
    assert "is no good name for a file" in next(n06._no_name(key_for))

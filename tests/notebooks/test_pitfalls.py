"""Each pitfall of teaching labs that we know of has a test, or a reason why it needs none."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PITFALLS = tomllib.loads((HERE / "pitfalls.toml").read_text(encoding="utf-8"))
EVERY = {what: answer for part in PITFALLS.values() for what, answer in part.items()}


def test_both_lists_are_there() -> None:
    assert {name: len(part) for name, part in PITFALLS.items()} == {"nbval": 21, "learners": 22}


@pytest.mark.parametrize("what", EVERY)
def test_it_has_a_test_or_a_reason(what: str) -> None:
    answer = EVERY[what]
    if answer.startswith("none: "):
        assert len(answer.split()) > 4
        return
    file, _, name = answer.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert name.partition("[")[0] in tests
    if "[" in name:
        assert f'"{name.partition("[")[2].removesuffix("]")}":' in (ROOT / file).read_text("utf-8")

"""A learner's function is handed to an agent as source, or refused with the name that it lacks."""

from __future__ import annotations

import builtins
import functools
import json
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labkit.lab.folder import Folder
from labkit.lab.handing import TOOLS_FILE, NotSelfContained, hand_over, source_of
from labkit.restart.tools import load_tools

LIMIT = 3


def typed(source: str, name: str = "tool") -> Any:
    """A function as a notebook's cell defines it; `helper` and `LIMIT` are of the notebook."""
    file = f"<cell {abs(hash(source))}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    cell: dict[str, Any] = {"json": json, "LIMIT": LIMIT, "helper": len}
    exec(compile(source, file, "exec"), cell)
    return cell[name]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


SELF_CONTAINED = {
    "plain": "def tool(input, ctx, idem_key):\n    return {'n': len(input)}\n",
    "imports inside": (
        "def tool(input, ctx, idem_key):\n    import json\n    return json.loads('1')\n"
    ),
    "function inside": (
        "def tool(input, ctx, idem_key):\n    def double(n):\n        return 2 * n\n"
        "    return double(3)\n"
    ),
    "comprehension": "def tool(input, ctx, idem_key):\n    return [n for n in range(3)]\n",
    "class inside": (
        "def tool(input, ctx, idem_key):\n    class Box:\n        size = 3\n    return Box.size\n"
    ),
    "itself": "def tool(input, ctx, idem_key):\n    return tool.__name__\n",
    "its own global": (
        "def tool(input, ctx, idem_key):\n    global seen\n    seen = 1\n    return seen\n"
    ),
    "builtins": "def tool(input, ctx, idem_key):\n    return sorted(map(str, {1: 2}))\n",
    "annotated": "def tool(input: dict, ctx: object, idem_key: str) -> dict:\n    return {}\n",
    "indented": "if True:\n    def tool(input, ctx, idem_key):\n        return {}\n",
}


@pytest.mark.parametrize("name", SELF_CONTAINED)
def test_a_self_contained_function_works_in_another_process(name: str, folder: Folder) -> None:
    function = typed(SELF_CONTAINED[name])
    assert hand_over(function, folder) == f"--tools {TOOLS_FILE}"
    tool = load_tools([str(folder.path / TOOLS_FILE)])["tool"]
    assert tool({}, {}, "k") == function({}, {}, "k")


NEEDS_THE_NOTEBOOK = {
    "import outside": ("def tool(input, ctx, idem_key):\n    return json.dumps(input)\n", "json"),
    "constant": ("def tool(input, ctx, idem_key):\n    return LIMIT\n", "LIMIT"),
    "helper": ("def tool(input, ctx, idem_key):\n    return helper(input)\n", "helper"),
    "two": ("def tool(input, ctx, idem_key):\n    return helper(LIMIT)\n", "LIMIT, helper"),
    "deep": (
        "def tool(input, ctx, idem_key):\n    return [helper(n) for n in range(3)]\n",
        "helper",
    ),
    "class inside": (
        "def tool(input, ctx, idem_key):\n    class Box:\n        size = LIMIT\n    return 1\n",
        "LIMIT",
    ),
    "default": ("def tool(input, ctx, idem_key, most=LIMIT):\n    return most\n", "LIMIT"),
    "annotation": ("def tool(input: LIMIT, ctx, idem_key):\n    return 1\n", "LIMIT"),
    "decorator": (
        "def twice(f):\n    return f\n\n@twice\ndef tool(input, ctx, idem_key):\n    return 1\n",
        "twice",
    ),
}


@pytest.mark.parametrize("name", NEEDS_THE_NOTEBOOK)
def test_a_function_that_needs_the_notebook_is_refused_by_name(name: str, folder: Folder) -> None:
    source, missing = NEEDS_THE_NOTEBOOK[name]
    with pytest.raises(NotSelfContained, match=f"tool uses {missing} from outside"):
        hand_over(typed(source), folder)
    assert not (folder.path / TOOLS_FILE).exists()


def test_what_a_kernel_adds_to_the_builtins_is_not_there_for_an_agent(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("display", "get_ipython"):
        monkeypatch.setattr(builtins, name, print, raising=False)
    shows = typed("def tool(input, ctx, idem_key):\n    display(get_ipython())\n    return 1\n")
    with pytest.raises(NotSelfContained, match="tool uses display, get_ipython from outside"):
        hand_over(shows, folder)


def around() -> Callable[..., Any]:
    most = 3

    def tool(input: Any, ctx: Any, idem_key: str) -> int:
        return most

    return tool


OTHERS: dict[str, tuple[Any, str]] = {
    "closure": (around(), "tool uses most of the function around it"),
    "lambda": (lambda input, ctx, idem_key: 1, "no function made with def"),
    "async": (typed("async def tool(input, ctx, idem_key):\n    return 1\n"), "tool is async"),
    "generator": (typed("def tool(input, ctx, idem_key):\n    yield 1\n"), "tool has a yield"),
    "partial": (functools.partial(around()), "no function made with def"),
    "builtin": (len, "no function made with def"),
    "class": (dict, "no function made with def"),
    "private": (typed("def _tool(input, ctx, key):\n    return 1\n", "_tool"), "begins with _"),
    "built-in tool": (typed("def fetch(input, ctx, key):\n    return 1\n", "fetch"), "rename"),
    "value": (3, "no function made with def"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_be_handed_over_says_why(name: str, folder: Folder) -> None:
    value, words = OTHERS[name]
    with pytest.raises(NotSelfContained, match=words):
        hand_over(value, folder)
    assert not (folder.path / TOOLS_FILE).exists()


def test_a_source_that_is_gone_is_told() -> None:
    source = "def tool(input, ctx, idem_key):\n    return 1\n"
    function = typed(source)
    linecache.cache.clear()
    with pytest.raises(NotSelfContained, match="the source of tool is gone; run its cell again"):
        source_of(function)

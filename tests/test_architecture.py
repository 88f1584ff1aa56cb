"""Which layer may import which, and how long things may get. One list; everything else follows."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "labkit"

# Lowest first. A module imports its own layer or a lower one; `restart` and `durable` never each
# other, so that each is read alone.
LAYERS = ["ground", "restart", "durable", "journal", "chaos", "lab", "cli"]
APART = {"restart", "durable"}
GROUND = {"errors", "jsonvalues", "files", "database", "crashpoints", "clock", "guard"}
TOP = {"labkit": "ground", "cli": "cli", "runs": "cli", "__main__": "cli"}
BARE = {"ground", "restart", "durable"}  # these layers stand on the standard library
BARE_EXCEPT = {"durable": {"jsonschema", "httpx", "cryptography", "psycopg"}}

MODULES = sorted(PACKAGE.rglob("*.py"))
LISTING = [path for path in MODULES if "__all__ = " in path.read_text("utf-8")]
IDS = [str(path.relative_to(PACKAGE)) for path in MODULES]


def layer_of(module: str) -> str:
    """`labkit.restart.plan` -> restart; `labkit.clock` -> ground."""
    name = module.split(".")[1] if "." in module else module
    return "ground" if name in GROUND else TOP.get(name, name)


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            # `from labkit import clock` imports the module clock.
            if node.module == "labkit":
                modules = [alias.name for alias in node.names if alias.name != "__version__"]
                yield from (f"labkit.{name}" for name in modules)
            else:
                yield node.module or ""


def objections(layer: str, imported: str) -> str | None:
    """Why a module of this layer may not import that one, or None."""
    top = imported.partition(".")[0]
    if top == "labkit":
        other = layer_of(imported)
        if {layer, other} == APART:
            return f"{layer} imports {other}: they stay two programs"
        if LAYERS.index(other) > LAYERS.index(layer):
            return f"{layer} imports {other}, which is above it"
    elif layer in BARE and top not in sys.stdlib_module_names | BARE_EXCEPT.get(layer, set()):
        return f"{layer} imports {top}, which a bare Python does not have"
    return None


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_imports_go_one_way(path: Path) -> None:
    layer = layer_of(name_of(path))
    found = (objections(layer, name) for name in imports_of(parsed(path)))
    assert [problem for problem in found if problem] == []


@pytest.mark.parametrize(
    ("layer", "imported", "refused"),
    [
        ("ground", "labkit.restart.plan", True),
        ("ground", "pandas", True),
        ("restart", "labkit.clock", False),
        ("restart", "labkit.durable.store", True),
        ("durable", "labkit.restart", True),
        ("durable", "httpx", False),
        ("durable", "pandas", True),
        ("durable", "labkit.chaos.kill", True),
        ("journal", "pandas", False),
        ("journal", "labkit.lab.verbs", True),
        ("lab", "labkit.cli", True),
        ("cli", "labkit.lab.doctor", False),
    ],
)
def test_the_rule_itself(layer: str, imported: str, refused: bool) -> None:
    assert (objections(layer, imported) is not None) is refused


def test_files_of_the_tests_stay_short_too() -> None:
    long = {
        path.name: length
        for path in (ROOT / "tests").rglob("*.py")
        if (length := len(path.read_text("utf-8").splitlines())) > 600
    }
    assert long == {}


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_files_and_functions_stay_short(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 600
    long = [
        f"{node.name}: {length} lines"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > 60
    ]
    assert long == []


def lines_of(layer: str) -> int:
    """Those that are not blank, in all the files of a layer."""
    texts = [p.read_text("utf-8") for p in MODULES if layer_of(name_of(p)) == layer]
    if layer == "ground":
        texts.remove((PACKAGE / "__init__.py").read_text("utf-8"))  # prose: the reading order
    return sum(bool(line.strip()) for text in texts for line in text.splitlines())


@pytest.mark.parametrize("layer", ["ground", "restart"])
def test_what_a_learner_reads_first_is_450_lines_at_most(layer: str) -> None:
    assert lines_of(layer) <= 450


def test_the_durable_run_is_2200_lines_at_most() -> None:
    assert lines_of("durable") <= 2200


def test_the_reading_order_names_what_there_is() -> None:
    order = ast.get_docstring(ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))) or ""
    modules = {p.stem for p in (PACKAGE / "restart").glob("*.py")} - {"__init__", "__main__"}
    for layer, names in (("ground", GROUND), ("restart", modules)):
        listed = re.search(rf"{layer}: ([\w, ]+)\.", order)
        assert listed
        assert set(listed[1].split(", ")) == names


@pytest.mark.parametrize("path", LISTING, ids=name_of)
def test_public_names_are_listed_and_sorted(path: Path) -> None:
    module = importlib.import_module(name_of(path))
    names = list(module.__all__)
    # Constants, classes, functions: the order that ruff's RUF022 asks for too.
    assert names == sorted(names, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    assert [name for name in names if not hasattr(module, name)] == []


@pytest.mark.parametrize(
    "module",
    [
        "labkit",
        "labkit.restart",
        "labkit.durable",
        "labkit.durable.adapters",
        "labkit.durable.runtime",
        "labkit.cli",
    ],
)
def test_a_bare_python_imports_it(module: str, tmp_path: Path) -> None:
    """-I -S: no site-packages, no environment. This checkout is all there is to import from."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {module}"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    argv = [sys.executable, "-I", "-S", "-c", code]
    ran = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")

"""The originals run, show again what they show, leave nothing alive; and a test would notice."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from labkit.lab import content, regenerate
from labkit.lab.content import Notebook
from labkit.lab.places import originals
from tests.conftest import run_python

ALL = content.notebooks()
NBVAL = ("-m", "pytest", "--nbval", "--nbval-current-env", "--nbval-cell-timeout=60", "-q", "-rf")
# `make test` compares every output of every notebook by nbval; here two of them are enough.
EACH = [
    pytest.param(entry, id=entry.number, marks=[] if entry.number == "00" else pytest.mark.proof)
    for entry in ALL
]
SAMPLE = content.notebook("01")
# pyzmq's kernel and nbclient's loop leave sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def marked(session: str) -> list[int]:
    """The processes that inherited this LABKIT_SESSION, whoever started them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"LABKIT_SESSION={session}\0".encode() in (process / "environ").read_bytes() + b"\0":
                found.append(int(process.name))
        except OSError:
            continue  # it has ended, or is another user's
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="scans /proc")
@pytest.mark.parametrize("entry", EACH)
def test_a_second_run_shows_the_same_and_leaves_nothing_alive(
    entry: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nbclient, unlike nbval, also fails on a magic that does not exist."""
    session = f"notebook-{entry.number}-{os.getpid()}"
    monkeypatch.setenv("LABKIT_SESSION", session)
    path = tmp_path / entry.file
    shutil.copyfile(originals() / entry.file, path)
    assert not regenerate.regenerate(path), "run make notebooks, then read its git diff"
    assert marked(session) == []


def test_a_failing_cell_stores_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bad.ipynb"
    path.write_text(json.dumps(minimal("%no_such_magic")), encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(regenerate.CellFailed, match="no_such_magic"):
        regenerate.regenerate(path)
    assert path.read_bytes() == before


def test_another_output_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "old.ipynb"
    path.write_text(json.dumps(minimal("print('new')")), encoding="utf-8")
    assert regenerate.regenerate(path) is True
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert stored["cells"][0]["outputs"][0]["text"] == ["new\n"]
    assert stored["metadata"]["language_info"] == {"name": "python"}
    assert regenerate.regenerate(path) is False


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("lab.journal()", "NotReady: no notebook has begun here; run the first cell"),
        ("lab.begin('05')\nlab.journal()", "NotReady: no agent has made a journal"),
    ],
    ids=["before-begin", "begun"],
)
def test_an_error_on_purpose_is_one_line_and_the_cell_fails(
    source: str, line: str, tmp_path: Path
) -> None:
    source = f"from labkit import lab\n{source}"
    with pytest.raises(regenerate.CellFailed) as caught:
        regenerate.execute(nbformat.reads(json.dumps(minimal(source)), 4), tmp_path)
    lines = str(caught.value).splitlines()
    assert "Traceback" not in str(caught.value)
    assert any(text.startswith(line) for text in lines)


def minimal(source: str) -> dict[str, Any]:
    cell = {
        "cell_type": "code", "id": "only", "metadata": {}, "source": [source],
        "outputs": [{"output_type": "stream", "name": "stdout", "text": ["old\n"]}],
        "execution_count": 1,
    }  # fmt: skip
    metadata = {"kernelspec": regenerate.KERNEL, "language_info": {"name": "python"}}
    return {"cells": [cell], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


@pytest.mark.proof
def test_nbval_is_red_at_a_changed_word_and_nowhere_else(tmp_path: Path) -> None:
    """The control of the whole check. Both copies run in one call, far from any conftest."""
    original = up_to_a_kill(json.loads((originals() / SAMPLE.file).read_text(encoding="utf-8")))
    spoiled = copy.deepcopy(original)
    tamper(spoiled, "text/plain", "killed", "spared")
    tamper(spoiled, "text/html", "<", "<!-- another picture --><")  # HTML is not compared
    for name, notebook in (("untampered", original), ("tampered", spoiled)):
        (tmp_path / f"{name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    ran = run_python(*NBVAL, "-p", "no:cacheprovider", ".", cwd=tmp_path)
    plain = re.sub(r"\x1b\[\d+m", "", ran.out)
    failed = re.findall(r"^FAILED (\S+?)\.ipynb::Cell (\d+)", plain, flags=re.M)
    assert failed == [("tampered", str(tampered_cell(original)))], plain
    assert ran.code == 1


def up_to_a_kill(notebook: dict[str, Any]) -> dict[str, Any]:
    """Its beginning, with three code cells after the one that kills: they have to stay green."""
    code = [n for n, cell in enumerate(notebook["cells"]) if cell["cell_type"] == "code"]
    return {**notebook, "cells": notebook["cells"][: code[tampered_cell(notebook) + 3] + 1]}


def tampered_cell(notebook: dict[str, Any]) -> int:
    """Where nbval must be red; it counts code cells from 0."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return next(i for i, cell in enumerate(code) if "killed" in plain_output(cell))


def plain_output(cell: dict[str, Any]) -> str:
    texts = (output.get("data", {}).get("text/plain", "") for output in cell["outputs"])
    return "".join("".join(text) for text in texts)


def tamper(notebook: dict[str, Any], kind: str, old: str, new: str) -> None:
    """Changes the first output that has `old` in it."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            text = "".join(data.get(kind, ""))
            if old in text:
                data[kind] = text.replace(old, new, 1)
                return
    raise AssertionError(f"no output has {old!r}")


BEGIN = """
import sys
from labkit import lab
lab.begin("05")
lab.run("agent create notes plan.json")
"""
# A cell that has returned and left an agent at work, and a cell that is still in `lab.run`.
STARTED = """
lab.wait_for(lab.start("agent run notes", AGENT_STEP_DELAY="600"), "step_started", step_idx=0)
print("waiting", flush=True)
sys.stdin.read()
"""
RUNNING = """
print("waiting", flush=True)
lab.run("agent run notes", AGENT_STEP_DELAY="600")
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="scans /proc")
@pytest.mark.parametrize(
    ("cells", "number"),
    [(STARTED, signal.SIGKILL), (RUNNING, signal.SIGKILL), (RUNNING, signal.SIGINT)],
    ids=["started-killed", "running-killed", "running-interrupted"],
)
def test_an_agent_does_not_outlive_its_kernel(
    cells: str, number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After SIGKILL no clean-up code of the kernel runs: the guard sees its pipe close."""
    session = f"kernel-{os.getpid()}-{len(cells)}-{number}"
    monkeypatch.setenv("LABKIT_SESSION", session)
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN + cells],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as kernel:
        assert kernel.stdout is not None
        while (line := kernel.stdout.readline()) != "waiting\n":
            assert line, "the kernel ended early"
        while len(marked(session)) < 3:  # the kernel, the guard, the agent
            assert kernel.poll() is None
        kernel.send_signal(number)
    while marked(session):  # the guard needs a moment; the time limit of the test bounds it
        pass

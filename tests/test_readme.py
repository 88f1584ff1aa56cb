"""What the README says is run here, or compared with what it speaks of."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from labkit import errors
from labkit.lab import content
from labkit.lab.readme import PICTURE, draw
from labkit.restart.tools import load_tools
from tests.restart.kit import needs_strace

TOP = Path(__file__).parents[1]
README = (TOP / "README.md").read_text("utf-8")


def blocks(language: str = "") -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


def test_the_picture_shows_what_its_text_says(tmp_path: Path) -> None:
    sentence = draw(tmp_path / PICTURE)
    assert f"![{sentence}](notebooks/{PICTURE})" in README
    assert (TOP / "notebooks" / PICTURE).is_file()


def test_the_table_of_notebooks_is_the_lists() -> None:
    rows = re.findall(r"^\| \[(\d\d)\]\(notebooks/(.+?)\) \| (.+?) \| (\d+|-) \|$", README, re.M)
    listed = [(n.number, n.file, n.title, n.length) for n in content.notebooks()]
    assert rows == listed


def test_the_short_path_is_as_short_as_it_says() -> None:
    path = r"Short path for (\d+) minutes: ([\d ]+), with the first exercise of (\d+) and of (\d+)"
    found = re.search(path, README)
    assert found
    numbers = found[2].split()
    exercises = [each for number in numbers for each in content.exercises(number)]
    done = [content.exercises(number)[0] for number in (found[3], found[4])]
    at_home = sum(each.minutes for each in exercises if each not in done)
    minutes = sum(content.notebook(number).minutes for number in numbers)
    assert minutes - at_home <= int(found[1])
    assert numbers == sorted(numbers)


def test_the_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (TOP / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(
        re.findall(r"\bmake ([a-z]+)\b", "\n".join([*blocks(), *re.findall("`.+?`", README)]))
    )
    assert named
    assert named <= targets


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 5
    assert [link for link in links if not (TOP / link).exists()] == []


def test_the_exit_codes_are_those_of_the_errors() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    kinds = [getattr(errors, name) for name in errors.__all__]
    raised = {kind.exit_code for kind in kinds if isinstance(kind, type)}
    assert codes == {0} | raised - {70}  # 70 is of the two roots, which nothing raises


def test_the_commands_do_what_their_comments_say(tmp_path: Path) -> None:
    [block] = [block for block in blocks() if "labkit agent" in block]
    activate, copied, *commands = block.splitlines()
    assert activate.split()[:2] == [".", ".venv/bin/activate"]
    source = shlex.split(copied, comments=True)[2].removesuffix("/.")
    shutil.copytree(TOP / source, tmp_path / source)
    for again in (False, True):  # the second time it lies there, and nothing may nest in it
        ran_again = subprocess.run(["sh", "-c", copied], cwd=tmp_path, check=False)
        assert ran_again.returncode == 0, again
        assert len(list((tmp_path / "try-it").iterdir())) == len(list((TOP / source).iterdir()))
    assert json.loads(blocks("json")[0]) == json.loads((TOP / source / "plan.json").read_text())
    ran = [run(line, tmp_path / "try-it") for line in commands]
    assert [one.returncode for one in ran] == [0, -9, 0, 0, 0, 0, 0]
    assert '"status": "running"' in ran[2].stdout
    assert '"kind": "task_done"' in ran[4].stdout.splitlines()[-1]
    assert "1 recovery" in ran[6].stdout


@pytest.mark.proof
def test_the_commands_of_the_workbook_do_what_their_comments_say(tmp_path: Path) -> None:
    """In a copy of the checkout: they write into the one that they belong to."""
    [block] = [block for block in blocks() if "labkit reset" in block]
    top = tmp_path / "a checkout"
    for name in ("labkit", "notebooks"):
        shutil.copytree(TOP / name, top / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(TOP / "pyproject.toml", top)
    other = tmp_path / "FILE"
    other.write_text('{"predictions": {"05.q1": "b"}}', "utf-8")
    lines = [line.removeprefix(".venv/bin/") for line in block.splitlines()]
    opened = run(lines[0], tmp_path, top)
    [copy] = (top / "workbook").glob("*.ipynb")
    assert copy.name.startswith("05-")
    copy.write_text(copy.read_text("utf-8").replace("?", "my answer"), "utf-8")
    kept, reset, shown, merged = (run(line, tmp_path, top) for line in [lines[0], *lines[1:]])
    assert [one.returncode for one in (opened, kept, reset, shown, merged)] == [0] * 5
    assert "kept; it has your changes" in kept.stdout
    assert len(list((top / "workbook/old").glob("05-*.ipynb"))) == 1
    assert "my answer" not in copy.read_text("utf-8")
    assert "Not held yet:" in shown.stdout
    assert "Predictions taken in: 05.q1" in merged.stdout


@needs_strace
@pytest.mark.proof
@pytest.mark.timeout(300)
def test_the_crash_kit_says_what_the_comments_say(tmp_path: Path) -> None:
    [block] = [block for block in blocks() if "labkit chaos" in block]
    [script] = blocks("sh")
    (tmp_path / "steps.sh").write_text(script, "utf-8")
    codes = {"held": 0, "broken": 1}
    said = 0
    for line in block.splitlines():
        if found := re.search(r": (held|broken)\b", line):
            assert judged(line, tmp_path) == codes[found[1]], line
            said += 1
    assert said == 4
    assert [path.name for path in tmp_path.iterdir()] == ["steps.sh"]


def judged(line: str, folder: Path) -> int:
    """The exit code; 2, unknown, is tried again: a shell whose child was killed goes on for an
    instant, so that the second kill of a pair can strike at another call."""
    tries = (run(line, folder).returncode for _ in range(4))
    return next((code for code in tries if code != 2), 2)


def test_the_durable_run_waits_once_it_was_killed(tmp_path: Path) -> None:
    [_, program] = blocks("python")
    (tmp_path / "shop.py").write_text(program, "utf-8")
    lines = [line for block in blocks() for line in block.splitlines() if "labkit runs" in line]
    listed, shown, resumed, resolved = (line.split("  #")[0] for line in lines[:4])
    assert "SUCCEEDED Kim was told." in run("python shop.py", tmp_path).stdout
    assert run("python shop.py die", tmp_path).returncode == -9
    assert len((tmp_path / "outbox.txt").read_text("utf-8").splitlines()) == 2
    killed = json.loads(run("labkit runs list --json --status RUNNING", tmp_path).stdout)["run_id"]
    later = f"LABKIT_CLOCK=9999999999 {resumed.replace('RUN_ID', killed)}"
    assert run(later, tmp_path).returncode == 4
    assert killed in run(listed, tmp_path).stdout
    assert (
        '"waiting_step_id": "model-1.tool-1"'
        in run(shown.replace("RUN_ID", killed), tmp_path).stdout
    )
    answered = run(resolved.replace("RUN_ID", killed), tmp_path)
    assert (answered.returncode, answered.stderr) == (0, "")
    assert len((tmp_path / "outbox.txt").read_text("utf-8").splitlines()) == 2


def test_the_tool_is_one(tmp_path: Path) -> None:
    [tool, _] = blocks("python")
    (tmp_path / "mine.py").write_text(f"def _post(text, idempotency_key): ...\n{tool}", "utf-8")
    assert "announce" in load_tools([str(tmp_path / "mine.py")])


def test_the_variables_are_those_that_the_agent_reads() -> None:
    named = set(re.findall(r"`((?:AGENT|OLLAMA)_[A-Z_]+)`", README))
    source = "".join(path.read_text("utf-8") for path in (TOP / "labkit/restart").glob("*.py"))
    assert named == set(re.findall(r"\b((?:AGENT|OLLAMA)_[A-Z_]+)\b", source))


def run(line: str, folder: Path, top: Path = TOP) -> subprocess.CompletedProcess[str]:
    words = shlex.split(line, comments=True)
    settings = dict(
        word.split("=", 1) for word in words if re.match("(AGENT|LABKIT)_[A-Z_]+=", word)
    )
    program, *argv = words[len(settings) :]
    assert program in ("labkit", "python")
    command = [sys.executable, *(["-m", program] if program == "labkit" else []), *argv]
    environ = {**os.environ, "PYTHONPATH": str(top), **settings}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )

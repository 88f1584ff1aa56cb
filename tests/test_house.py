"""The files around the package agree with each other and name no particular machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
INSTALLED = [*PROJECT["dependencies"], *EXTRAS["test"], *EXTRAS["chaos"]]


def pins() -> dict[str, str]:
    """constraints.txt as {canonical name: exact version}."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def tracked() -> list[Path]:
    """The files in git that are text; a downloaded archive of the checkout has no list."""
    argv = ["git", "-C", str(ROOT), "ls-files", "-z"]
    listed = subprocess.run(argv, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and path.suffix not in {".db", ".png"}]


@pytest.mark.parametrize("wanted", INSTALLED)
def test_the_pinned_version_is_in_the_range(wanted: str) -> None:
    requirement = Requirement(wanted)
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("wanted", [*INSTALLED, *EXTRAS["bench"]])
def test_every_range_has_an_upper_bound(wanted: str) -> None:
    assert not Requirement(wanted).specifier.contains(Version("9999"))


def test_environment_yml_says_what_pyproject_says() -> None:
    """Read as lines: the file is kept this simple, and a YAML parser would be one more package."""
    text = (ROOT / "environment.yml").read_text("utf-8")
    entries = [line.strip()[2:] for line in text.splitlines() if line.strip().startswith("- ")]
    python, pip, _, constraint, install = entries
    assert f"name: {PROJECT['name']}\n" in text
    assert Requirement(f"x{PROJECT['requires-python']}").specifier.contains(
        python.removeprefix("python=")
    )
    assert pip == "pip"
    assert constraint == "--constraint constraints.txt"
    assert re.fullmatch(r"-e \.\[(\w+)\]", install)[1] in EXTRAS  # type: ignore[index]


def test_the_makefile_has_its_targets() -> None:
    targets = ["lab", "test", "proof", "browser", "check", "notebooks", "controls", "bench"]
    targets.append("clean")
    known = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(targets) <= known
    helped = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True)
    assert re.findall(r"^make (\w+) ", helped.stdout, re.MULTILINE) == targets


def program(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("lacking", "message"),
    [
        ("python", "Python 3.11 or newer is needed and not found; "),
        ("venv", "python-without-venv has no venv module; "),
        ("space", "less than 1500 MB free on this disk; "),
    ],
)
def test_what_make_lacks_is_one_line(tmp_path: Path, lacking: str, message: str) -> None:
    """Nothing is built: each is found out before the virtual environment is begun."""
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    program(tmp_path, "df", "echo header; echo disk 9000 7600 1400 90% /")
    without_venv = program(tmp_path, "python-without-venv", "exit 1")
    python = {"python": "", "venv": str(without_venv), "space": sys.executable}[lacking]
    ran = subprocess.run(
        ["make", "-C", str(tmp_path), "--no-print-directory", "test", f"PYTHON={python}"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    first, *rest = (ran.stdout + ran.stderr).splitlines()
    assert first.startswith("make: ")
    assert message in first
    assert len(rest) == 1  # make's own "Error 1"
    assert ran.returncode
    assert not (tmp_path / ".venv").exists()


def test_the_devcontainer_opens_what_exists() -> None:
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8")
    codespaces = json.loads(text)["customizations"]["codespaces"]
    for name in codespaces["openFiles"]:
        assert (ROOT / name.replace("workbook/", "notebooks/")).is_file()


def test_jupyterlab_is_told_to_leave_the_network_alone() -> None:
    config = json.loads((ROOT / ".jupyter" / "jupyter_lab_config.json").read_text("utf-8"))
    assert config["LabApp"]["news_url"] is None
    overrides = ROOT / ".jupyter" / "labconfig" / "default_setting_overrides.json"
    (settings,) = json.loads(overrides.read_text("utf-8")).values()
    assert settings == {"checkForUpdates": False, "fetchNews": "false"}


def test_no_file_names_a_machine() -> None:
    """Home folders, and the folder this checkout happens to lie in."""
    here = re.escape(str(ROOT)) if len(ROOT.parts) > 2 else "(?!)"
    private = re.compile(rf"/(?:home|Users)/\w+/|/root/|{here}|https?://(?:10|192\.168)\.\d")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if private.search(line) and path != Path(__file__)
    ]
    assert found == []


def test_constraints_name_no_host_and_no_file() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.+]+", line) for line in lines)


def test_ci_can_be_started() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0

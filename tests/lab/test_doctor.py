"""The doctor's verdicts, each seen good and bad, and the command in a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.errors import UsageError
from labkit.lab import doctor
from labkit.lab.doctor import MISSING, OK, WARN
from tests.conftest import RunAgent, run_python


def test_a_package_that_does_not_exist_is_missing_and_says_what_to_do() -> None:
    row = doctor.check_package("labkit-that-does-not-exist")
    assert (row.state, row.value) == (MISSING, "not installed")
    assert "pip install" in row.todo


@pytest.mark.parametrize(
    ("wanted", "state"),
    [("pytest>=9,<10", OK), ("pytest", OK), ("pytest<1", MISSING), ("pytest>=999", MISSING)],
)
def test_a_package_is_compared_with_its_range(wanted: str, state: str) -> None:
    assert doctor.check_package(wanted).state == state


def test_a_requirement_without_a_name_is_refused() -> None:
    with pytest.raises(UsageError, match=">=9"):
        doctor.check_package(">=9")


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ((3, 6, 23), MISSING),
        ((3, 7, 0), WARN),
        ((3, 40, 1), WARN),
        ((3, 44, 5), WARN),
        ((3, 44, 6), OK),
        ((3, 45, 0), WARN),
        ((3, 50, 6), WARN),
        ((3, 50, 7), OK),
        ((3, 51, 2), WARN),
        ((3, 51, 3), OK),
        ((3, 53, 0), OK),
    ],
)
def test_sqlite_versions_with_the_wal_reset_race_are_warned_of(
    version: tuple[int, ...], state: str
) -> None:
    assert doctor.check_sqlite(version).state == state


@pytest.mark.parametrize(
    ("version", "state"), [((3, 10, 14), MISSING), ((3, 11, 0), OK), ((3, 14, 1), OK)]
)
def test_python_is_3_11_or_newer(version: tuple[int, ...], state: str) -> None:
    assert doctor.check_python(version).state == state


@pytest.mark.parametrize(
    ("system", "state"), [("linux", OK), ("darwin", WARN), ("win32", MISSING), ("cygwin", MISSING)]
)
def test_platforms(system: str, state: str) -> None:
    assert doctor.check_platform(system).state == state


def test_the_kernel_of_this_environment_is_this_interpreter() -> None:
    row = doctor.check_kernel()
    assert row.state == OK
    assert row.value.endswith(sys.executable)


def test_a_kernel_of_another_environment_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "kernels" / "elsewhere"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        '{"argv": ["/elsewhere/bin/python", "-m", "ipykernel_launcher"], "display_name": "x"}'
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    row = doctor.check_kernel("elsewhere")
    assert row.state == WARN
    assert "/elsewhere/bin/python" in row.value
    assert doctor.check_kernel("no-such-kernel").state == MISSING


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"argv": []}'])
def test_a_damaged_kernel_is_told(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "kernels" / "damaged"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(text)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    row = doctor.check_kernel("damaged")
    assert (row.state, row.todo) == (MISSING, doctor.INSTALL)


def test_a_program_that_is_not_there_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor.check_program("Python", [sys.executable], "all", "").value.startswith("Python 3.")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.check_program("strace", ["strace"], "make proof", "install it").state == WARN


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_disk(tmp_path).what == "disk"
    monkeypatch.setattr(doctor, "TIGHT_MB", 10**9)
    monkeypatch.setattr(doctor, "ENOUGH_MB", 10**9)
    assert doctor.check_disk(tmp_path).state == MISSING


def test_a_folder_that_is_gone_is_told(folder: Path) -> None:
    gone = folder / "gone"
    gone.mkdir()
    code = f"import os, sys; os.rmdir({str(gone)!r}); from labkit.cli import main; sys.exit(main())"
    ran = run_python("-c", code, "doctor", cwd=gone)
    assert (ran.code, ran.err.count("\n")) == (66, 1)
    assert "the current folder is gone; cd to one that exists" in ran.err


def test_every_row_that_is_not_ok_says_what_to_do() -> None:
    found = doctor.rows()
    assert {"Python", "labkit", "kernel", "SQLite", "strace", "Chromium", "disk"} <= {
        row.what for row in found
    }
    assert all(bool(row.todo) == (row.state != OK) for row in found)


def test_the_command_is_ready_exactly_when_nothing_is_missing(run_labkit: RunAgent) -> None:
    ran = run_labkit("doctor")
    lines = ran.out.splitlines()
    missing = any(line.startswith("missing ") for line in lines)
    assert (ran.code, lines[-1].startswith("not ready")) == ((1, True) if missing else (0, False))
    assert ran.err == ""


def test_a_bare_python_gets_rows_and_no_traceback(folder: Path) -> None:
    """-S leaves out site-packages: nothing but the standard library can be imported."""
    ran = subprocess.run(
        [sys.executable, "-S", "-m", "labkit", "doctor"],
        env={**os.environ, "PYTHONPATH": str(Path(doctor.__file__).parents[2])},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "missing  kernel" in ran.stdout
    assert ran.stderr == ""


def test_an_argument_is_refused_in_one_line(run_labkit: RunAgent) -> None:
    ran = run_labkit("doctor", "--fix")
    assert (ran.code, ran.err) == (64, "labkit doctor: doctor takes no argument, not '--fix'\n")

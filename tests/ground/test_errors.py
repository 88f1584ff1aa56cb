"""One tree, two roots, and the exit code of each leaf."""

import os
import shutil
from pathlib import Path

import pytest

from labkit import errors

CODES = {
    errors.UnknownTask: 1,
    errors.TaskFailed: 2,
    errors.TakenOver: 3,
    errors.UsageError: os.EX_USAGE,
    errors.BadInput: os.EX_DATAERR,
    errors.NotFound: os.EX_NOINPUT,
    errors.StorageFault: os.EX_IOERR,
    errors.StorageBusy: os.EX_TEMPFAIL,
    errors.Interrupted: 128 + 2,
}


@pytest.mark.parametrize(("error", "code"), CODES.items(), ids=lambda x: getattr(x, "__name__", x))
def test_exit_codes(error: type[errors.LabkitError], code: int) -> None:
    assert error.exit_code == error("why").exit_code == code


def test_what_a_tool_must_not_swallow_has_another_root() -> None:
    for error in (errors.TakenOver, errors.StorageFault, errors.StorageBusy, errors.Interrupted):
        assert not issubclass(error, Exception)
    for error in (errors.LabkitError, errors.PermanentError, errors.NotFound):
        assert issubclass(error, Exception)
    assert issubclass(errors.PermanentError, errors.ToolError)


def test_describe_says_type_and_message() -> None:
    assert errors.describe(ValueError("wrong")) == "ValueError: wrong"
    assert errors.describe(SystemExit(0)) == "SystemExit: 0"
    assert errors.describe(errors.ToolError("said plainly")) == "said plainly"


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_describe_survives_any_exception(error: type[BaseException]) -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise error

    assert errors.describe(Rude()).startswith("Rude: ")


def test_describe_gives_short_utf8() -> None:
    wild = errors.describe(ValueError("\ud800" + "x" * 9000))
    assert len(wild.encode()) < 2100


def test_storage_faults_are_our_own_oserrors() -> None:
    fault = pytest.raises(errors.StorageFault, match="cannot write x: No space left")
    with fault, errors.storage_faults("cannot write x"):
        raise OSError(28, os.strerror(28))
    with pytest.raises(KeyError), errors.storage_faults("cannot write x"):
        raise KeyError


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a full disk needs Linux's /dev/full")
def test_a_copy_of_a_folder_onto_a_full_disk_names_the_cause(tmp_path: Path) -> None:
    """What `copytree` raises has no `strerror`, and a list of all that went wrong."""
    (tmp_path / "from" / "below").mkdir(parents=True)
    (tmp_path / "from" / "below" / "notes.txt").write_text("x", encoding="utf-8")
    (tmp_path / "to" / "below").mkdir(parents=True)
    (tmp_path / "to" / "below" / "notes.txt").symlink_to("/dev/full")
    why = r"cannot fill it: \[Errno 28\] No space left on device; mend the storage, try again"
    with (
        pytest.raises(errors.StorageFault, match=why) as found,
        errors.storage_faults("cannot fill it"),
    ):
        shutil.copytree(tmp_path / "from", tmp_path / "to", dirs_exist_ok=True)
    assert type(found.value.__cause__) is shutil.Error


@pytest.mark.parametrize("error", [OSError("no room"), shutil.Error("no room")])
def test_an_error_without_a_code_is_named_by_its_words(error: OSError) -> None:
    fault = pytest.raises(errors.StorageFault, match="cannot write x: no room; mend the storage")
    with fault, errors.storage_faults("cannot write x"):
        raise error

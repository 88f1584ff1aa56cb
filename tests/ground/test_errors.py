"""One tree, two roots, and the exit code of each leaf."""

import os

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

"""A file of somebody else's is read to its end, or refused at once in one line."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from labkit.chaos.prepared import keep
from labkit.errors import BadInput
from labkit.journal.bounded import LARGEST, LARGEST_LIST, read, read_bytes, read_text


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """A reader that waits is an assertion that fails, and no test that runs out of time."""

    def stop(*_: object) -> None:
        raise AssertionError(f"it had not come back after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def sparse(path: Path, size: int) -> Path:
    with open(path, "wb") as file:
        file.truncate(size)
    return path


def link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


ODD: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a folder": os.mkdir,
    "an endless device": link_to_zeros,
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_what_is_no_regular_file_is_refused_at_once(
    make: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "given"
    make(path)
    what = "it is a folder" if path.is_dir() else "it is no regular file"
    with at_most(5), pytest.raises(BadInput, match=f"given cannot be read: {what}; "):
        read_text(path)
    with at_most(5), pytest.raises(OSError, match=what):
        read(path)


def test_a_fifo_with_a_writer_that_says_nothing_is_refused_too(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "given")
    writer = os.open(tmp_path / "given", os.O_RDWR)
    with at_most(5), pytest.raises(BadInput, match="no regular file"):
        read_bytes(tmp_path / "given")
    os.close(writer)


def test_as_much_as_the_bound_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    path = sparse(tmp_path / "given", LARGEST_LIST)
    assert read_bytes(path, LARGEST_LIST) == bytes(LARGEST_LIST)
    sparse(path, LARGEST_LIST + 1)
    with pytest.raises(BadInput, match="given cannot be read: it has more than 2 MB; move it away"):
        read_bytes(path, LARGEST_LIST)
    assert len(read(path)) == LARGEST_LIST + 1
    with pytest.raises(BadInput, match="more than 64 MB"):
        read_text(sparse(path, LARGEST + 1))


def test_a_file_without_a_size_is_bounded_by_what_comes() -> None:
    maps = Path("/proc/self/maps")
    assert maps.stat().st_size == 0
    assert len(read(maps)) > 100
    with pytest.raises(OSError, match="more than 0 MB"):
        read(maps, 100)


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    for name in ("none", "\0", "\ud800"):
        assert read_text(tmp_path / name) is None
    (tmp_path / "none").symlink_to(tmp_path / "none")
    with pytest.raises(BadInput, match="symbolic links; move it away"):
        read_text(tmp_path / "none")


def test_a_text_is_read_as_python_reads_one(tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_bytes(b"a\r\n\xffb\rc")
    assert read_text(path) == path.read_text(encoding="utf-8", errors="replace") == "a\n\ufffdb\nc"
    with pytest.raises(UnicodeDecodeError):
        read_text(path, errors="strict")


def test_a_setup_with_a_file_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    for name, size in (("small", 10), ("large", LARGEST + 1)):
        (tmp_path / name).mkdir()
        sparse(tmp_path / name / "file", size)
        kept = keep(tmp_path / name, tmp_path / "place", tmp_path / f"copy of {name}")
        assert (kept is None) is (name == "large")

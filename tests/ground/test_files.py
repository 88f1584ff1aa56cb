"""A file appears once and whole, whoever else publishes it; nothing is ever overwritten."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from labkit.errors import PermanentError, StorageFault
from labkit.files import Conflict, publish_once, remove_orphans, sync_folder


def test_the_first_publishes_and_the_second_finds_it(tmp_path: Path) -> None:
    folder = str(tmp_path / "a" / "b")
    assert publish_once(folder, "x.md", b"content") is False
    assert publish_once(folder, "x.md", b"content") is True
    assert (tmp_path / "a/b/x.md").read_bytes() == b"content"
    assert os.listdir(folder) == ["x.md"]


@pytest.mark.parametrize("there", [b"", b"conten", b"content and more", b"CONTENT"])
def test_other_content_is_a_conflict(tmp_path: Path, there: bytes) -> None:
    (tmp_path / "x.md").write_bytes(there)
    with pytest.raises(Conflict, match=r"x\.md.*older task"):
        publish_once(str(tmp_path), "x.md", b"content")
    assert (tmp_path / "x.md").read_bytes() == there
    assert os.listdir(tmp_path) == ["x.md"]
    assert issubclass(Conflict, PermanentError)


def test_the_empty_file_too(tmp_path: Path) -> None:
    assert publish_once(str(tmp_path), "x.md", b"") is False
    assert publish_once(str(tmp_path), "x.md", b"") is True


def test_eight_at_the_same_moment_publish_once(tmp_path: Path) -> None:
    start = Barrier(8)

    def publish(name: str) -> bool:
        start.wait()
        return publish_once(str(tmp_path / name), "x.md", b"same")

    with ThreadPoolExecutor(8) as pool:
        for n in range(20):
            assert sorted(pool.map(publish, [str(n)] * 8)) == [False] + [True] * 7
            assert os.listdir(tmp_path / str(n)) == ["x.md"]


def test_eight_with_eight_contents_and_one_of_them_wins(tmp_path: Path) -> None:
    start = Barrier(8)

    def publish(n: int) -> bool:
        start.wait()
        try:
            return not publish_once(str(tmp_path), "x.md", b"%d" % n)
        except Conflict:
            return False

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(publish, range(8)))
    assert sum(won) == 1
    assert (tmp_path / "x.md").read_bytes() == b"%d" % won.index(True)


def test_a_name_that_is_no_folder_is_a_storage_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageFault, match="file"):
        publish_once(str(tmp_path / "file"), "x.md", b"content")
    with pytest.raises(StorageFault, match="file"):
        publish_once(str(tmp_path / "file" / "below"), "x.md", b"content")


def test_orphans_are_removed_and_nothing_else(tmp_path: Path) -> None:
    """Orphans as a killed process leaves them: it dies between writing and naming."""
    dies = "import os, signal; os.link = lambda *a: signal.raise_signal(signal.SIGKILL)\n"
    for name in ("t-1.md", "t-22.md", "u-1.md"):
        script = f"{dies}from labkit.files import *; publish_once('.', {name!r}, b'x')"
        assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path).returncode == -9
    kept = ["t-1.md", ".t-1.md.tmp", ".t-1.md.0123abcd.tmp~", "x.t-1.md.0123abcd.tmp", ".t-x.tmp"]
    for name in kept:
        (tmp_path / name).write_text("x")
    remove_orphans(str(tmp_path), r"t-[0-9]+\.md")
    left = set(os.listdir(tmp_path)) - set(kept)
    assert len(left) == 1
    assert left.pop().startswith(".u-1.md.")


def test_no_folder_has_no_orphans(tmp_path: Path) -> None:
    remove_orphans(str(tmp_path / "absent"), ".*")
    assert not (tmp_path / "absent").exists()


def test_sync_folder_of_what_is_not_there(tmp_path: Path) -> None:
    sync_folder(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        sync_folder(str(tmp_path / "absent"))

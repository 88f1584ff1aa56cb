"""Power cuts: what a disk can lose, that a recording misses nothing, and agents that lose."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import labkit
from labkit.chaos.disk import (
    DROPPED,
    ROOT,
    ZEROED,
    Bind,
    Cut,
    Disk,
    Event,
    Resize,
    Slot,
    Start,
    Sync,
    Told,
    Write,
    read_cut,
    read_folder,
)
from labkit.chaos.examples.restart import restart
from labkit.chaos.powerloss import (
    GONE,
    NO_FILE,
    Losses,
    lose_power,
    plan_cuts,
    restart_kept,
    try_cuts,
    try_one,
)
from labkit.chaos.recording import Recording, record_files
from labkit.chaos.scenario import Scenario, Workshop
from labkit.chaos.tracing import NEEDS_STRACE
from labkit.errors import NotFound, UsageError
from tests.conftest import new_root
from tests.restart.kit import needs_strace

PACKAGE = Path(labkit.__file__).parent
A, B = 1, 2  # inodes of two files


@pytest.fixture
def root(compiled: Path) -> Iterator[Path]:
    with new_root(compiled) as path:
        yield path


# The disk.


def disk(*events: Event, files: Mapping[str, bytes] | None = None) -> Disk:
    given = dict(enumerate((files or {}).items(), 10))
    names = {name: inode for inode, (name, _) in given.items()}
    return Disk(
        Start({inode: text for inode, (_, text) in given.items()}, {}, {ROOT: names}), events
    )


def create(name: str, inode: int, folder: int = ROOT) -> Bind:
    return Bind((Slot(folder, name, inode),))


def read(made: Disk, at: int, **lost: object) -> dict[str, bytes | None]:
    """The names and contents of an image; of a folder None. `e3="drop"`: event 3."""
    fates = {int(name[1:]) - 1: fate for name, fate in lost.items()}
    image = made.image(Cut(at, fates))  # type: ignore[arg-type]
    files = {name: image.contents[inode] for name, inode in image.files}
    return {**dict.fromkeys(image.folders), **files}


def test_names_and_data_settle_apart() -> None:
    made = disk(create("a", A), Write(A, 0, b"text"))
    assert made.pending(2) == [0, 1]
    assert read(made, 2) == {"a": b"text"}
    assert read(made, 2, e1=DROPPED) == {}
    assert read(made, 2, e2=DROPPED) == {"a": b""}
    assert read(made, 2, e2=ZEROED) == {"a": bytes(4)}


def test_a_sync_of_a_file_settles_its_data_and_not_its_name() -> None:
    made = disk(create("a", A), Write(A, 0, b"text"), Resize(A, 2), Sync(A, 3))
    assert made.pending(3) == [0, 1, 2]
    assert made.pending(4) == [0]


def test_a_sync_of_a_folder_settles_its_names_and_no_others() -> None:
    inner = -3
    made = disk(create("a", A), create("in", inner), create("b", B, inner), Sync(ROOT, 3))
    assert made.pending(4) == [2]
    assert read(made, 4, e3=DROPPED) == {"a": b"", "in": None}


def test_what_began_before_is_settled_and_what_came_during_a_sync_is_not() -> None:
    made = disk(Write(A, 0, b"1"), Write(A, 1, b"2"), Sync(A, 1))
    assert made.pending(3) == [1]


def test_a_synced_write_settles_itself_alone() -> None:
    made = disk(Write(A, 0, b"1"), Write(A, 1, b"2"), Sync(A, 2, 1))
    assert made.pending(2) == [0, 1]
    assert made.pending(3) == [0]


def test_everything_settles_at_sync() -> None:
    made = disk(create("a", A), Write(A, 0, b"1"), Sync(None, 2), Write(A, 1, b"2"))
    assert made.pending(4) == [3]


def test_writes_tear_at_sectors_of_the_file() -> None:
    old, new = b"o" * 1500, b"n" * 1000
    made = disk(Write(10, 100, new), files={"a": old})
    assert read(made, 1, e1=((0, 412),))["a"] == old[:100] + new[:412] + old[512:]
    assert read(made, 1, e1=((412, 924),))["a"] == old[:512] + new[:512] + old[1024:]
    cuts = {tear for case in plan_cuts(recorded(made), 200) for tear in case.cut.lost.values()}
    edges = {edge for tear in cuts if not isinstance(tear, str) for pair in tear for edge in pair}
    assert edges == {0, 412, 924, 1000}


def test_a_dropped_write_leaves_a_hole_before_one_that_was_kept() -> None:
    made = disk(create("a", A), Write(A, 0, b"12"), Write(A, 2, b"34"))
    assert read(made, 3, e2=DROPPED) == {"a": b"\0\0" + b"34"}


def test_a_rename_within_a_folder_is_whole_and_over_two_it_is_not() -> None:
    whole = disk(Bind((Slot(ROOT, "a", None), Slot(ROOT, "b", 10))), files={"a": b"1"})
    assert read(whole, 1) == {"b": b"1"}
    assert read(whole, 1, e1=DROPPED) == {"a": b"1"}
    moved = disk(create("in", -5), create("b", 10, -5), Bind((Slot(ROOT, "a", None),)),
                 files={"a": b"1"})  # fmt: skip
    assert read(moved, 3, e2=DROPPED) == {"in": None}
    assert read(moved, 3, e3=DROPPED) == {"in": None, "in/b": b"1", "a": b"1"}


def test_names_of_one_file_stay_names_of_one_file(tmp_path: Path) -> None:
    made = disk(create("b", 10), files={"a": b"1"})
    made.image(Cut(1, {})).write(tmp_path)
    assert (tmp_path / "a").samefile(tmp_path / "b")
    back = Disk(read_folder(tmp_path), ())
    assert back.image(Cut(0, {})).digest() == made.image(Cut(1, {})).digest()
    (tmp_path / "b").unlink()
    (tmp_path / "b").write_bytes(b"1")
    apart = Disk(read_folder(tmp_path), ())
    assert apart.image(Cut(0, {})).digest() != made.image(Cut(1, {})).digest()


@pytest.mark.parametrize(
    "address",
    [
        "cut 0: all kept",
        "cut 57: drop 3,5; tear 6@512",
        "cut 9: drop 1; zero 2,4; tear 3@512-1024,5@0-24+512-600",
    ],
)
def test_an_address_says_all(address: str) -> None:
    assert read_cut(address).address() == address


@pytest.mark.parametrize("address", ["", "cut 3", "cut 3: drop", "cut x: drop 1", "cut 3: tear 1",
    "cut 3: drop 1@512", "cut 3: lose 1", "pwrite64:17"])  # fmt: skip
def test_other_words_name_no_cut(address: str) -> None:
    with pytest.raises(UsageError, match="names no power cut"):
        read_cut(address)


@pytest.mark.parametrize("lost", [{0: DROPPED}, {2: DROPPED}, {1: ZEROED}, {7: DROPPED}])
def test_only_what_is_pending_can_be_lost(lost: dict[int, str]) -> None:
    made = disk(Write(A, 0, b"1"), create("b", B), Write(B, 0, b"2"), Sync(A, 3), Sync(B, 3))
    with pytest.raises(UsageError, match="cannot be lost"):
        made.check(Cut(5, lost))


def recorded(made: Disk) -> Recording:
    return Recording(made, (), ())


def test_the_extremes_are_all_there_and_each_content_once() -> None:
    made = disk(create("a", A), Write(A, 0, b"text"), create("b", B))
    cases = plan_cuts(recorded(made), 100)
    found = [made.image(case.cut) for case in cases]
    contents = {tuple((name, image.contents[i]) for name, i in image.files) for image in found}
    whole, empty, zero, b = ("a", b"text"), ("a", b""), ("a", bytes(4)), ("b", b"")
    assert contents == {
        (), (b,), (whole,), (empty,), (zero,), (whole, b), (empty, b), (zero, b),
    }  # fmt: skip
    assert len(cases) == len(contents)


def test_a_content_is_tried_where_the_outside_knows_the_most_and_per_witness() -> None:
    made = disk(create("a", A), Told(False, b"done\n"), Told(True, b"effect\n"))
    found = {(case.cut.at, case.told, case.witness, len(case.cut.lost)) for case in
             plan_cuts(recorded(made), 100)}  # fmt: skip
    assert found == {
        (2, ("done",), b"", 0), (2, ("done",), b"", 1),
        (3, ("done",), b"effect\n", 0), (3, ("done",), b"effect\n", 1),
    }  # fmt: skip


def test_a_seed_gives_the_same_plan_and_the_bound_is_kept() -> None:
    events = [event for n in range(6) for event in (create(f"{n}", n + 1), Write(n + 1, 0, b"x"))]
    plans = [plan_cuts(recorded(disk(*events)), 150, seed) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert [len({case.digest for case in plan}) for plan in plans] == [150] * 3


# The recording.

BUSY = """
import os, shutil, subprocess, threading
os.mkdir("in")
fd = os.open("in/a", os.O_RDWR | os.O_CREAT)
twin = os.dup(fd)
os.write(fd, b"0123456789" * 100)
os.lseek(twin, 4, os.SEEK_SET)
os.write(fd, b"four")
os.writev(twin, [b"eight", b"more"])
os.pwrite(fd, b"far", 3000)
os.ftruncate(fd, 2500)
if not os.fork():
    os.write(fd, b"child")
    os.chdir("in")
    os.mkdir("deeper")
    os.rename("a", "deeper/b")
    os._exit(0)
os.wait()
os.write(fd, b"parent")
with open("log", "a") as log:
    thread = threading.Thread(target=lambda: (log.write("thread"), log.flush()))
    thread.start(); thread.join()
    log.write("main")
fd = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_SYNC)
os.lseek(fd, 0, os.SEEK_SET)
os.write(fd, b"end")
os.posix_fallocate(fd, 0, 100)
os.truncate("log", 50)
with open("both", "w+b") as file:
    file.write(b"first line second line")
    file.seek(0)
    file.read(5)
    file.write(b"-LINE")
os.link("log", "log2"); os.symlink("log", "log3"); os.unlink("log")
open("over", "w").write("1"); open("over.new", "w").write("22"); os.replace("over.new", "over")
shutil.copyfile("given", "copy")
a, b = os.open("given", os.O_RDONLY), os.open("copy", os.O_RDWR)
os.copy_file_range(a, b, 3, 4, 10)
open("given", "w").close()
subprocess.run(["sh", "-c", "echo sh >> sh.txt; mkdir d && rmdir d"], check=True)
print("said", flush=True)
open(os.environ["WITNESS"], "a").write("effect\\n")
"""


def program(code: str, root: Path, **more: object) -> Workshop:
    material = {"program.py": code, "given": "was here"}
    run = [sys.executable, "program.py"]
    return Workshop(Scenario(run=run, material=material)._replace(**more), root)  # type: ignore[arg-type]


@needs_strace
def test_a_recording_explains_the_folder_to_the_last_byte(root: Path) -> None:
    recording = record_files(program(BUSY, root))
    assert recording.doubts == ()
    end = len(recording.disk.events)
    told, witness, ended = recording.disk.known(end)
    assert (told, witness, ended) == (("said",), b"effect\n", True)
    image = recording.disk.image(Cut(end, {}))
    files = {name: image.contents[inode] for name, inode in image.files}
    assert files["in/deeper/b"].startswith(b"0123foureightmore")
    assert (files["sh.txt"], files["over"], files["given"]) == (b"sh\n", b"22", b"")
    assert files["copy"] == b"was here" + bytes(2) + b"her"
    assert image.links == (("log3", "log"),)


@needs_strace
@pytest.mark.parametrize(
    ("code", "doubt"),
    [
        ("import mmap, os; f = open('given', 'r+b'); mmap.mmap(f.fileno(), 0)[0] = 65", "mmap"),
        ("import shutil, sys; shutil.copyfile(sys.executable, 'copy')",
         "a copy from outside on copy"),
        ("import os; f = os.open('given', os.O_RDWR); os.read(f, 3); os.write(f, b'x')",
         "the content of given is not explained"),
        ("import os; os.stat('given')", "changed nothing"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_a_doubt_and_unknown(root: Path, code: str, doubt: str) -> None:
    losses = lose_power(program(code, root), 10)
    verdict = losses.report.verdicts[0]
    assert (verdict.outcome, verdict.delivered, losses.report.exit_code) == ("unknown", False, 2)
    assert doubt in verdict.reason


def test_without_strace_it_says_how_to_get_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = program("open('a', 'w').close()", root)
    monkeypatch.setenv("PATH", str(root))
    with pytest.raises(NotFound, match="apt-get install strace"):
        lose_power(workshop)
    assert "strace" in NEEDS_STRACE


# The restart agent, and agents that are broken.


def agent(root: Path, package: Path = PACKAGE.parent) -> Workshop:
    run = [sys.executable, "-m", "labkit.chaos.telling", "run", "t"]
    return Workshop(restart(package)._replace(run=run, max_restarts=2), root)


def require_all_held(losses: Losses, images: int) -> None:
    report = losses.report
    assert report.exit_code == 0, str(report)[:3000]
    assert losses.images >= images
    assert report.delivered == report.planned == report.count("held") >= images
    assert (losses.reasons(GONE), losses.reasons(NO_FILE)) == (0, 0)
    assert losses.asked == losses.went_on + losses.at_the_end == report.planned
    assert losses.runs >= losses.went_on > 0 < losses.at_the_end


@needs_strace
def test_the_agent_keeps_what_it_acknowledged(root: Path) -> None:
    require_all_held(lose_power(agent(root), 30, acknowledged=restart_kept), 30)


@needs_strace
@pytest.mark.proof
@pytest.mark.timeout(600)
def test_the_agent_keeps_what_it_acknowledged_in_1500_images(root: Path) -> None:
    losses = lose_power(agent(root), 1500, acknowledged=restart_kept)
    require_all_held(losses, 1500)
    assert f"0 {GONE}, 0 {NO_FILE}" in str(losses)


BREAKS = {
    "synchronous=OFF": ("database.py", '"FULL", 2)', '"OFF", 0)', GONE),
    "fsync stubbed": ("files.py", "                os.fsync(file.fileno())\n", "", NO_FILE),
    "folder not fsynced": ("files.py", "        sync_folder(folder)  #", "        #", NO_FILE),
    "parent not fsynced": ("files.py", "        sync_folder(parent)\n", "", NO_FILE),
}


@pytest.mark.sampled
@needs_strace
@pytest.mark.parametrize("name", BREAKS)
def test_an_agent_that_does_not_sync_loses(root: Path, name: str) -> None:
    file, old, new, words = BREAKS[name]
    losses = lose_power(broken(root, file, old, new), 40, acknowledged=restart_kept)
    report = losses.report
    bad = [verdict for verdict in report.verdicts if words in verdict.reason]
    assert bad, str(losses)
    assert {verdict.outcome for verdict in bad} == {"broken"}
    assert (report.exit_code, report.delivered) == (1, report.planned)


@pytest.mark.proof
@needs_strace
def test_an_agent_that_writes_its_file_plainly_loses_it(root: Path) -> None:
    old = "            published = _give_name(temporary, final)\n"
    new = "            open(final, 'wb').write(content)\n            published = True\n"
    losses = lose_power(broken(root, "files.py", old, new), 40, acknowledged=restart_kept)
    assert losses.reasons(NO_FILE), str(losses)


@pytest.mark.proof
@needs_strace
def test_a_verdict_can_be_made_again_from_its_address(root: Path) -> None:
    workshop = broken(root, *BREAKS["folder not fsynced"][:3])
    recording = record_files(workshop)
    losses = try_cuts(workshop, recording, plan_cuts(recording, 40), restart_kept)
    bad = next(verdict for verdict in losses.report.verdicts if NO_FILE in verdict.reason)
    assert bad.address in bad.replay
    again = try_one(workshop, bad.address, restart_kept, recording)
    assert again == bad
    kept = Disk(read_folder(root / "image"), ()).image(Cut(0, {})).digest()
    assert kept == recording.disk.image(read_cut(bad.address)).digest()
    afresh = try_one(workshop, bad.address, restart_kept)
    assert (afresh.outcome, afresh.reason) == (bad.outcome, bad.reason)


def broken(root: Path, file: str, old: str, new: str) -> Workshop:
    """The agent of a copy of the package with one change."""
    package = root / "package"
    shutil.copytree(PACKAGE, package / "labkit", ignore=shutil.ignore_patterns("__pycache__"))
    path = package / "labkit" / file
    text = path.read_text("utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), "utf-8")
    return agent(root, package)


# Any program.

SAFE = """
import os
if not os.path.exists("result"):
    with open("new", "w") as file:
        file.write("x" * 2000)
        file.flush()
        os.fsync(file.fileno())
    os.rename("new", "result")
    folder = os.open(".", 0)
    os.fsync(folder)
"""
PLAIN = "open('result', 'w').write('x' * 2000)"


def has_result(folder: Path) -> Iterable[str]:
    size = os.path.getsize(folder / "result") if (folder / "result").exists() else -1
    return [] if size == 2000 else [f"the result has {size} bytes"]


@needs_strace
def test_a_program_that_syncs_what_it_says_is_done_holds(root: Path) -> None:
    losses = lose_power(program(SAFE, root, check=has_result), 20)
    assert losses.report.exit_code == 0, str(losses.report)


@needs_strace
def test_a_program_that_exits_before_its_data_is_safe_has_lost_it(root: Path) -> None:
    losses = lose_power(program(PLAIN, root, check=has_result), 10)
    bad = [verdict for verdict in losses.report.verdicts if verdict.outcome == "broken"]
    assert bad
    assert all(f"{GONE}: the run had exited 0, but" in verdict.reason for verdict in bad)


@needs_strace
def test_an_effect_that_the_witness_saw_is_there_after_the_cut(root: Path) -> None:
    """The mark that the effect is done is not synced, so the effect is repeated."""
    code = """if not __import__("os").path.exists("mark"):
        open(__import__("os").environ["WITNESS"], "a").write("sent\\n")
        open("mark", "w").close()"""
    losses = lose_power(program(code, root), 20)
    assert any("effect sent happened 2 times" in v.reason for v in losses.report.verdicts)


# The kit itself.


def build_all(disk: Disk, cut: Cut, folder: Path) -> None:
    """An injector that does nothing: whatever is to be lost, all is kept."""
    disk.image(Cut(len(disk.events), {})).write(folder)


@needs_strace
def test_an_injector_that_does_nothing_is_seen(root: Path) -> None:
    workshop = program(SAFE, root, check=has_result)
    recording = record_files(workshop)
    losses = try_cuts(workshop, recording, plan_cuts(recording, 30), builder=build_all)
    report = losses.report
    # The one image that loses nothing is as it should be.
    assert report.delivered <= 2 < report.count("unknown")
    assert report.exit_code == 2
    assert "does not hold the image that was planned" in report.verdicts[0].reason


def test_a_check_that_no_module_has_is_refused(root: Path) -> None:
    workshop = program("open('a', 'w').close()", root, check=lambda folder: [])
    with pytest.raises(UsageError, match="function"):
        try_cuts(workshop, recorded(disk(create("a", A))), [])


def raises(folder: Path, told: Sequence[str]) -> Iterable[str]:
    raise RuntimeError("no idea")


@needs_strace
def test_a_check_that_raises_says_nothing(root: Path) -> None:
    losses = lose_power(program(SAFE, root), 3, acknowledged=raises)
    report = losses.report
    assert report.count("unknown") == report.planned
    assert report.exit_code == 2
    assert "no idea" in report.verdicts[0].reason


def test_a_worker_that_dies_leaves_no_verdict_of_its_own(root: Path) -> None:
    workshop = program("open('a', 'w').close()", root)
    made = disk(create("a", A), Write(A, 0, b"1"))
    cases = plan_cuts(recorded(made), 10)
    losses = try_cuts(workshop, recorded(made), cases, acknowledged=dies)
    assert losses.report.count("unknown") == len(cases)
    assert losses.report.delivered == 0
    assert "ended early" in losses.report.verdicts[0].reason


def dies(folder: Path, told: Sequence[str]) -> Iterable[str]:
    os._exit(9)

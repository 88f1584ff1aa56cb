"""A publisher's calls are seen as the system gets them, and its kills are real."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.errors import LabkitError, UsageError
from labkit.files import publish_once
from labkit.lab import ladder, publishing, verbs
from labkit.lab.publishing import NAME, OTHER, REPORT, Ask, Function, Made, attempt, make
from labkit.lab.scenarios import mailbox, publishers, tomorrow


@pytest.fixture(autouse=True)
def _begun(begun: Path) -> None:
    """Every call here makes folders in the run folder of a notebook."""


def call(tmp_path: Path, body: str, **ask: object) -> Made:
    """What a learner's function does whose lines these are."""
    lines = "\n".join(f"    {line}" for line in ["import os", *body.splitlines()])
    source = f"def publish(folder, name, content):\n{lines}\n"
    asked = Ask(tmp_path)._replace(**ask)
    return make(Function("publish", source=source), [asked])[0]


def test_the_calls_of_publish_once_in_their_order() -> None:
    made = attempt(publish_once)
    assert made.calls == ("write", "fsync file", "link", "unlink", "fsync folder")
    assert made.returned
    assert made.find() == f"{NAME}: the report"


@pytest.mark.parametrize("kill_in", ["write", "fsync file", "link", "unlink", "fsync folder"])
def test_a_kill_is_a_sigkill_and_comes_before_that_call(kill_in: str) -> None:
    made = attempt(publish_once, kill_in=kill_in)
    usual = attempt(publish_once).calls
    before = usual[: usual.index(kill_in)]
    assert made.ended == "killed by SIGKILL"
    assert made.calls == (before or ("half a write",))


def test_half_a_write_is_half_of_its_bytes() -> None:
    made = attempt(publishers.in_place, kill_in="write")
    assert made.files == {NAME: REPORT.encode()[: len(REPORT.encode()) // 2].decode()}
    assert made.find() == f"{NAME}: half of the report"


def test_a_call_that_is_not_made_cannot_be_died_in() -> None:
    with pytest.raises(UsageError, match="makes no call 'link'; it makes write"):
        attempt(publishers.in_place, kill_in="link")


def test_a_function_of_the_notebook_is_for_the_check() -> None:
    with pytest.raises(UsageError, match=r"lab\.check judges your own"):
        attempt(lambda folder, name, content: None)


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        ("with open(f'{folder}/x', 'wb') as f: f.write(content)", ("write",)),
        ("with open(f'{folder}/x', 'w') as f: f.write(content.decode())", ("write",)),
        ("with open(f'{folder}/x', 'wb', 0) as f: f.write(content)", ("write",)),
        ("from pathlib import Path\nPath(folder, 'x').write_bytes(content)", ("write",)),
        ("fd = os.open(f'{folder}/x', os.O_CREAT | os.O_RDWR)\nos.write(fd, content)", ("write",)),
        ("import tempfile\nwith tempfile.TemporaryFile() as f: f.write(content)", ("write",)),
        ("import shutil\nos.mkdir(f'{folder}/x')\nshutil.move(f'{folder}/x', f'{folder}/y')",
         ("mkdir", "rename")),
        ("f = open(f'{folder}/x', 'wb')\nf.write(content)\nos.fsync(f)", ("fsync file", "write")),
        ("from os import fsync\nfsync(os.open(folder, os.O_RDONLY))", ("fsync folder",)),
        ("os.mkdir(f'{folder}/x')", ("mkdir",)),
        ("os.mkdir(path=f'{folder}/x')", ("mkdir",)),
        ("os.fsync(fd=os.open(folder, os.O_RDONLY))", ("fsync folder",)),
        ("os.mkdir(f'{folder}/x')\nos.rename(src=f'{folder}/x', dst=f'{folder}/y')",
         ("mkdir", "rename")),
    ],
)  # fmt: skip
def test_calls_are_seen_however_they_are_made(
    body: str, calls: tuple[str, ...], tmp_path: Path
) -> None:
    """A write is what left Python's buffer: without flush() the fsync comes too early."""
    assert call(tmp_path, body).calls == calls


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("body", "ended"),
    [
        ("raise KeyError('é')", "raised KeyError: 'é'"),
        ("open(f'{folder}/none')", "raised FileNotFoundError: No such file or directory: none"),
        ("raise ValueError(f'{folder}/x is bad')", "raised ValueError: x is bad"),
        ("raise SystemExit(0)", "raised SystemExit: 0"),
        ("os._exit(0)", "ended its process with exit 0"),
        ("os.kill(os.getpid(), 15)", "killed by SIGTERM"),
        ("import signal\nsignal.pause()", "had not ended after 2 s"),
        ("print('x' * 100_000)", "returned"),
    ],
)
def test_however_it_ends_it_is_said_in_words(body: str, ended: str, tmp_path: Path) -> None:
    assert call(tmp_path, body).ended == ended


def test_what_raised_is_shown_by_its_line(tmp_path: Path) -> None:
    assert call(tmp_path, "x = 1\nx / 0").line == "line 4: x / 0"


def test_a_function_that_cannot_be_defined_is_said(tmp_path: Path) -> None:
    with pytest.raises(LabkitError, match=r"publish cannot be called: .*SyntaxError"):
        make(Function("publish", source="def publish(:"), [Ask(tmp_path)])


def test_names_may_be_seen_from_an_open_folder(tmp_path: Path) -> None:
    seen_from = (
        "here = os.open(folder, os.O_RDONLY)\n"
        "fd = os.open('.new', os.O_WRONLY | os.O_CREAT, dir_fd=here)\n"
        "os.write(fd, content)\n"
        "os.link('.new', name, src_dir_fd=here, dst_dir_fd=here)\n"
    )
    linked = call(tmp_path, seen_from, plant=OTHER)
    assert linked.find() == f"{NAME}: another task's report"
    event = linked.events[-1]
    assert (event["final"], event["inside"]) == (True, True)
    assert event["inode"] == (tmp_path / ".new").stat().st_ino


def test_another_process_takes_the_name_at_the_last_moment(tmp_path: Path) -> None:
    look_first = (
        "final, new = f'{folder}/{name}', f'{folder}/.new'\n"
        "assert not os.path.exists(final)\n"
        "with open(new, 'wb') as file: file.write(content)\n"
    )
    renamed = call(tmp_path, f"{look_first}os.rename(new, final)", plant=OTHER)
    assert renamed.find() == f"{NAME}: the report"
    (tmp_path / NAME).unlink()
    linked = call(tmp_path, f"{look_first}os.link(new, final)", plant=OTHER)
    assert linked.find() == f"{NAME}: another task's report"
    assert linked.calls == ("write", "link refused")


def test_a_report_is_told_in_words(tmp_path: Path) -> None:
    texts = {
        "": "an empty file",
        REPORT[:9]: "half of the report",
        REPORT * 2: "the report 2 times",
        OTHER: "another task's report",
        OTHER + REPORT: "the report, after another's",
        "x": "something else",
    }
    for text, words in texts.items():
        assert Made("returned", "", (), {"a.md": text}).find() == f"a.md: {words}"
    assert Made("returned", "", (), {".a": REPORT, "a.tmp": REPORT}).find() == "no report"


def test_each_publisher_cures_one_accident() -> None:
    table = ladder.climb()
    assert list((table == "held").sum(axis="columns")) == [1, 1, 2, 3, 4]
    assert list(table.loc["append"]) == ["2 reports", "half a report", "held", "content lost"]
    assert ladder.draw(table).summary.endswith("publish_once 4.")


def test_a_ladder_without_its_kills_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Made, "killed", False)
    with pytest.raises(LabkitError, match="was not killed, so this table would prove nothing"):
        ladder.climb()


def test_without_kills_the_broken_one_looks_sound() -> None:
    """The control of the control: this is what a blunt hook would show."""
    table = ladder.climb(kill=False)
    assert list(table.loc["append"])[:2] == ["held", "held"]


@pytest.mark.parametrize(("with_key", "mails"), [(False, 2), (True, 1)])
def test_the_receiver_decides_by_the_key(with_key: bool, mails: int) -> None:
    assert mailbox.send_twice(with_key=with_key) == {"calls": 2, "mails": mails}


def test_tomorrow_is_a_day_later_and_ends() -> None:
    import datetime
    import time

    now, today = time.time(), datetime.date.today()
    with tomorrow.clock(days=1):
        assert time.time() - now > 86_000
        assert datetime.date.today() - today in (datetime.timedelta(1), datetime.timedelta(2))
        assert datetime.datetime.now().date() > today
        assert time.strftime("%Y-%m-%d") > today.isoformat()
    assert time.time() - now < 80_000
    assert datetime.date.today() - today < datetime.timedelta(1)


def test_calls_side_by_side() -> None:
    table = publishing.calls(publishers.by_link, publish_once)
    assert list(table.publish_once)[-1] == "fsync folder"
    assert list(table.by_link)[-1] == ""


def test_another_report_is_left_in_this_folder(capsys: pytest.CaptureFixture[str]) -> None:
    publishing.leave_another()
    assert (verbs.current_folder().artifacts / NAME).read_text("utf-8") == OTHER
    assert capsys.readouterr().out.startswith(f"artifacts/{NAME} is there")

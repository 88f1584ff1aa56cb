"""The file of answers and verdicts, and `labkit progress`: nothing is lost, whatever is in it."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labkit import cli, lab
from labkit.errors import BadInput, NotFound, StorageBusy, StorageFault
from labkit.lab import content, keeping, places, progress

Q, EX = "05.q1", "02.ex1"
NOT_OURS = [
    "",
    "{}",
    "[]",
    "null",
    '"predictions"',
    '{"name": "another program"}',
    '{"predictions": []}',
    '{"checks": 3}',
    '{"checks": {"02.ex1": ["held"]}}',
    '{"checks": {"02.ex1": null}, "predictions": {}}',
    '{"predictions": {"05.q1": "a"}',
    "[" * 100_000,
    '{"predictions": {}, "n": ' + "9" * 5000 + "}",
    "\udcff\udcfe",  # these become bytes that are no UTF-8
]


def put(home: Path, stored: object) -> Path:
    home.mkdir(exist_ok=True)
    file = home / "progress.json"
    text = stored if isinstance(stored, str) else json.dumps(stored)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    return file


def stored(home: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((home / "progress.json").read_text(encoding="utf-8"))
    return loaded


def other_machine(tmp_path: Path, content: object) -> Path:
    (tmp_path / "other").mkdir(exist_ok=True)
    return put(tmp_path / "other", content)


# Recording.


def test_the_same_answer_run_again_is_no_new_try(home: Path) -> None:
    for answer in ("one", "one", "two", "two"):
        progress.record_check(EX, "broken", answer)
    progress.record_check(EX, "held", "two")  # the world was repaired
    assert progress.checks()[EX]["tries"] == 3


def test_the_answer_that_held_is_kept_beside_a_later_one(home: Path) -> None:
    progress.record_check(EX, "held", "good")
    progress.record_check(EX, "broken", "an experiment")
    assert progress.checks()[EX] == {
        "held": True,
        "tries": 2,
        "verdict": "broken",
        "answer": "an experiment",
        "held_answer": "good",
    }


def test_a_long_answer_is_cut_and_run_again_is_the_same(home: Path) -> None:
    for _ in range(2):
        progress.record_check(EX, "broken", "x" * 10_000)
    assert len(progress.checks()[EX]["answer"]) == progress.ANSWER_MAX
    assert progress.checks()[EX]["tries"] == 1


@pytest.mark.parametrize("tries", ["x", -1, True, 1.5, None, [], 10**12])
@pytest.mark.parametrize("held", [1, "true", None, []])
def test_a_value_of_a_wrong_type_counts_as_none(home: Path, tries: object, held: object) -> None:
    put(home, {"checks": {EX: {"tries": tries, "held": held, "verdict": 5, "answer": {}}}})
    entry = progress.checks()[EX]
    assert entry == {"held": False, "tries": 0, "verdict": "", "answer": "", "held_answer": ""}
    progress.record_check(EX, "broken", "mine")
    assert (progress.checks()[EX]["tries"], progress.checks()[EX]["held"]) == (1, False)


@pytest.mark.parametrize("letter", [3, None, ["a"], {}])
def test_a_prediction_that_is_no_text_counts_as_none(home: Path, letter: object) -> None:
    put(home, {"predictions": {Q: letter, "05.q2": "b"}})
    assert progress.predictions() == {"05.q2": "b"}


def test_what_a_newer_labkit_wrote_is_kept(home: Path) -> None:
    newer = {"badge": [1], "checks": {"77.ex1": {"held": True, "stars": 3}, EX: {"stars": 2}}}
    put(home, newer)
    progress.record_check(EX, "held", "x")
    progress.record_prediction(Q, "a")
    assert stored(home)["badge"] == [1]
    assert stored(home)["checks"]["77.ex1"] == {"held": True, "stars": 3}
    assert stored(home)["checks"][EX]["stars"] == 2


@pytest.mark.parametrize("text", NOT_OURS, ids=lambda text: repr(text[:30]))
def test_a_file_that_is_not_ours_is_refused_and_kept(home: Path, text: str) -> None:
    file = put(home, text)
    before = file.read_bytes()
    for act in (progress.predictions, lambda: progress.record_check(EX, "held", "x")):
        with pytest.raises(BadInput, match="is not a progress file; move it aside"):
            act()
    assert file.read_bytes() == before


def test_a_mark_of_an_editor_in_front_is_read(home: Path) -> None:
    put(home, "\ufeff" + json.dumps({"predictions": {Q: "a"}}))
    assert progress.predictions() == {Q: "a"}


def test_a_huge_file_is_refused_and_a_file_never_grows_beyond_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "BYTES_MAX", 1000)
    progress.record_check(EX, "held", "x" * 300)
    before = stored(home)
    with pytest.raises(BadInput, match="would become too large; nothing was changed"):
        progress.record_check("02.ex2", "held", "x" * 900)
    assert stored(home) == before
    put(home, json.dumps({"predictions": {Q: "a" * 1000}}))
    with pytest.raises(BadInput, match="is not a progress file"):
        progress.predictions()


def test_of_an_endless_file_only_a_part_is_read(home: Path) -> None:
    home.mkdir()
    (home / "progress.json").symlink_to("/dev/zero")
    with pytest.raises(BadInput, match="is not a progress file"):
        progress.predictions()


def test_many_processes_lose_none_of_each_others_tries(home: Path) -> None:
    code = f"""if True:
        import sys
        from labkit.lab import progress
        for n in range(25):
            progress.record_check("{EX}", "broken", sys.argv[1] + str(n))"""
    ran = [subprocess.Popen([sys.executable, "-c", code, name]) for name in "abc"]
    assert [process.wait() for process in ran] == [0] * 3
    assert progress.checks()[EX]["tries"] == 75


def test_another_writer_is_waited_for_and_then_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress.record_prediction(Q, "a")
    monkeypatch.setattr(keeping, "PATIENCE_S", 0.05)
    with open(home / "progress.json.lock") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StorageBusy, match="another process holds"):
            progress.record_prediction(Q, "b")
        assert progress.predictions() == {Q: "a"}  # reading waits for nobody
    progress.record_prediction(Q, "b")


def record_with(home: Path, first: str) -> "subprocess.CompletedProcess[str]":
    code = f"""if True:
        import os, resource, sys
        from pathlib import Path
        from labkit.errors import Fatal
        from labkit.lab import progress
        {first}
        try:
            progress.record_check("{EX}", "held", "x" * 3000)
        except Fatal as error:
            sys.exit(str(error))"""
    argv = [sys.executable, "-c", code]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_a_kill_before_the_new_file_has_its_name_leaves_the_old_one(home: Path) -> None:
    progress.record_prediction(Q, "a")
    ran = record_with(home, "Path.replace = lambda *_: os.kill(os.getpid(), 9)")
    assert ran.returncode == -signal.SIGKILL
    assert stored(home) == {"predictions": {Q: "a"}}
    assert list(home.glob(".*.tmp"))
    progress.record_prediction(Q, "b")
    assert not list(home.glob(".*.tmp"))


def test_on_a_full_disk_the_old_file_stays(home: Path) -> None:
    """A limit on the size of a file: the write fails half-way, as on a full disk."""
    progress.record_prediction(Q, "a")
    ran = record_with(home, "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))")
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert "cannot keep your answer in" in ran.stderr
    assert "File too large" in ran.stderr
    assert sorted(os.listdir(home)) == ["progress.json", "progress.json.lock"]
    assert stored(home) == {"predictions": {Q: "a"}}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_home_is_told_and_can_be_read(home: Path) -> None:
    progress.record_prediction(Q, "a")
    home.chmod(0o555)
    (home / "progress.json.lock").chmod(0o444)
    try:
        with pytest.raises(StorageFault, match=r"cannot keep your answer in .*Permission denied"):
            progress.record_prediction(Q, "b")
        assert progress.predictions() == {Q: "a"}
    finally:
        home.chmod(0o755)


def test_a_home_that_is_a_file_is_told(home: Path) -> None:
    home.write_text("")
    with pytest.raises(StorageFault, match=r"cannot keep your answer in .*File exists"):
        progress.record_prediction(Q, "b")
    with pytest.raises(StorageFault, match=r"cannot read .*Not a directory"):
        progress.predictions()


def test_a_link_to_a_folder_that_is_synchronised_stays_one(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (home / "progress.json").symlink_to(tmp_path / "synchronised.json")
    progress.record_prediction(Q, "a")
    assert (home / "progress.json").is_symlink()
    assert json.loads((tmp_path / "synchronised.json").read_text()) == {"predictions": {Q: "a"}}


@pytest.mark.parametrize(
    ("asked", "found"),
    [("~/lab", "{home}/lab"), ("~", "{home}"), ("a~b", "{cwd}/a~b"), ("rel", "{cwd}/rel")],
)
def test_the_home_may_be_given_with_a_tilde(
    asked: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("LABKIT_HOME", asked)
    monkeypatch.chdir(tmp_path)
    assert str(places.home()) == found.format(home=tmp_path / "me", cwd=tmp_path)


@pytest.mark.parametrize("on_path", [True, False])
@pytest.mark.parametrize("made", [True, False])
def test_a_command_is_named_as_it_can_be_typed(
    on_path: bool, made: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "checkout", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for there, folder in ((on_path, "bin"), (made, ".venv/bin")):
        if there:
            (tmp_path / folder).mkdir(parents=True)
            (tmp_path / folder / "labkit").touch(0o755)
    assert places.command() == (".venv/bin/labkit" if made and not on_path else "labkit")


# The progress of another machine.


def record_here_and_there(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Here 02.ex1 broke twice and 02.ex2 held; there, 02.ex1 held at the third try."""
    progress.record_prediction(Q, "a")
    for answer in ("one", "two"):
        progress.record_check(EX, "broken", answer)
    progress.record_check("02.ex2", "held", "mine")
    with monkeypatch.context() as there:
        there.setenv("LABKIT_HOME", str(tmp_path / "there"))
        progress.record_prediction(Q, "b")
        progress.record_prediction("05.q2", "c")
        for verdict, answer in (("broken", "1"), ("broken", "2"), ("held", "3")):
            progress.record_check(EX, verdict, answer)
        progress.record_check("02.ex2", "broken", "theirs")
    return tmp_path / "there" / "progress.json"


def test_a_merge_keeps_what_held_on_either_and_adds_the_tries(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = record_here_and_there(home, tmp_path, monkeypatch)
    before = there.read_bytes()
    assert progress.merge(there) == progress.Gain(["05.q2"], [EX], [Q])
    assert progress.predictions() == {Q: "a", "05.q2": "c"}
    first, second = progress.checks()[EX], progress.checks()["02.ex2"]
    assert (first["held"], first["tries"], first["held_answer"]) == (True, 5, "3")
    assert (first["verdict"], first["answer"]) == ("broken", "two")  # the last of this machine
    assert (second["held"], second["tries"], second["answer"]) == (True, 2, "mine")
    assert there.read_bytes() == before


def test_a_merge_repeated_adds_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = record_here_and_there(home, tmp_path, monkeypatch)
    progress.merge(there)
    once = stored(home)
    assert progress.merge(there) == progress.Gain([], [], [Q])
    assert stored(home) == once


def test_two_machines_that_merge_each_other_agree(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = record_here_and_there(home, tmp_path, monkeypatch)
    progress.merge(there)
    progress.record_check(EX, "held", "after the merge")
    monkeypatch.setenv("LABKIT_HOME", str(there.parent))
    for _ in range(2):
        progress.merge(home / "progress.json")
    assert progress.checks()[EX]["tries"] == 6
    monkeypatch.setenv("LABKIT_HOME", str(home))
    progress.merge(there)
    assert progress.checks()[EX]["tries"] == 6


def test_an_older_state_of_this_file_adds_nothing(home: Path, tmp_path: Path) -> None:
    progress.record_check(EX, "broken", "one")
    older = other_machine(tmp_path, stored(home))
    progress.record_check(EX, "held", "two")
    now = stored(home)
    for file in (older, home / "progress.json"):
        assert progress.merge(file) == progress.Gain([], [], [])
        assert stored(home) == {"predictions": {}, **now}


def test_a_merge_into_nothing_takes_all(home: Path, tmp_path: Path) -> None:
    theirs = {"predictions": {Q: "a"}, "checks": {EX: {"held": True, "tries": 2}}, "new": 1}
    gain = progress.merge(other_machine(tmp_path, {**theirs, "id": "there"}))
    assert gain == progress.Gain([Q], [EX], [])
    assert progress.checks()[EX]["tries"] == 2
    assert stored(home)["new"] == 1
    assert stored(home)["id"] != "there"  # two files that count, each under its own id


CONFUSED: list[dict[str, Any]] = [
    {"id": ["x"], "checks": {EX: {"tries": 2}}},
    {"id": 7, "checks": {EX: {"tries": "x", "held": 1, "tries_elsewhere": ["a"]}}},
    {"id": "there", "checks": {EX: {"tries_elsewhere": {"a": "b", "c": -1, "d": True}}}},
    {"predictions": {Q: ["a"], "05.q2": None}},
]


@pytest.mark.parametrize("there", CONFUSED, ids=repr)
@pytest.mark.parametrize("here", CONFUSED, ids=repr)
def test_confused_values_are_merged_harmlessly(
    here: dict[str, Any], there: dict[str, Any], home: Path, tmp_path: Path
) -> None:
    put(home, here)
    progress.merge(other_machine(tmp_path, there))
    once = stored(home)
    progress.merge(other_machine(tmp_path, there))
    assert stored(home) == once
    assert not progress.checks().get(EX, {}).get("held")
    assert progress.predictions() == {}
    progress.record_check(EX, "held", "x")
    progress.record_prediction(Q, "a")


def test_a_merge_mends_a_prediction_that_is_no_text(home: Path, tmp_path: Path) -> None:
    put(home, {"predictions": {Q: 5}})
    progress.merge(other_machine(tmp_path, {"predictions": {Q: "b"}}))
    assert progress.predictions() == {Q: "b"}


@pytest.mark.parametrize("text", NOT_OURS, ids=lambda text: repr(text[:30]))
def test_neither_of_two_files_is_changed_when_one_is_bad(
    home: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"predictions": {Q: "a"}}
    for here, there in ((good, text), (text, good)):
        mine, other = put(home, here), other_machine(tmp_path, there)
        before = mine.read_bytes(), other.read_bytes()
        assert cli.main(["progress", "--merge", str(other)]) == 65
        said = capsys.readouterr()
        assert said.err.count("\n") == 1
        assert str(mine if here == text else other) in said.err
        assert (mine.read_bytes(), other.read_bytes()) == before


def test_a_missing_file_or_a_folder_cannot_be_merged(home: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        progress.merge(tmp_path / "nothing.json")
    with pytest.raises(BadInput, match="is not a progress file: it is a folder"):
        progress.merge(tmp_path)
    assert not home.exists()


# labkit progress


def show(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    capsys.readouterr()
    assert cli.main(["progress", *argv]) == 0
    return capsys.readouterr().out


def hold_all(number: str) -> None:
    for exercise in content.exercises(number):
        progress.record_check(exercise.id, "held", "x")
    for question in content.questions(number):
        progress.record_prediction(question.id, question.answer)


def test_the_table_before_anything_is_recorded(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = show(capsys)
    for entry in content.lessons():
        asked, exercises = len(content.questions(entry.number)), content.exercises(entry.number)
        [line] = [line for line in said.splitlines() if line.startswith(f"{entry.number}  ")]
        assert entry.title in line
        assert f" {entry.minutes} " in line
        assert f"0 of {asked}" in line or not asked
        assert f"0 of {len(exercises)}" in line or not exercises
        for exercise in exercises:
            assert f"  {exercise.id}  {exercise.asks.split()[0]} " in said
    assert f"{sum(entry.minutes for entry in content.lessons())} " in said
    assert f"Next: {content.lessons()[0].number}, " in said
    assert said.splitlines()[-1] == (
        f"Nothing is recorded yet; it will be kept in {home}/progress.json"
    )
    assert max(map(len, said.splitlines()[:-1])) <= 80
    assert not home.exists()


def test_what_is_held_and_answered_counts(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, *_ = content.lessons()
    hold_all(first.number)
    [wrong, *_] = content.exercises("02")
    progress.record_check(wrong.id, "broken", "x")
    progress.record_check(wrong.id, "not judged", "y")
    said = show(capsys)
    asked, every = len(content.questions(first.number)), len(content.exercises(first.number))
    [line] = [line for line in said.splitlines() if line.startswith(f"{first.number}  ")]
    assert f" {asked} of {asked} " in line
    assert line.endswith(f"{every} of {every}" if every else "-")
    assert "(2 tries, the last not judged)" in " ".join(said.split())
    assert f"\nNext: {second.number}, {second.title} ({second.minutes} min); " in said
    assert f"This is kept in {home}/progress.json\n" in said
    assert f"{places.command()} progress --merge FILE takes it in there." in said


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"tries": "x", "verdict": "broken"}, " killed after its call.\n"),
        ({"tries": 2, "verdict": 5}, "call. (2 tries)\n"),
        ({"tries": 1, "verdict": "broken"}, "call. (1 try, the last broken)\n"),
    ],
)
def test_tries_are_told_as_far_as_they_are_known(
    entry: dict[str, object], words: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(home, {"checks": {EX: entry}})
    asks = " ".join(show(capsys).split("  02.ex1  ")[1].split("  02.ex2  ")[0].split())
    assert asks.endswith(words.strip())


def test_with_every_exercise_held_nothing_is_next(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for entry in content.lessons():
        hold_all(entry.number)
    said = show(capsys)
    assert "Every exercise is held." in said
    assert "Not held yet" not in said
    assert "Next" not in said


def test_a_letter_that_is_no_option_is_no_answer(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(home, {"predictions": {Q: "z"}})
    assert f" 0 of {len(content.questions('05'))} " in show(capsys)
    assert json.loads(show(capsys, "--json"))["totals"]["answered"] == 0


def test_unknown_ids_are_kept_and_shown_as_such(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(home, {"predictions": {"77.q1": "b"}, "checks": {"77.ex1": {"held": True}}})
    assert "Kept, unknown to this labkit: 77.ex1, 77.q1\n" in show(capsys)
    told = json.loads(show(capsys, "--json"))["unknown"]
    assert told["predictions"] == {"77.q1": "b"}
    assert told["checks"]["77.ex1"]["held"] is True
    put(home, {"predictions": {f"77.q{n}": "b" for n in range(200)}})
    assert "and 188 more" in show(capsys)


EVIL = "evil\x1b[31m\u202e\n\x00\u200f\ud800\x9b2J"


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_text_that_a_terminal_would_obey_is_only_text(
    option: tuple[str, ...], home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"verdict": EVIL, "answer": EVIL, "held_answer": EVIL, "tries": 1}
    evil = {"predictions": {EVIL: EVIL, Q: EVIL}, "checks": {EVIL: entry, EX: entry}}
    put(home, evil)
    said = show(capsys, *option)
    assert all(line.isprintable() for line in said.splitlines())
    assert "evil" in said
    (home / "progress.json").unlink()
    evil["checks"][EVIL]["held"] = True
    said = show(capsys, "--merge", str(other_machine(tmp_path, evil)))
    assert all(line.isprintable() for line in said.splitlines())
    assert said.count("evil") == 2


def test_the_form_for_programs_names_no_machine(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    progress.record_prediction(Q, "a")
    progress.record_check(EX, "held", "def f(): ...")
    text = show(capsys, "--json")
    told = json.loads(text)
    assert str(home) not in text
    by_number = {entry["number"]: entry for entry in told["notebooks"]}
    assert list(by_number) == [entry.number for entry in content.lessons()]
    assert by_number["05"]["predictions"][Q] == "a"
    assert by_number["05"]["predictions"]["05.q2"] is None
    assert by_number["02"]["exercises"][EX] == {
        **progress.checks()[EX],
        "asks": content.exercise(EX).asks,
    }
    assert told["totals"] == {
        "minutes": sum(entry.minutes for entry in content.lessons()),
        "answered": 1,
        "asked": sum(len(content.questions(entry.number)) for entry in content.lessons()),
        "held": 1,
        "exercises": len(content.exercises()),
    }
    assert told["next"] == content.lessons()[0].number


def test_a_merge_says_what_it_took(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = record_here_and_there(home, tmp_path, monkeypatch)
    assert show(capsys, "--merge", str(there)).splitlines() == [
        "Predictions taken in: 05.q2",
        f"Held from now on: {EX}",
        f"Predictions that differ, where yours here stays: {Q}",
        f"It is all in {home}/progress.json",
    ]
    again = show(capsys, "--merge", str(there)).splitlines()
    assert again[0] == "No prediction and no held exercise in it is new here."


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--merge"], 64, "--merge needs the progress file of the other machine"),
        (["--merge", "nothing.json"], 66, "there is no file nothing.json"),
        (["05"], 64, "use --json, --merge FILE or nothing, not '05'"),
        (["--json", "--merge", "x"], 64, "use --json, --merge FILE or nothing"),
    ],
)
def test_a_wrong_word_is_one_line(
    argv: list[str], code: int, words: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["progress", *argv]) == code
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert not said.out
    assert not home.exists()


def test_a_bad_file_is_one_line_and_65(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = put(home, "{")
    for option in ([], ["--json"]):
        assert cli.main(["progress", *option]) == 65
        assert capsys.readouterr().err == (
            f"labkit progress: {file} is not a progress file; move it aside and go on\n"
        )
    assert file.read_text() == "{"


def test_help_shows_the_forms(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "labkit progress --merge FILE" in show(capsys, "--help")


def test_a_home_that_is_relative_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABKIT_HOME", "mine")
    lab.begin("05")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    lab.predict("05.q1", "a")
    lab.end()
    assert (tmp_path / "mine" / "progress.json").exists()
    assert not any((tmp_path / "elsewhere").iterdir())

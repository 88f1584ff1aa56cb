"""Predict, then compare: recorded outside the notebook, compared with what was observed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from labkit import lab
from labkit.errors import BadInput, NotFound, StorageFault, UsageError
from labkit.lab import content, progress


def test_an_answer_is_recorded_and_laid_beside_what_was_observed(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.predict("05.q1", "c")
    assert capsys.readouterr().out == "05.q1: you predict c, 3 of 9.\n"
    assert json.loads((begun / "progress.json").read_text()) == {"predictions": {"05.q1": "c"}}
    lab.reveal("05.q1", "1 of 9")
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["05.q1  predicted  c  3 of 9", "       observed   b  1 of 9"]
    assert " ".join(said[2:]) == content.question("05.q1").why.strip().replace("\n", " ")
    assert max(map(len, said)) <= 80


@pytest.mark.parametrize("letter", ["?", "", "e", "1 of 9"])
def test_without_an_answer_the_notebook_goes_on_and_records_nothing(
    letter: str, begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.predict("05.q1", letter)
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert "Put a, b, c, d for" in said
    assert ("no option" in said) == (letter != "?")
    lab.reveal("05.q1", "1 of 9")
    assert "predicted  no answer" in capsys.readouterr().out
    assert not (begun / "progress.json").exists()


def test_going_on_without_an_answer_keeps_an_earlier_one(begun: Path) -> None:
    lab.predict("05.q1", "a")
    lab.begin("05")
    lab.predict("05.q1", "?")
    assert progress.predictions() == {"05.q1": "a"}


def test_a_later_answer_replaces_the_earlier_and_keeps_the_others(begun: Path) -> None:
    lab.predict("05.q1", "a")
    lab.predict("05.q2", "c")
    lab.predict("05.q1", "b")
    assert progress.predictions() == {"05.q1": "b", "05.q2": "c"}
    assert sorted(path.name for path in begun.iterdir() if path.is_file()) == [
        "progress.json",
        "progress.json.lock",
    ]


def test_the_end_counts_the_answers(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab.predict("05.q1", "a")
    lab.predict("05.q2", "?")
    capsys.readouterr()
    lab.end()
    assert "Predictions: 1 of 2 answered before the reveal.\n" in capsys.readouterr().out


def test_an_answer_after_the_reveal_is_told_and_not_counted(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.predict("05.q1", "?")
    lab.predict("05.q2", "a")
    lab.reveal("05.q1", "1 of 9")
    lab.reveal("05.q2", "after_commit")
    lab.predict("05.q1", "b")
    lab.predict("05.q2", "c")
    capsys.readouterr()
    lab.reveal("05.q1", "1 of 9")
    lab.reveal("05.q2", "after_commit")
    said = capsys.readouterr().out
    assert "05.q1  predicted  no answer\n       b  1 of 9  (answered after the reveal)\n" in said
    assert "05.q2  predicted  a  before_effect\n       c  after_commit  (answered after" in said
    lab.end()
    assert "Predictions: 1 of 2 answered before the reveal." in capsys.readouterr().out
    assert progress.predictions() == {"05.q2": "a"}


def test_a_prediction_that_is_run_again_stays_one(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        lab.predict("05.q1", "b")
        lab.reveal("05.q1", "1 of 9")
    assert "after the reveal" not in capsys.readouterr().out


def test_reveal_comes_after_predict(begun: Path) -> None:
    with pytest.raises(lab.NotReady, match=r'run the cell with lab\.predict\("05\.q1"'):
        lab.reveal("05.q1", "1 of 9")


def test_nothing_is_revealed_before_it_was_seen(begun: Path) -> None:
    lab.predict("05.q1", "b")
    with pytest.raises(lab.NotReady, match="run the cells between the prediction and this one"):
        lab.reveal("05.q1")


def test_an_observation_that_denies_the_answer_is_not_hidden(begun: Path) -> None:
    lab.predict("05.q1", "?")
    with pytest.raises(lab.NotReady, match="expects '1 of 9' and this run shows '2 of 9'"):
        lab.reveal("05.q1", "2 of 9")


@pytest.mark.parametrize("letter", ["B", " b", "b\n"])
def test_a_letter_is_read_as_a_person_reads_it(letter: str, begun: Path) -> None:
    lab.predict("05.q1", letter)
    assert progress.predictions() == {"05.q1": "b"}


def test_a_question_belongs_to_its_notebook(begun: Path) -> None:
    with pytest.raises(UsageError, match="asked in another notebook"):
        lab.predict("01.q1", "a")
    with pytest.raises(NotFound, match=r"no question '05\.q9'; choose one of 00\.q1"):
        lab.predict("05.q9", "a")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"predictions": 3}', "[" * 100_000])
def test_a_file_that_is_not_ours_is_refused_and_kept(text: str, begun: Path) -> None:
    path = begun / "progress.json"
    path.write_text(text)
    with pytest.raises(BadInput, match="is not a progress file"):
        lab.predict("05.q1", "a")
    assert path.read_text() == text


def test_a_place_that_cannot_keep_an_answer_is_told(begun: Path) -> None:
    (begun / "progress.json").mkdir()
    with pytest.raises(BadInput, match=r"progress\.json is not a progress file: it is a folder"):
        lab.predict("05.q1", "a")


def test_a_home_that_is_no_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "file"))
    with pytest.raises(StorageFault, match=r"cannot make a folder in .*: Not a directory"):
        lab.begin("05")


def test_two_notebooks_lose_none_of_each_others_answers(home: Path) -> None:
    code = """if True:
        import sys
        from labkit.lab import progress
        for number in range(40):
            progress.record_prediction(f"{sys.argv[1]}.{number}", "a")"""
    argv = [sys.executable, "-c", code]
    writers = [subprocess.Popen([*argv, name]) for name in ("00", "01")]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert len(progress.predictions()) == 80


def test_every_answer_is_an_option_and_has_a_reason() -> None:
    for entry in content.lessons():
        assert content.questions(entry.number)
        for question in content.questions(entry.number):
            assert question.answer in question.options
            assert len(set(question.options.values())) == len(question.options)
            assert question.why.strip()


def test_an_unknown_notebook_names_the_known_ones(home: Path) -> None:
    with pytest.raises(NotFound, match="no notebook '99'; choose one of 00, 01, 02, 03, 04, 05"):
        lab.begin("99")

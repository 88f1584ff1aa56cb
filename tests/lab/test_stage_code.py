"""The code that a stage shows does again what was done."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from labkit import lab
from labkit.lab import regenerate, verbs
from labkit.lab.grid import NOW
from labkit.lab.stage import NOWHERE, Stage
from tests.lab.acting import JOURNAL, at_work, done, notebook_20, started

__all__ = ["notebook_20"]  # a fixture

pytestmark = pytest.mark.usefixtures("notebook_20")


def acted(agent: str, *, by_hand: bool) -> Stage:
    """A demo: killed, resumed, and answered where it waits."""
    if by_hand:
        stage = at_work(agent)
        stage.kill()
    else:
        stage = started(agent, "after_effect:2" if agent == "restart" else "boundary:7")
        done(stage)
    stage.resume()
    done(stage)
    if agent == "durable":
        stage.answer("retry")
    return stage


DEMOS = pytest.mark.parametrize(
    ("agent", "by_hand"),
    [
        pytest.param("restart", True, id="restart-by-hand"),
        pytest.param("restart", False, id="restart", marks=pytest.mark.proof),
        pytest.param("durable", True, id="durable-by-hand", marks=pytest.mark.proof),
        pytest.param("durable", False, id="durable", marks=pytest.mark.proof),
    ],
)


def in_fresh_python(code: str, home: Path) -> tuple[list[list[Any]], int]:
    """The journal that this code leaves, and how many effects; in a home of its own."""
    show = f"""
import json
from labkit.lab import evidence, runs, verbs
folder = verbs.current_folder()
rows = lab.journal().sql({JOURNAL!r})
effects = len(runs.messages(folder)) or len(evidence.find_reports(folder))
print("FOUND" + json.dumps([json.loads(rows.to_json(orient="values")), effects]))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code + show],
        env={**os.environ, "LABKIT_HOME": str(home)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows, effects = json.loads(ran.stdout.rpartition("FOUND")[2])
    return rows, effects


def here(stage: Stage) -> tuple[list[list[Any]], int]:
    rows = json.loads(lab.journal().sql(JOURNAL).to_json(orient="values"))
    return rows, len(stage.artifacts())


@DEMOS
def test_the_code_does_it_again(agent: str, by_hand: bool, tmp_path: Path) -> None:
    stage = acted(agent, by_hand=by_hand)
    assert in_fresh_python(stage.code, tmp_path / "another") == here(stage)


def test_code_that_does_not_wait_before_its_kill_leaves_another_journal(tmp_path: Path) -> None:
    """The control of the comparison."""
    stage = acted("restart", by_hand=True)
    lines = stage.code.splitlines()
    hasty = "\n".join(line for line in lines if not line.startswith("lab.wait_for"))
    assert len(hasty.splitlines()) == len(lines) - 1
    assert in_fresh_python(hasty, tmp_path / "another") != here(stage)


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_code_is_a_cell_of_a_fresh_notebook(tmp_path: Path) -> None:
    stage = acted("durable", by_hand=True)
    notebook = nbformat.v4.new_notebook()
    shown = f"print(lab.journal().sql({JOURNAL!r}).to_csv())"
    notebook.cells = [nbformat.v4.new_code_cell(text) for text in (stage.code, shown, "lab.end()")]
    regenerate.execute(notebook, tmp_path)
    assert notebook.cells[1].outputs[0].text == lab.journal().sql(JOURNAL).to_csv() + "\n"


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name",
    [
        'it\'s "the" plan <b>.json', "\N{BUG} \\ plan.json", "\u202e\x07.json", "-x.json",
        "--help.json", "--db=x.json", "~root.json", "~.json", ".json", "a\nb.json", "#a $HOME.json",
        "\udcff.json", "{plan}.json",
    ],
)  # fmt: skip
def test_a_plan_may_have_any_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = verbs.current_folder().path
    (folder / "plan.json").rename(folder / name)
    stage = started("restart", NOWHERE, plan=name)
    assert done(stage) == "exit 0: done"
    line = stage.acts[0].code
    assert compile(line, "cell", "eval")
    called: list[str] = []
    eval(line, {"lab": type("Lab", (), {"run": called.append})})
    lab.fresh("again")
    (verbs.current_folder().path / "plan.json").rename(verbs.current_folder().path / name)
    capsys.readouterr()
    assert lab.run(called[0]).code == 0
    if "\n" not in name and "\udcff" not in name:  # what a terminal shows is what it takes
        _, *words = shlex.split(capsys.readouterr().out.splitlines()[0])
        assert words[-1].removeprefix("./") == name


def test_an_end_that_nobody_looked_at_is_in_the_code_all_the_same() -> None:
    stage = started("restart", "after_commit:0")
    assert stage.process is not None
    stage.process.finish()
    stage.resume()
    assert [act.act for act in stage.acts] == ["create", "run", "finish", "resume"]
    stage.process.finish()
    assert stage.code.endswith('lab.start("agent run notes")\nprocess.finish()')


def test_an_answer_comes_after_the_end_of_what_it_answers() -> None:
    stage = started("durable", "boundary:7")
    assert stage.process is not None
    stage.process.finish()
    stage.resume()
    stage.process.finish()
    stage.answer("confirm")
    acts = [act.act for act in stage.acts]
    assert acts == ["create", "run", "finish", "resume", "finish", "answer"]


def test_a_second_create_while_at_work_hides_no_end() -> None:
    stage = at_work("restart")
    stage.create()
    stage.close()
    assert done(stage) == "killed by SIGKILL"
    assert [act.act for act in stage.acts] == ["create", "run", "create", "finish"]


def test_a_plan_of_ones_own_is_not_in_a_fresh_folder() -> None:
    folder = verbs.current_folder().path
    shutil.copy(folder / "plan.json", folder / "zz-mine.json")
    stage = Stage("restart", "zz-mine.json")
    stage.create()
    assert "It has no plan zz-mine.json." in stage.reset().said
    assert stage.plan in stage.plans
    assert stage.create().code == f'lab.run("agent create notes {stage.plan}")'


def test_the_code_of_a_kill_from_elsewhere_kills_at_the_same_event() -> None:
    stage = Stage("restart")
    stage.create()
    stage.run(NOW)
    assert stage.process
    stage.process.wait_for("step_started", 0)
    os.killpg(stage.process._guarded.pid, signal.SIGKILL)
    stage.process.finish()
    assert 'lab.wait_for(process, "step_started", 0)\nlab.kill(process)' in stage.code


def test_a_reset_begins_the_code_afresh() -> None:
    stage = acted("restart", by_hand=False)
    assert stage.reset().code == 'lab.fresh("stage")'
    assert stage.code == 'from labkit import lab\n\nlab.begin("20")'


def test_code_over_an_older_journal_says_so() -> None:
    lab.run("agent create notes plan.json")
    assert "held a journal before these acts" in Stage("restart").code
    lab.fresh("new")
    assert "held a journal" not in Stage("restart").code

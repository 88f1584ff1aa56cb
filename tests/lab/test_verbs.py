"""The verbs, against real processes: what they print and refuse, and that nothing is left."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labkit import guard, lab
from labkit.errors import NotFound, UsageError
from labkit.lab import verbs
from labkit.lab.folder import SETTINGS
from labkit.lab.process import EXIT_WORDS, exit_in_words
from tests.lab.panels.staging import another_program


def alive_in_folder(home: Path) -> list[str]:
    """The processes of this machine that work in the run folder, whoever started them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            cwd = os.readlink(entry / "cwd")
        except OSError:
            continue
        if cwd.startswith(str(home)):
            found.append(entry.name)
    return found


def create() -> None:
    assert lab.run("agent create notes plan.json").code == 0


def test_begin_makes_a_new_folder_each_time_and_prints_the_same(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.begin("05")
    first, said = verbs.current_folder().path, capsys.readouterr().out
    lab.begin("05")
    assert verbs.current_folder().path != first
    assert first.is_dir()
    assert capsys.readouterr().out == said
    assert "A fresh folder, runs/05/latest/first, holds plan.json and input/notes.txt." in said
    assert (home / "runs/05/latest/first").samefile(verbs.current_folder().path)
    assert lab.files() == ["input/notes.txt", "plan.json"]
    lab.end()


NEED_A_NOTEBOOK: dict[str, Callable[[], object]] = {
    "end": lab.end,
    "ps": lab.ps,
    "journal": lab.journal,
    "timeline": lab.timeline,
    "reports": lab.reports,
    "witness": lab.witness,
    "files": lab.files,
    "fresh": lambda: lab.fresh("x"),
    "run": lambda: lab.run("agent status notes"),
    "start": lambda: lab.start("agent run notes"),
    "trial": lambda: lab.trial("before_effect:0"),
    "show_file": lambda: lab.show_file("plan.json"),
    "predict": lambda: lab.predict("05.q1", "?"),
    "reveal": lambda: lab.reveal("05.q1"),
}


@pytest.mark.parametrize("verb", NEED_A_NOTEBOOK)
def test_every_verb_names_the_cell_to_run_first(verb: str, home: Path) -> None:
    with pytest.raises(lab.NotReady, match=r"run the first cell: lab\.begin"):
        NEED_A_NOTEBOOK[verb]()


def test_a_run_prints_the_command_and_its_output_and_shows_its_end(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = lab.run("agent create notes plan.json")
    assert repr(result) == "exit 0: done"
    said = capsys.readouterr().out
    assert said.startswith("$ labkit agent create notes plan.json\n")
    assert said == f"$ labkit agent create notes plan.json\n{result.output}"
    assert result.output


def test_a_crash_point_ends_the_process_by_sigkill(begun: Path) -> None:
    create()
    result = lab.run("agent run notes", AGENT_CRASH_AT="after_commit:0")
    assert (result.killed, repr(result)) == (True, "killed by SIGKILL")


def test_a_waiting_agent_is_seen_in_the_journal_then_killed(begun: Path) -> None:
    create()
    process = lab.start("agent run notes", AGENT_STEP_DELAY="600")
    lab.wait_for(process, "step_started", step_idx=0)
    assert lab.ps().state.tolist() == ["exit 0: done", "running"]
    assert alive_in_folder(begun)
    assert lab.kill(process).killed
    assert lab.ps().state.tolist() == ["exit 0: done", "killed by SIGKILL"]
    assert alive_in_folder(begun) == []
    kinds = lab.journal().sql("SELECT kind FROM journal ORDER BY seq").kind.tolist()
    assert kinds == ["task_created", "run_started", "step_started"]


def test_kill_refuses_a_process_that_has_ended(begun: Path) -> None:
    process = lab.start("agent create notes plan.json")
    process.finish()
    with pytest.raises(lab.NotReady, match="has ended already"):
        lab.kill(process)


def test_kill_names_the_process_that_is_still_running(begun: Path) -> None:
    """The name `agent` was given to a second start, which the task's lock refused."""
    create()
    first = lab.start("agent run notes", AGENT_STEP_DELAY=600)
    lab.wait_for(first, "step_started", step_idx=0)
    agent = lab.start("agent run notes")
    assert agent.finish().code == 3
    with pytest.raises(lab.NotReady, match=r"process 2 \(.*run notes\) is still running.*lab\.ps"):
        lab.kill(agent)
    assert lab.kill(first).killed


@pytest.mark.parametrize("verb", [lab.kill, lambda it: lab.wait_for(it, "task_done")])
def test_a_verb_of_a_process_refuses_what_is_none(
    verb: Callable[[object], object], begun: Path
) -> None:
    with pytest.raises(UsageError, match=r"give what lab\.start returned"):
        verb("agent")


def test_no_descriptor_is_left_of_processes_that_have_ended(begun: Path) -> None:
    create()
    before = len(os.listdir("/proc/self/fd" if Path("/proc").exists() else "/dev/fd"))
    for number in range(4):
        lab.trial(None if number % 2 else "after_effect:1")
    for _ in range(2):
        lab.run("naive --help")
        lab.kill(lab.start("agent run notes", AGENT_STEP_DELAY=600))
    assert len(os.listdir("/proc/self/fd" if Path("/proc").exists() else "/dev/fd")) == before


def test_an_interrupt_while_a_process_starts_ends_it(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when the process is there and in no list yet."""
    real = guard.start

    def interrupted(*args: Any, **more: Any) -> guard.Guarded:
        started = real(*args, **more)
        os.kill(os.getpid(), signal.SIGINT)
        return started

    create()
    monkeypatch.setattr(guard, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lab.start("agent run notes", AGENT_STEP_DELAY=600)
    assert lab.ps().state.tolist() == ["exit 0: done", "killed by SIGKILL"]
    assert alive_in_folder(begun) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_end_comes_also_while_the_database_is_locked(begun: Path) -> None:
    """By a cell of the learner's own: what the journal says last can then not be asked."""
    create()
    with another_program(verbs.current_folder().database) as other:
        other.execute("BEGIN EXCLUSIVE")
        lab.start("agent run notes", AGENT_STEP_DELAY=600)
        lab.end()
    assert alive_in_folder(begun) == []


def test_what_an_agent_did_not_publish_is_no_report(begun: Path) -> None:
    artifacts = verbs.current_folder().artifacts
    (artifacts / "a folder.md").mkdir(parents=True)
    (artifacts / "loose.md").symlink_to("nowhere")
    (artifacts / "odd.md").write_bytes(b"\xff")
    assert lab.reports().file.tolist() == ["odd.md"]


def test_text_of_a_journal_is_never_mathematics(begun: Path) -> None:
    create()
    shown = [lab.ps(), lab.journal().laws(), lab.journal().sql("SELECT '$x$' AS costs")]
    assert all("tex2jax_ignore" in table._repr_html_() for table in shown)


def test_a_database_is_no_text(begun: Path) -> None:
    create()
    with pytest.raises(UsageError, match="no text"):
        lab.show_file("state.db")


def test_waiting_for_what_never_happens_is_refused_at_once(begun: Path) -> None:
    create()
    process = lab.start("agent run notes", AGENT_STEP_DELAY=600)
    with pytest.raises(UsageError, match=r"no event is called 'step_start'; use one of .*started"):
        lab.wait_for(process, "step_start")


def test_waiting_ends_when_the_process_ends_without_the_event(begun: Path) -> None:
    create()
    process = lab.start("agent run notes")
    with pytest.raises(lab.NotReady, match=r"ended \(exit 0: done\) before .* task_failed"):
        lab.wait_for(process, "task_failed")


def test_waiting_looks_only_at_what_this_process_wrote(begun: Path) -> None:
    create()
    lab.run("agent run notes", AGENT_CRASH_AT="after_effect:0")
    process = lab.start("agent run nobody")
    with pytest.raises(lab.NotReady, match="exit 1: unknown task"):
        lab.wait_for(process, "step_started", step_idx=0)


def test_waiting_has_a_limit_and_says_what_to_do(begun: Path) -> None:
    create()
    process = lab.start("agent run notes", AGENT_STEP_DELAY="600")
    with pytest.raises(lab.NotReady, match=r"no task_done in the journal after 0 s.*lab\.kill"):
        lab.wait_for(process, "task_done", timeout_s=0)


def test_a_run_that_does_not_end_is_killed(begun: Path) -> None:
    create()
    process = lab.start("agent run notes", AGENT_STEP_DELAY="600")
    with pytest.raises(lab.NotReady, match="was killed"):
        process.finish(timeout_s=0)
    assert alive_in_folder(begun) == []


def test_end_kills_what_still_runs_and_says_so(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create()
    lab.start("agent run notes", AGENT_STEP_DELAY="600")
    capsys.readouterr()
    lab.end()
    said = capsys.readouterr().out.splitlines()
    assert said[0] == (
        "Ended process 2 (AGENT_STEP_DELAY=600 labkit agent run notes), which was still running."
    )
    assert said[1] == "Nothing is left running."
    assert alive_in_folder(begun) == []


def test_what_the_agent_says_of_a_spoiled_database_is_shown(begun: Path) -> None:
    create()
    verbs.current_folder().database.write_bytes(b"not a database, on purpose" * 100)
    result = lab.run("agent run notes")
    assert repr(result) == "exit 74: storage fault"
    assert "state.db" in result.output


def test_the_learners_own_settings_do_not_reach_an_agent(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_MAX_ATTEMPTS", "not a number")
    create()
    assert lab.run("agent run notes").code == 0


def test_what_is_shown_is_the_same_in_every_run(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for _ in range(2):
        lab.begin("05")
        create()
        lab.run("agent run notes", AGENT_CRASH_AT="after_effect:1")
        lab.run("agent run notes")
        print(lab.journal().events().to_string(), lab.ps(), lab.reports(), lab.witness())
        print(lab.trial("after_effect:2"))
        lab.end()
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert str(home) not in shown[0]


def test_each_process_starts_its_clock_a_minute_later(begun: Path) -> None:
    create()
    lab.run("agent run notes", AGENT_CRASH_AT="before_effect:0")
    lab.run("agent run notes")
    first = lab.journal().sql(
        "SELECT run_id, min(ts) AS ts FROM journal GROUP BY run_id ORDER BY 2"
    )
    assert (first.ts // 60).diff().dropna().tolist() == [1, 1]
    assert first.run_id.tolist()[1:] == ["aaaaaaa1", "bbbbbbb2"]


def test_an_agent_speaks_under_the_name_that_is_shown(begun: Path) -> None:
    create()
    assert lab.run("agent run nobody").output.startswith("labkit agent: ")


def test_the_settings_are_those_that_the_agent_reads() -> None:
    package = Path(verbs.__file__).parents[1]
    durable = (package / "lab" / "scenarios" / f"{name}.py" for name in ("dispatch", "places"))
    sources = [*package.joinpath("restart").glob("*.py"), *durable]
    read = {name for path in sources for name in re.findall(r"AGENT_[A-Z_]+", path.read_text())}
    assert set(SETTINGS) == read


def test_a_quote_that_is_not_closed_is_one_line(begun: Path) -> None:
    with pytest.raises(UsageError, match="close the quote"):
        lab.run("agent run 'notes")


@pytest.mark.parametrize("command", ["", "rm -rf x", "labkit agent run notes"])
def test_only_programs_of_the_lab_are_started(command: str, begun: Path) -> None:
    with pytest.raises(UsageError, match=r"use 'agent \.\.\.' or 'naive \.\.\.'"):
        lab.run(command)


@pytest.mark.parametrize("name", ["PATH", "AGENT_CRASHAT", "agent_crash_at"])
def test_only_settings_of_an_agent_are_passed_on(name: str, begun: Path) -> None:
    """A misspelt crash point would kill nothing, and nothing would say so."""
    with pytest.raises(UsageError, match=f"{name} is no setting.*AGENT_CRASH_AT"):
        lab.run("agent run notes", **{name: "after_effect:1"})


@pytest.mark.parametrize("name", ["../../../progress.json", "nothing", "input"])
def test_show_file_stays_in_the_folder(name: str, begun: Path) -> None:
    with pytest.raises(NotFound, match="no file"):
        lab.show_file(name)


@pytest.mark.parametrize("name", ["", "../x", "a/b", " "])
def test_a_fresh_folder_has_a_plain_name(name: str, begun: Path) -> None:
    with pytest.raises(UsageError, match="letters"):
        lab.fresh(name)


def test_a_fresh_folder_can_be_asked_for_again(begun: Path) -> None:
    lab.fresh("again")
    create()
    lab.fresh("again")
    assert lab.files() == ["input/notes.txt", "plan.json"]
    create()


def test_exit_codes_in_words() -> None:
    assert exit_in_words(-9) == "killed by SIGKILL"
    assert exit_in_words(-15) == "killed by SIGTERM"
    assert exit_in_words(7) == "exit 7: see the output above"
    assert all(exit_in_words(code) == f"exit {code}: {EXIT_WORDS[code]}" for code in EXIT_WORDS)

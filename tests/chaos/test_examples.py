"""The shipped examples: what is counted, on programs that must be seen to fail and that must not.

The rows of DBOS and LangGraph need the extra `bench`, and are measured with `make proof`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit.chaos import compare, syscalls
from labkit.chaos.compare import AtCall, Row, Seen, examples_command, measure, see, table
from labkit.chaos.examples.catalogue import EXAMPLES, KEY, PROGRAMS, SENT, Example
from labkit.chaos.kill import sweep, try_injuries
from labkit.chaos.scenario import Workshop
from labkit.chaos.tracing import Reader, run_traced
from labkit.errors import UsageError
from tests.conftest import new_root
from tests.restart.kit import needs_strace

ONE = f"{KEY} {SENT}\n"
RESULT = f"3 {SENT}\n"


def example(name: str, *, has_key: bool = False) -> Example:
    (found,) = (e for e in EXAMPLES if e.name == name and e.has_key is has_key)
    return found


@pytest.fixture
def root(compiled: Path) -> Iterator[Path]:
    with new_root(compiled) as path:
        yield path


@pytest.mark.parametrize(
    ("effects", "steps", "seen"),
    [
        (ONE, f"0\n1\n2\n{RESULT}", Seen(False, False, False, False)),
        (ONE, f"0\n0\n1\n1\n2\n2\n{RESULT}", Seen(False, False, False, False)),
        (ONE, f"0\n1\n2\n{RESULT}{RESULT}", Seen(False, False, False, False)),
        (ONE, "0\n1\n2\n", Seen(False, False, False, False)),
        (ONE + ONE, f"0\n1\n2\n2\n{RESULT}", Seen(True, False, False, False)),
        ("", f"0\n1\n2\n{RESULT}", Seen(False, True, False, False)),
        (ONE, f"0\n1\n0\n1\n2\n{RESULT}", Seen(False, False, True, False)),
        (ONE, f"0\n1\n2\n{RESULT}2\n{RESULT}", Seen(False, False, True, False)),
        (f"{KEY} 0\n", f"0\n1\n2\n{RESULT}", Seen(False, False, False, True)),
        (ONE, "0\n1\n2\n3 0\n", Seen(False, False, False, True)),
    ],
)
def test_what_is_counted(effects: str, steps: str, seen: Seen) -> None:
    assert see(effects, steps) == seen
    assert see(effects, steps, ["the records are not in order"]) == seen._replace(wrong=True)


@pytest.mark.proof
@needs_strace
def test_the_naive_agent_loses_doubles_and_forgets() -> None:
    row = measure(example("naive agent"), "syscalls", kills=99)
    assert row.delivered >= 0.8 * row.planned >= 20, row
    assert row.repeated, row
    assert row.lost, row
    assert row.again, row
    assert row.wrong, row
    assert row.where.startswith("call:"), row


@pytest.mark.proof
@needs_strace
def test_the_restart_agent_with_a_key_keeps_what_it_promises() -> None:
    row = measure(example("restart agent", has_key=True), "syscalls", kills=6)
    assert (row.planned, row.repeated, row.lost, row.again, row.wrong) == (6, 0, 0, 0, 0), row
    assert row.delivered >= 5, row


def between_effect_and_record(workshop: Workshop) -> list[AtCall]:
    """The kills after the effect has left and before anything else is written."""
    with workshop.open() as trial:
        _, _ = run_traced(trial)
        reader = Reader(trial.root).feed((trial.root / "trace").read_text("utf-8"))
    paths = [call.path for call in reader.touching]
    last = max(at for at, path in enumerate(paths) if path == "witness")
    return [AtCall(last + 1), AtCall(last + 2)]


def after_the_effect(workshop: Workshop) -> AtCall:
    """The kill when the effect has just left. An engine with threads writes other files meanwhile,
    in no fixed order, so a count of all calls would come before the effect or after its record."""
    with workshop.open() as trial:
        _, _ = run_traced(trial)
        reader = Reader(trial.root).feed((trial.root / "trace").read_text("utf-8"))
    return AtCall([call.path for call in reader.touching].count("witness"), path="witness")


@pytest.mark.proof
@needs_strace
@pytest.mark.parametrize("has_key", [False, True])
def test_between_an_effect_and_its_record_only_a_key_helps(has_key: bool, root: Path) -> None:
    workshop = compare.Watching(example("restart agent", has_key=has_key), root, {})
    report = sweep(workshop, [[kill] for kill in between_effect_and_record(workshop)])
    assert report.delivered == 2, str(report)
    assert [v.reason for v in report.verdicts] == [""] * 2 if has_key else ["repeated"] * 2


@pytest.mark.parametrize("has_key", [False, True])
def test_the_durable_run_ends_and_sends_once(has_key: bool, root: Path) -> None:
    workshop = compare.Watching(example("durable run", has_key=has_key), root, {})
    assert workshop.left.effects == {KEY: 1}


@needs_strace
def test_the_kit_works_on_a_program_that_does_not_import_labkit(root: Path) -> None:
    """With the kit's own way, as `labkit chaos sweep` would do it; the program is a shell's."""
    shell = example("files and sh", has_key=True)
    (program,) = PROGRAMS.glob("*.sh")
    assert shell.scenario.run == ["sh", str(program)]
    assert "labkit" not in program.read_text("utf-8")
    workshop = Workshop(shell.scenario._replace(files=["sent", "summary"]), root)
    kills = syscalls.plan(workshop)[::2]
    report = sweep(workshop, [[kill] for kill in kills])
    assert report.exit_code == 0, str(report)
    assert report.delivered == len(kills) >= 4


@needs_strace
def test_a_shell_program_whose_effect_has_no_key_is_seen(root: Path) -> None:
    shell = example("files and sh", has_key=True)
    text, key = Path(shell.scenario.run[1]).read_text("utf-8"), "grep -q '^t-2 ' \"$WITNESS\" 2> "
    assert text.count(key) == 1
    (root / "mistaken.sh").write_text(text.replace(key, "! : "), encoding="utf-8")
    run = ["sh", str(root / "mistaken.sh")]
    workshop = compare.Watching(shell._replace(scenario=shell.scenario._replace(run=run)), root, {})
    (kill, _) = between_effect_and_record(workshop)
    report = sweep(workshop, [[kill]])
    assert [v.reason for v in report.verdicts] == ["repeated"], str(report)


@pytest.mark.sampled
@pytest.mark.parametrize("has_key", [False, True])
def test_without_strace_a_clock_kills(has_key: bool) -> None:
    name = "restart agent" if has_key else "naive agent"
    row = measure(example(name, has_key=has_key), "random", kills=6, seed=1)
    assert row.delivered >= 3, row
    assert (row.wrong == 0) is has_key, row
    assert row.repeated == 0 or not has_key


@pytest.mark.proof
@needs_strace
def test_a_kill_that_never_comes_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = example("files and sh", has_key=True)
    monkeypatch.setattr(AtCall, "_watch", lambda self, trial: lambda process, trace: None)
    row = measure(shell, "syscalls", kills=2)
    assert (row.planned, row.delivered, row.unknown) == (2, 0, 2)
    assert row.note.endswith("came too late: the run had ended, 0")
    monkeypatch.setattr(compare, "EXAMPLES", [shell])
    assert examples_command(["--kills", "2"]) == 2


def test_what_is_not_installed_says_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    absent = example("DBOS")._replace(needs=["no_such_engine"])
    row = measure(absent, "random")
    assert row.note == "no_such_engine not installed: pip install 'durable-agent-lab[bench]'"
    assert (row.planned, row.delivered) == (0, 0)
    assert f"DBOS: {row.note}" in table([row])
    assert not example("naive agent").missing
    assert all("bench" in e.missing or not e.missing for e in EXAMPLES)
    assert "\nDBOS           without a key          -        -" in table([row])


def test_the_table_has_a_column_for_each_question() -> None:
    frame = compare.compare(
        [example("DBOS")._replace(needs=["no_such_engine"])], how="random", kills=1
    )
    assert list(frame.columns) == list(Row._fields)
    assert {"delivered", "repeated", "lost", "again", "wrong", "unknown", "promise"} < set(frame)


def test_each_engine_says_what_it_promises() -> None:
    promises = {e.name: e.promise for e in EXAMPLES}
    assert "at least once" in promises["DBOS"]
    assert "idempotent" in promises["LangGraph"]
    assert "once in outcome" in promises["restart agent"]
    assert "the run waits" in promises["durable run"]
    text = table([Row(e.name, "with a key", "syscalls", promise=e.promise) for e in EXAMPLES])
    for name in promises:
        assert f"\n{name} promises: " in text
    assert "every engine here" in text
    assert max(map(len, text.splitlines())) <= 84


def test_other_engines_have_a_row_with_a_key_and_one_without() -> None:
    """The same effect for all: without this, a key would be taken for the merit of an engine."""
    for name in ("restart agent", "durable run", "DBOS", "LangGraph"):
        assert [e.has_key for e in EXAMPLES if e.name == name] == [False, True]


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--only", "nothing"], "no program is called 'nothing'; there are DBOS, LangGraph"),
        (["--kills", "0"], "from 1 on"),
        (["--at", "x"], "invalid int"),
        (["--how", "points"], "invalid choice"),
    ],
)
def test_what_the_command_refuses(argv: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        examples_command(argv)


@pytest.mark.proof
@needs_strace
def test_the_command_prints_the_table_and_one_kill(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "EXAMPLES", [example("naive agent")])
    assert examples_command(["--kills", "5"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("program        its effect         kills   effect")
    assert "\nnaive agent    without a key " in said
    assert examples_command(["--only", "naive", "--at", "12"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("naive agent, without a key: ")
    assert "syscalls call:12" in said


@needs_strace
@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["restart agent", "durable run", "DBOS", "LangGraph"])
@pytest.mark.parametrize("has_key", [False, True])
def test_what_each_engine_promises_is_what_is_seen(engine: str, has_key: bool, root: Path) -> None:
    one = example(engine, has_key=has_key)
    if one.missing:
        pytest.skip(one.missing)
    row = measure(one, "syscalls")
    assert row.delivered >= 28, row
    assert (row.lost, row.again, row.wrong) == (0, 0, 0), row
    asks = engine == "durable run"  # it waits where the others send again
    assert not (row.repeated and (has_key or asks)), row
    workshop = compare.Watching(one, root, {})
    verdict = try_injuries(workshop, [after_the_effect(workshop)])
    assert verdict.address.startswith("witness:")
    assert verdict.reason == ("" if has_key or asks else "repeated"), str(verdict)
    assert verdict.delivered

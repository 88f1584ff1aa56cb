"""Sources and files are shown as they are, and can never become Markdown or HTML."""

import json
import types
from pathlib import Path

import pytest

from labkit import lab
from labkit.errors import UsageError
from labkit.lab import nbval_plugin
from labkit.lab.listing import Listing
from labkit.lab.scenarios.naive import Naive
from tests.conftest import run_python


def shown(number: int) -> int:
    kept = number + 1
    return kept * 2


def changed(number: int) -> int:
    if number:
        kept = number + 1
    return kept


def test_the_source_is_what_python_runs() -> None:
    assert repr(lab.show_source(shown)) == (
        "def shown(number: int) -> int:\n    kept = number + 1\n    return kept * 2"
    )
    assert repr(lab.show_source(Naive._attempt)).startswith("def _attempt(self")


def test_an_excerpt_says_where_it_leaves_out_lines() -> None:
    assert repr(lab.show_source(changed, only="def|return")).splitlines() == [
        "def changed(number: int) -> int:",
        "    ...",
        "    return kept",
    ]
    assert repr(lab.show_source(commented, only="def|pass")).splitlines() == [
        "def commented() -> None:",
        "    ...",
        "    pass",
    ]


def commented() -> None:  # this is not shown
    """Nor is this."""
    pass  # noqa: PIE790 (something to show)


def test_what_is_not_written_in_python_has_no_source() -> None:
    with pytest.raises(UsageError, match="no Python source"):
        lab.show_source(len)


def test_a_diff_keeps_what_is_only_indented_anew() -> None:
    assert repr(lab.show_diff(shown, changed)).splitlines() == [
        "-def shown(number: int) -> int:",
        "+def changed(number: int) -> int:",
        "+    if number:",
        "         kept = number + 1",
        "-    return kept * 2",
        "+    return kept",
    ]


@pytest.mark.parametrize("text", ["```\n<img src=x onerror=alert(1)>\n```", "`````", "plain"])
def test_a_text_cannot_leave_its_fence(text: str) -> None:
    fence, *middle, last = Listing(text, "txt")._repr_markdown_().split("\n")
    assert fence == f"{last}txt"
    assert set(last) == {"`"}
    assert last not in text
    assert "\n".join(middle) == text


def test_a_file_of_the_folder_is_shown(begun: Path) -> None:
    listing = lab.show_file("plan.json")
    assert json.loads(repr(listing))["steps"][0]["tool"] == "fetch"
    assert listing._repr_markdown_().startswith("```json\n")


def test_every_verb_is_listed_sorted_and_found() -> None:
    assert sorted(lab.__all__, key=lambda name: (not name.isupper(), name.islower(), name)) == (
        lab.__all__
    )
    for name in lab.__all__:
        assert getattr(lab, name) is not None
    assert dir(lab) == sorted(lab.__all__)
    with pytest.raises(AttributeError, match="has no 'kil'"):
        _ = lab.kil


def test_the_plugin_only_touches_what_compares_outputs() -> None:
    collector = types.SimpleNamespace(skip_compare=("metadata",))
    nbval_plugin.pytest_collectstart(collector)
    assert set(nbval_plugin.NOT_COMPARED) < set(collector.skip_compare)
    assert "metadata" in collector.skip_compare
    other = types.SimpleNamespace()
    nbval_plugin.pytest_collectstart(other)
    assert vars(other) == {}


def test_the_plugin_costs_a_test_run_no_heavy_import(tmp_path: Path) -> None:
    code = (
        "import sys, labkit.lab.nbval_plugin; "
        "print([m for m in ('pandas', 'matplotlib', 'sqlite3', 'subprocess') if m in sys.modules])"
    )
    assert run_python(
        "-S", "-c", f"import sys; sys.path[:0] = {PATHS!r}; {code}", cwd=tmp_path
    ) == (
        0,
        "[]\n",
        "",
    )


PATHS = [str(Path(__file__).parents[2])]

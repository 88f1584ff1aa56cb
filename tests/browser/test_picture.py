"""The README's picture of the panel shows what its text says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.lab_page import LabPage
from tests.browser.picture import PICTURE, take
from tests.browser.server import ROOT

pytestmark = [pytest.mark.proof, pytest.mark.timeout(180)]


def test_the_picture_shows_what_its_text_says(lab: LabPage, tmp_path: Path) -> None:
    sentence = take(lab, tmp_path / PICTURE)
    assert f"![{sentence}](notebooks/{PICTURE})" in (ROOT / "README.md").read_text("utf-8")
    assert (ROOT / "notebooks" / PICTURE).is_file()
    assert (tmp_path / PICTURE).stat().st_size > 20_000

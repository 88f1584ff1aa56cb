"""What a run is told stays sealed: not in its files, its journal, its updates nor in its errors.

The deltas of a streaming model are the one exception: live text for whoever watches, never stored.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography.fernet import Fernet

from labkit.durable import SQLiteRunStore
from tests.durable.secretive import KINDS, codec_of, secret, token

ROOT = Path(__file__).parents[2]


def in_base64(data: bytes) -> set[bytes]:
    """The characters that stand for `data` and nothing else, wherever it lies in what is encoded.

    Of three bytes each gives some of its bits to the next character, so there are three ways.
    """
    found = set()
    for before in range(3):
        whole = base64.b64encode(bytes(before) + data)
        first = -(-before * 8 // 6)
        last = (before + len(data)) * 8 // 6
        found |= {whole[first:last], whole[first:last].translate(bytes.maketrans(b"+/", b"-_"))}
    return found


def in_json(text: str) -> set[bytes]:
    """As it stands in JSON, and in JSON that lies in a text in JSON."""
    once = {json.dumps(text, ensure_ascii=way)[1:-1] for way in (True, False)}
    twice = {json.dumps(each, ensure_ascii=way)[1:-1] for each in once for way in (True, False)}
    return {each.encode() for each in once | twice}


def forms(text: str) -> set[bytes]:
    plain = {text.encode(), text.encode("utf-16-le"), text.encode("utf-16-be")}
    hexed = {each.hex().encode() for each in plain}
    hexed |= {each.upper() for each in hexed}
    return plain | hexed | in_json(text) | {form for each in plain for form in in_base64(each)}


def found_in(data: bytes) -> set[str]:
    """The kinds of secrets that the data gives away, in any form, whole or by their tokens."""
    needles = {kind: forms(secret(kind)) | forms(token(kind)) for kind in KINDS}
    return {kind for kind, each in needles.items() if any(needle in data for needle in each)}


ERRORS = [
    "DefinitionNotFoundError", "DuplicateRunError", "IllegalRunTransitionError",
    "ResolutionNotAllowedError", "RunStoreIntegrityError", "StaleRunVersionError",
]  # fmt: skip


class Left(NamedTuple):
    """What is there after the kill: the files, and what the process had told until then."""

    files: dict[str, bytes]
    told: dict[str, str]


def leave_behind(folder: Path, key: str) -> Left:
    argv = [sys.executable, "-m", "tests.durable.secretive", "runs.db", key]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        argv,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        line = process.stdout.readline()
        process.kill()
    assert process.returncode == -signal.SIGKILL
    files = {each.name: each.read_bytes() for each in folder.iterdir()}
    assert set(files) == {"runs.db", "runs.db-wal", "runs.db-shm"}
    assert len(files["runs.db-wal"]) > 4096
    return Left(files, json.loads(line))


def test_under_a_key_nothing_is_found_anywhere(tmp_path: Path) -> None:
    key = Fernet.generate_key().decode()
    left = leave_behind(tmp_path, key)
    for name, data in left.files.items():
        assert found_in(data) == set(), name
    for name in ("journal", "updates", "errors"):
        assert found_in(left.told[name].encode()) == set(), name
    assert found_in(left.told["kept"].encode()) == set(KINDS) - {"model failure"}
    with SQLiteRunStore(tmp_path / "runs.db", codec_of(key)) as store:  # it was all there
        assert asyncio.run(store.get_run("good")).output == secret("final output")


def test_without_a_key_everything_is_found(tmp_path: Path) -> None:
    """The control: the search would have found each of them, in the -wal too."""
    left = leave_behind(tmp_path, "")
    assert found_in(b"".join(left.files.values())) == set(KINDS)
    assert found_in(left.files["runs.db-wal"]) == set(KINDS)
    for name in ("journal", "updates", "errors"):  # payloads are in none of them in any case
        assert found_in(left.told[name].encode()) == set(), name
        assert len(left.told[name]) > 1000, name
    for error in ERRORS:
        assert f".{error}: " in left.told["errors"]


FORMS = {
    "raw": lambda text: text.encode(),
    "utf-16-le": lambda text: text.encode("utf-16-le"),
    "utf-16-be": lambda text: text.encode("utf-16-be"),
    "hex": lambda text: text.encode().hex().encode(),
    "HEX": lambda text: text.encode().hex().upper().encode(),
    "hex of utf-16": lambda text: text.encode("utf-16-le").hex().encode(),
    "base64": lambda text: base64.b64encode(text.encode()),
    "base64, one later": lambda text: base64.b64encode(b"<" + text.encode() + b">"),
    "base64, two later": lambda text: base64.b64encode(b"<<" + text.encode() + b">>"),
    "base64 for urls": lambda text: base64.urlsafe_b64encode(b"\xff" + text.encode() + b"\xff"),
    "base64 of utf-16": lambda text: base64.b64encode(b"<" + text.encode("utf-16-le")),
    "json": lambda text: json.dumps(text).encode(),
    "json with é": lambda text: json.dumps(text, ensure_ascii=False).encode(),
    "json in json": lambda text: json.dumps(json.dumps({"x": text})).encode(),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_search_finds_each_form(form: str) -> None:
    """Of the whole text, whose token is left out here, and of the token alone."""
    for kind in KINDS:
        noise = os.urandom(50)
        assert found_in(noise + FORMS[form](secret(kind)) + noise) == {kind}
        assert found_in(noise + FORMS[form](token(kind)) + noise) == {kind}
        assert found_in(noise + FORMS[form](token(kind)[:-2]) + noise) == set()

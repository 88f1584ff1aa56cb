"""Four ways to publish a file, from the first that one writes; each falls to another accident.

The fifth is `labkit.files.publish_once`. All take the folder, the name and the bytes; `append` has
no use for a name.
"""

from __future__ import annotations

import os

__all__ = ["append", "by_link", "by_rename", "in_place"]


def append(folder: str, name: str, content: bytes) -> None:
    with open(os.path.join(folder, "report.log"), "ab") as file:
        file.write(content + b"\n---\n")


def in_place(folder: str, name: str, content: bytes) -> None:
    with open(os.path.join(folder, name), "wb") as file:
        file.write(content)


def by_rename(folder: str, name: str, content: bytes) -> None:
    final = os.path.join(folder, name)
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
    os.replace(temporary, final)


def by_link(folder: str, name: str, content: bytes) -> None:
    final = os.path.join(folder, name)
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, final)
    except FileExistsError:
        with open(final, "rb") as file:
            if file.read() != content:
                raise
    finally:
        os.unlink(temporary)

"""Starts Python programs fast: each is forked from a helper process that has imported the most.

The helper is started for that purpose and has a single thread. A kernel, pytest or a process that
draws a progress bar is never forked: their threads and locks would come along.

    python forking.py FIFO    requests from a FIFO, answers on standard output
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from labkit import guard
from labkit.errors import StorageFault

__all__ = ["ForkServer", "module_of"]

HELPER = Path(__file__).with_name("forking.py")


def module_of(argv: Sequence[str]) -> list[str] | None:
    """["labkit", "agent"] for `python -m labkit agent` with this Python; None for all else."""
    if list(argv[:2]) == [sys.executable, "-m"] and len(argv) > 2:
        return list(argv[2:])
    return None


class ForkServer:
    """One helper process. `call` runs one program in it, to its end; close it, or use `with`.

    What it imports beforehand comes from `PYTHONPATH` in `environ` first. A helper that something
    else has ended is started again by the next call.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="labkit-fork-")
        given = {**os.environ, **(environ or {})}
        # Its own labkit comes last: a mutant's package brings another one, without a kit in it.
        where = [given.get("PYTHONPATH", ""), *sys.path, str(Path(__file__).parents[2])]
        given["PYTHONPATH"] = os.pathsep.join(filter(None, where))
        self._environ, self._turn, self._is_over = given, threading.Lock(), False
        self._start()

    def _start(self) -> None:
        # A guard gives a command an empty input and no descriptor of ours, so requests have a name.
        fifo = os.path.join(self._folder.name, "requests")
        os.mkfifo(fifo, 0o600)
        argv = [sys.executable, "-P", str(HELPER), fifo]
        self._guarded = guard.start(argv, stdout=subprocess.PIPE, env=self._environ)
        self._requests = os.open(fifo, os.O_RDWR)  # to read too: opening waits for nobody then

    def _end(self) -> None:
        """With it goes what it has not read: the next helper must not do that."""
        os.close(self._requests)
        os.unlink(os.path.join(self._folder.name, "requests"))
        self._guarded.kill()
        if self._guarded.stdout:
            self._guarded.stdout.close()

    def call(
        self, module: Sequence[str], cwd: Path, environ: Mapping[str, str], timeout_s: float
    ) -> tuple[int, str]:
        """The status, negative after a signal, and what it said.

        Raises TimeoutError after `timeout_s`, with the program killed: no status of its own; and
        StorageFault where the helper ended meanwhile, since nobody knows how far the program came.
        """
        request = {"argv": list(module), "cwd": str(cwd), "environ": dict(environ), "s": timeout_s}
        guarded = self._helper()
        os.write(self._requests, json.dumps(request).encode() + b"\n")
        out: Any = guarded.stdout
        answer = out.readline()
        if not answer:
            guarded.kill()  # it has ended, and the next call sees that it has
            raise StorageFault("the helper process that forks the trials has ended; try again")
        status, said = json.loads(answer)
        if status is None:
            raise TimeoutError(f"it had not ended after {timeout_s:g} s")
        return int(status), str(said)

    def _helper(self) -> guard.Guarded:
        """The one that is at work, or another one in its place."""
        with self._turn:  # `kill` in another thread ends either of the two
            if self._is_over:
                raise StorageFault("the helper process that forks the trials was stopped")
            if not self.is_alive:
                self._end()
                self._start()
            return self._guarded

    @property
    def is_alive(self) -> bool:
        return self._guarded.poll() is None

    def kill(self) -> None:
        """Ends the program that runs, for good: `call` raises StorageFault from then on."""
        with self._turn:
            self._is_over = True
            self._guarded.kill()

    def close(self) -> None:
        self.kill()
        self._end()
        self._folder.cleanup()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

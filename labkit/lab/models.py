"""A counting model beside the agents: started, asked what it was asked, made to wait, ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import guard
from labkit.errors import UsageError, storage_faults
from labkit.lab.folder import new_directory, session
from labkit.lab.process import TIMEOUT_S, NotReady, Process
from labkit.lab.scenarios.model import CALLS, subject
from labkit.lab.verbs import current_notebook

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Model", "model", "running_model"]

BESIDE = "model"


class Model:
    """A process that answers as Ollama does, and the file in which it counts.

    It dies with this Python, however that ends, and with nothing else. Raises NotReady when it
    does not start.
    """

    def __init__(self, folder: Path) -> None:
        self._calls = folder / CALLS
        argv = [sys.executable, "-m", "labkit.lab.scenarios.model", str(folder)]
        with storage_faults("cannot start the model"):
            self._guarded = guard.start(
                argv,
                cwd=str(folder),
                env={**os.environ, "LABKIT_SESSION": session()},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        first = self._guarded.stdout.readline() if self._guarded.stdout else b""
        self.url = first.decode("utf-8", "replace").strip()
        if not self.url.startswith("http://127.0.0.1:"):
            self.close()
            raise NotReady(f"the model did not start: {self.url or 'it said nothing'}")

    def environ(self) -> dict[str, str]:
        """What an agent needs to find it. A proxy, if this machine has one, is gone round."""
        return {"OLLAMA_URL": self.url, "no_proxy": "127.0.0.1"}

    def calls(self) -> int:
        """The number of calls that it has taken, answered or not."""
        return len(self.prompts())

    def prompts(self) -> list[str]:
        """What it was asked, call by call."""
        whole = self._calls.read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["prompt"] for line in whole]

    def asked(self) -> pd.DataFrame:
        """One row for each call: its number, and what it was about."""
        import pandas as pd

        rows = [(number, subject(prompt)) for number, prompt in enumerate(self.prompts(), start=1)]
        return pd.DataFrame(rows, columns=["call", "asked about"]).set_index("call")

    def hold(self, nth: int = 1) -> None:
        """Keeps back its answer to the nth call from now, and to each later one."""
        if isinstance(nth, bool) or not isinstance(nth, int) or nth < 1:
            raise UsageError(f"hold({nth!r}): give the number of the call, 1 for the next one")
        self._tell("POST", "/lab/hold", {"nth": nth})

    def release(self) -> None:
        """Answers what it kept back, and keeps nothing back from now on."""
        self._tell("POST", "/lab/release", {})

    def wait_for_call(self, process: Process, timeout_s: float = TIMEOUT_S) -> None:
        """Returns once a call is open: taken, counted, not answered.

        Raises NotReady when the process ends without one, or after `timeout_s`.
        """
        end = time.monotonic() + timeout_s
        while True:
            running = process.alive  # before the look
            if self._tell("GET", "/lab/open", {})["open"]:
                return
            if not running:
                raise NotReady(
                    f"process {process.number} ended ({process.state}) before a call that the "
                    "model keeps back; call hold() first, then start the agent"
                )
            if time.monotonic() > end:
                raise NotReady(f"no call is open after {timeout_s:g} s")

    def close(self) -> None:
        self._guarded.kill()
        if self._guarded.stdout:
            self._guarded.stdout.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        number = self.calls()
        return f"a model that was called {number} time{'' if number == 1 else 's'}"

    def _tell(self, method: str, path: str, what: dict[str, int]) -> Any:
        port = int(self.url.rpartition(":")[2])
        connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, json.dumps(what))
            return json.load(connection.getresponse())
        except (OSError, HTTPException, ValueError):
            raise NotReady("the model has ended; run the cell with lab.model() again") from None
        finally:
            connection.close()


def model() -> Model:
    """Starts a model for the agents of this notebook, and ends the one before.

    An agent finds it by OLLAMA_URL, which the lab sets and does not print: a port differs by
    machine. Its count stands in a folder of its own, where no agent works.
    """
    current = current_notebook()
    if before := current.beside.pop(BESIDE, None):
        before.close()
    started = Model(new_directory(current.root, "model"))
    current.beside[BESIDE] = started
    current.unprinted.update(started.environ())
    print("A model is running on this machine. It counts its calls outside the agent's folder.")
    return started


def running_model() -> Model:
    """The model of this notebook. Raises NotReady before `model`."""
    found = current_notebook().beside.get(BESIDE)
    if not isinstance(found, Model):
        raise NotReady("no model is running; run the cell with lab.model() first")
    return found

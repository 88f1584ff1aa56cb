"""The store of runs over again, on dicts: what each verb refuses, and what it leaves behind.

No SQL, no payloads, no transactions: a verb that raises is undone by its caller.
"""

from typing import Any

from labkit import durable
from labkit.durable import IllegalRunTransitionError as Illegal
from labkit.errors import ensure

TTL_S, ENDS = 30, {"FAIL": "FAILED", "CANCEL": "CANCELLED"}
LOST, STALE = durable.LeaseNotHeldError("", None, None), durable.StaleRunVersionError()
TABLE = {
    "CREATED": ("RUNNING", "WAITING", "REJECTED", "FAILED", "CANCELLED"),
    "RUNNING": ("SUCCEEDED", "REJECTED", "FAILED", "WAITING", "CANCELLED"),
    "WAITING": ("RUNNING", "FAILED", "CANCELLED"),
}
Run = dict[str, Any]


class ModelStore:
    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.now = 0.0

    def create(self, name: str, input: str) -> None:
        new = {"input": input, "status": "CREATED", "version": 1, "owner": None, "epoch": 0,
               "until": None, "asked": None, "waits": None, "steps": {}, "attempts": [],
               "answers": [], "kinds": ["task_created"]}  # fmt: skip
        run = self.runs.setdefault(name, new)
        ensure(run["input"] == input, durable.DuplicateRunError())

    def acquire(self, name: str, owner: str, version: int, to: str | None, at: str | None) -> None:
        run = self.runs[name]
        ensure(run["version"] == version, STALE)
        self._enter(run, owner)
        if to:
            self._move(run, to, at)

    def _enter(self, run: Run, owner: str) -> None:
        ensure(run["status"] in TABLE, Illegal())
        ensure(self.now >= (run["until"] or 0), LOST)
        run |= {"owner": owner, "epoch": run["epoch"] + 1, "until": self.now + TTL_S}
        run["kinds"].append("run_started")

    def _held(self, name: str, epoch: int, version: int) -> Run:
        run = self.runs[name]
        ensure(run["version"] == version, STALE)
        ensure(run["epoch"] == epoch and self.now < (run["until"] or 0), LOST)
        return run

    def renew(self, *hold: Any) -> None:
        self._held(*hold)["until"] = self.now + TTL_S

    def release(self, name: str, epoch: int, version: int) -> None:
        ensure(self.runs[name]["epoch"] == epoch, LOST)
        self.runs[name] |= {"owner": None, "until": None}

    def change(self, *hold: Any, to: str, at: str | None) -> None:
        self._move(self._held(*hold), to, at)

    def _move(self, run: Run, to: str, at: str | None, obeys: bool = True) -> None:
        ensure(to in TABLE.get(run["status"], ()), Illegal())
        to = "CANCELLED" if run["asked"] and obeys and to in ("SUCCEEDED", "FAILED") else to
        run |= {"status": to, "version": run["version"] + 1, "waits": at}
        if to != "RUNNING":
            run |= {"owner": None, "until": None}
            run["kinds"].append("run_waiting" if to == "WAITING" else f"task_{to.lower()}")
        if to not in TABLE:
            run["steps"] = {k: "FAILED" if v == "RUNNING" else v for k, v in run["steps"].items()}

    def begin(self, *hold: Any, step: str, limit: int) -> None:
        run = self._held(*hold)
        ensure(run["status"] == "RUNNING", Illegal())
        used = sum("tool" not in attempt[0] for attempt in run["attempts"])
        if not run["asked"] and ("tool" in step or used < limit):
            self._begin(run, step)

    def _begin(self, run: Run, step: str) -> None:
        is_free = all(attempt[2] != "RUNNING" for attempt in run["attempts"])
        ensure(is_free and run["steps"].setdefault(step, "RUNNING") == "RUNNING", Illegal())
        run["attempts"].append([step, 1 + sum(a[0] == step for a in run["attempts"]), "RUNNING"])
        run["kinds"].append("step_started")

    def end(self, *hold: Any, of: Any, status: str, to: str | None, at: str | None) -> None:
        run = self._held(*hold)
        self._end(run, [*of, "RUNNING"], status)
        if to:
            self._move(run, to, at)

    def _end(self, run: Run, attempt: list[Any], status: str) -> None:
        ensure(attempt in run["attempts"], Illegal())
        run["attempts"][run["attempts"].index(attempt)][2] = status
        run["steps"][attempt[0]] = "SUCCEEDED" if status == "SUCCEEDED" else "RUNNING"
        run["kinds"].append("step_finished" if status == "SUCCEEDED" else "step_error")

    def resolve(self, name: str, owner: str, version: int, answer: str, at: str | None) -> None:
        run = self.runs[name]
        ensure(run["status"] == "WAITING", Illegal())
        is_one = at == run["waits"] and (answer in ENDS or at)
        ensure(is_one, durable.ResolutionNotAllowedError())
        ensure(run["version"] == version, STALE)
        self._enter(run, owner)
        run["answers"].append((f"{answer}_{'RUN' if answer in ENDS else 'STEP'}", version))
        run["kinds"].append("run_resolved")
        self._move(run, ENDS.get(answer, "RUNNING"), None, obeys=False)
        run["asked"] = None if answer == "RETRY" else run["asked"]
        if answer not in ENDS:
            self._begin(run, str(at))
        if answer in ("CONFIRM", "REJECT"):
            self._end(run, run["attempts"][-1][:], "SUCCEEDED")

    def cancel(self, name: str, actor: str, version: int | None) -> None:
        run = self.runs[name]
        ensure(version in (None, run["version"]), STALE)
        ensure(run["status"] == "RUNNING", Illegal())
        run["kinds"] += [] if run["asked"] else ["cancel_requested"]
        run["asked"] = run["asked"] or actor

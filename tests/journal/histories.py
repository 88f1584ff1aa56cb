"""Random journals that a right agent could have written, with the tables it would have left."""

from __future__ import annotations

import json
import random
from typing import Any

from labkit.journal.reading import Event, StepRow, TaskRow


class History:
    """A model of the restart agent: it decides at random, and keeps every promise."""

    def __init__(self, seed: int, steps: int, max_attempts: int = 3) -> None:
        self.random, self.max_attempts = random.Random(seed), max_attempts
        self.events: list[Event] = []
        self.status, self.steps = "pending", [["pending", 0, False] for _ in range(steps)]
        self.run_id: str | None = None
        self.runs = 0
        self._add("task_created", steps=steps)
        for _ in range(self.random.randrange(6)):
            self._run()

    @property
    def tables(self) -> tuple[list[TaskRow], list[StepRow]]:
        rows = [
            StepRow("t", idx, "tool", status, attempts, status == "done", again)
            for idx, (status, attempts, again) in enumerate(self.steps)
        ]
        return [TaskRow("t", self.status)], rows

    def _add(self, kind: str, idx: int | None = None, **data: Any) -> None:
        seq = len(self.events) + 1
        tool = None if idx is None else "tool"
        attempt = None if idx is None else self.steps[idx][1]
        # The clock jumps back now and then: order is `seq`, never `ts`.
        ts = 1e9 + seq - self.random.choice([0, 0, 0, 50])
        row = (seq, ts, "t", self.run_id, self.run_id, kind, idx, tool, attempt, json.dumps(data))
        self.events.append(Event(*row))

    def _run(self) -> None:
        if self.status == "done":
            return
        self.runs += 1
        self.run_id = f"{self.runs:08x}"
        self._begin()
        for idx in range(len(self.steps)):
            while self.steps[idx][0] == "pending":
                if self._is_killed() or not self._attempt(idx):
                    return
        if not self._is_killed():
            self.status = "done"
            self._add("task_done")

    def _is_killed(self) -> bool:
        return self.random.random() < 0.15

    def _begin(self) -> None:
        recovered = [idx for idx, step in enumerate(self.steps) if step[0] == "running"]
        for idx in recovered:
            self.steps[idx][0] = "pending"
            self._add("step_recovered", idx)
        for idx, step in enumerate(self.steps):
            if step[0] == "failed":
                step[:2] = "pending", 0
                self._add("task_retried", idx)
        self.status = "running"
        self._add("run_started", recovered=recovered)

    def _attempt(self, idx: int) -> bool:
        """One attempt, as far as it comes. False if the run is over."""
        step = self.steps[idx]
        if step[1] >= self.max_attempts:
            return self._fail(idx, "unknown")
        step[0], step[1] = "running", step[1] + 1
        self._add("step_started", idx, tool="tool", attempt=step[1])
        fate = self.random.choice(["finish"] * 5 + ["kill", "error", "permanent", "interrupt"])
        if fate == "kill":
            return False
        if fate == "finish":
            step[0], step[2] = "done", self.random.random() < 0.2
            self._add("step_finished", idx, tool="tool")
            return True
        step[0] = "pending"
        interrupted, permanent = fate == "interrupt", fate == "permanent"
        self._add("step_error", idx, error="x", permanent=permanent, interrupted=interrupted)
        if interrupted:
            self.status = "pending"
            return False
        if permanent or step[1] >= self.max_attempts:
            return self._fail(idx, "failed")
        return True

    def _fail(self, idx: int, outcome: str) -> bool:
        self.status = self.steps[idx][0] = "failed"
        self._add("task_failed", idx, reason="max_attempts", outcome=outcome)
        return False

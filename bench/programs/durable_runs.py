"""Runs of model, tool and model, one after the other, in `runs.db`. A kill meets the second answer
of the model, so that the run is left RUNNING with an open attempt.
"""

import asyncio
import os
import sys

sys.path.insert(0, os.environ["PROGRAMS"])

from marks import LAST, mark

from bench.durable import answers, open_runner, run_once
from labkit.durable import DeterministicModelAdapter, ModelRequest, ModelResponse


class Marked(DeterministicModelAdapter):
    """Leaves the time in each run's second answer; there the process may be killed."""

    idx = 0

    async def generate(self, request: ModelRequest) -> ModelResponse:
        if request.turns:
            mark(self.idx)
            self.idx += 1
        return await super().generate(request)


async def main() -> None:
    store, runner = open_runner("runs.db", Marked(answers()))
    with store:
        for _ in range(LAST + 1):
            await run_once(runner)


asyncio.run(main())

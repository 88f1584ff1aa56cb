"""The lab: verbs for notebooks, the learner's workbook, a doctor and a demo.

    from labkit import lab
    lab.begin("05")

Read in this order: `process` (one process), `folder` (where it works), `bench` (the verbs),
`evidence` (what it left), `trials` (one crash point, start to end), `predictions`, `workbook`.
"""

from labkit.lab.bench import (
    begin,
    end,
    fresh,
    journal,
    kill,
    predict,
    ps,
    reports,
    reveal,
    run,
    show_file,
    start,
    wait_for,
    witness,
)
from labkit.lab.listing import show_diff, show_source
from labkit.lab.process import NotReady

__all__ = [
    "NotReady",
    "begin",
    "end",
    "fresh",
    "journal",
    "kill",
    "predict",
    "ps",
    "reports",
    "reveal",
    "run",
    "show_diff",
    "show_file",
    "show_source",
    "start",
    "wait_for",
    "witness",
]

"""The lab: verbs for notebooks, the learner's workbook, a doctor and a demo.

    from labkit import lab
    lab.begin("05")

Read in this order: `process` (one process), `folder` (where it works), `verbs`,
`evidence` (what it left), `trials` (one crash point, start to end), `predictions`; then `checks`
with `handing` and `sweeps` (an answer, judged), `exercises` and `solutions` (what each asks, and
what it takes), `publishing`, `ladder`, `models`, `bills` (for notebooks 06 and 09), `runs`,
`windows`, `pausing` (for 10 to 12); `grid` (the places to die), `stage`, `changes`, `votes` (one
kill before a room), `benches`, `cells` (a kill at each place), `panels`; then what a learner has:
`progress`, `report`, `workbook`, `updates`, `shipped`, `keeping`.

The names are imported when they are first used: pytest loads `labkit.lab.nbval_plugin`, and with
it this file, in every run.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.lab.bills import Bill, bill, draw_bills, tabulate_bills
    from labkit.lab.listing import show_diff, show_source
    from labkit.lab.models import Model, model
    from labkit.lab.pictures import draw_bars, draw_calls, draw_grid
    from labkit.lab.process import NotReady
    from labkit.lab.tables import compare
    from labkit.lab.trials import POINTS, Trial, tabulate
    from labkit.lab.tries import draw_attempts
    from labkit.lab.verbs import (
        begin,
        check,
        end,
        files,
        fresh,
        hint,
        journal,
        kill,
        predict,
        ps,
        reports,
        reveal,
        run,
        show_file,
        start,
        timeline,
        trial,
        wait_for,
        witness,
    )

__all__ = [
    "POINTS",
    "Bill",
    "Model",
    "NotReady",
    "Trial",
    "begin",
    "bill",
    "check",
    "compare",
    "draw_attempts",
    "draw_bars",
    "draw_bills",
    "draw_calls",
    "draw_grid",
    "end",
    "files",
    "fresh",
    "hint",
    "journal",
    "kill",
    "model",
    "predict",
    "ps",
    "reports",
    "reveal",
    "run",
    "show_diff",
    "show_file",
    "show_source",
    "start",
    "tabulate",
    "tabulate_bills",
    "timeline",
    "trial",
    "wait_for",
    "witness",
]

# Modules that need pandas and matplotlib come last.
_WHERE = ("verbs", "listing", "process", "trials", "models", "pictures", "bills", "tables", "tries")

if "IPython" in sys.modules:  # in a kernel already here: the first verb may be the first mistake
    import_module("labkit.lab.oneline").show_errors_in_one_line()


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in (import_module(f"{__name__}.{where}") for where in _WHERE):
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"labkit.lab has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__

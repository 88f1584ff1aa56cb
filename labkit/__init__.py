"""Durable Agent Lab: kill a real agent, read its journal, resume it.

Read the package in this order; each layer imports only from those before it.

1. ground: errors, jsonvalues, files, database, crashpoints, clock, guard.
   What every program here stands on; standard library only.
2. restart: plan, store, tools, agent.  The agent that survives SIGKILL.
3. durable: records, recovery, advance, lease, runner, stores.  The model-driven run, whose effects
   are never repeated by the runtime; its own docstring gives the order within it.
4. journal: what the journal says happened, as tables, verdicts, sentences and pictures.
5. chaos: the kit that breaks programs on purpose and says what broke.
6. lab: the verbs of the notebooks, the workbook, doctor and demo.
7. cli: one command, `labkit`, that imports only what was chosen.

The docstrings of journal and lab give the order within them.
Goals, rules and rejected alternatives stand in DESIGN.md.
"""

__version__ = "0.1.0"

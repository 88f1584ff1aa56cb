"""Durable Agent Lab: kill a real agent, read its journal, resume it.

Read the package in this order; each layer imports only from those before it.

1. ground: errors, jsonvalues, files, database, crashpoints, clock, guard.
   What every program here stands on; standard library only.
2. restart: plan, store, tools, agent.  The agent that survives SIGKILL.
3. journal: frames, laws, story, timeline.  What the journal says happened.
4. lab: doctor, workbook, demo and the verbs of the notebooks.
5. cli: one command, `labkit`, that imports only what was chosen.

Goals, rules and rejected alternatives stand in DESIGN.md.
"""

__version__ = "0.1.0"

"""DBOS on SQLite: one workflow of three steps. `setup` makes its database and runs nothing.

Every start does the same: `launch` looks for workflows that were killed and goes on with them, and
a workflow is started under an id, so that a second start only gives the first one's result.
"""

import sys

import task
from dbos import DBOS, SetWorkflowID

url = "sqlite:///dbos.db"
config = {"name": "example", "system_database_url": url, "log_level": "ERROR"}
DBOS(config={**config, "run_admin_server": False})
fetch, summarize, send = (DBOS.step()(step) for step in (task.fetch, task.summarize, task.send))


@DBOS.workflow()
def flow() -> str:
    return send(summarize(fetch()))


DBOS.launch()
if sys.argv[1:] != ["setup"]:
    with SetWorkflowID("t"):
        task.finished(DBOS.start_workflow(flow).get_result())
DBOS.destroy()

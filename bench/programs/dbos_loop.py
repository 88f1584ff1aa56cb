"""DBOS on SQLite: one workflow of steps. Its `launch` finds and goes on with what was killed."""

import os

from dbos import DBOS, SetWorkflowID
from marks import LAST, mark

is_new = not os.path.exists("dbos.db")
url = "sqlite:///dbos.db"
config = {"name": "bench", "system_database_url": url, "log_level": "ERROR"}
DBOS(config={**config, "run_admin_server": False})


@DBOS.step()
def step(idx: int) -> None:
    mark(idx)


@DBOS.workflow()
def flow(last: int) -> None:
    for idx in range(last + 1):
        step(idx)


DBOS.launch()
if is_new:
    with SetWorkflowID("t"):
        DBOS.start_workflow(flow, LAST)
DBOS.retrieve_workflow("t").get_result()
DBOS.destroy()

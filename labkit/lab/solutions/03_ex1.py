# %% solution
query = """
    SELECT task_id, run_id, kind FROM (
        SELECT task_id, run_id, kind, max(seq) FROM journal
        WHERE run_id IS NOT NULL GROUP BY task_id, run_id)
    WHERE kind NOT IN ('task_done', 'task_failed')"""
# %% wrong: wrong on another one, of other kills. This row is missing: task_id memo, run_id aaaaaaa1, kind step_finished
query = """
    SELECT task_id, run_id, kind FROM journal AS last
    WHERE kind = 'step_started'
      AND seq = (SELECT max(seq) FROM journal AS j
                 WHERE j.task_id = last.task_id AND j.run_id = last.run_id)"""
# %% wrong: The last event of this run is task_done.
query = """
    SELECT task_id, run_id, kind FROM journal AS last
    WHERE run_id IS NOT NULL
      AND seq = (SELECT max(seq) FROM journal AS j
                 WHERE j.task_id = last.task_id AND j.run_id = last.run_id
                   AND kind NOT IN ('task_done', 'task_failed'))"""
# %% wrong: kind step_started. Two tasks have a run aaaaaaa1: a run is named by task_id and run_id
query = """
    SELECT task_id, run_id, kind FROM journal
    WHERE seq IN (SELECT max(seq) FROM journal WHERE run_id IS NOT NULL GROUP BY run_id)
      AND kind NOT IN ('task_done', 'task_failed')"""
# %% wrong: its run_id is missing
query = """
    SELECT task_id, run_id, kind FROM journal
    WHERE seq IN (SELECT max(seq) FROM journal GROUP BY task_id, run_id)
      AND kind NOT IN ('task_done', 'task_failed')"""
# %% wrong: wrong on another one, of other kills. This row does not belong
query = """
    SELECT 'notes' AS task_id, 'aaaaaaa1' AS run_id, 'step_started' AS kind
    UNION ALL SELECT 'notes', 'bbbbbbb2', 'step_started'
    UNION ALL SELECT 'letter', 'bbbbbbb2', 'step_started'"""
# %% wrong: Its columns are task_id, run_id, last; asked are task_id, run_id, kind.
query = """
    SELECT task_id, run_id, max(seq) AS last FROM journal
    WHERE run_id IS NOT NULL GROUP BY task_id, run_id"""
# %% wrong: SQLite cannot run this query: no such column: run
query = "SELECT task_id, run, kind FROM journal"
# %% wrong: DELETE is not a query
query = "DELETE FROM events"
# %% wrong: Give the text of the query, not what it returns.
query = {"task_id": "notes"}

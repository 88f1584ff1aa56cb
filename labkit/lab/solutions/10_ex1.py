# %% solution
query = """
    SELECT run_id, step FROM journal AS done
    WHERE kind = 'step_finished'
      AND seq < (SELECT max(seq) FROM journal
                 WHERE kind = 'run_started' AND run_id = done.run_id)"""
# %% wrong: The last process, bob#2, did this step itself.
query = "SELECT run_id, step FROM journal WHERE kind = 'step_finished'"
# %% wrong: run_id note, step model-1. Only one process has ever had this run
query = """
    SELECT run_id, step_id AS step FROM steps JOIN attempts USING (run_id, step_id)
    GROUP BY run_id, step_id HAVING count(*) = 1"""
# %% wrong: The last process, bob#2, did this step itself.
query = """
    SELECT run_id, step FROM journal
    WHERE kind = 'step_finished'
      AND seq < (SELECT max(seq) FROM journal WHERE kind = 'run_started')
    ORDER BY seq DESC"""
# %% wrong: On another: This row is missing: run_id fire, step context
query = """
    SELECT run_id, step FROM journal AS done
    WHERE kind = 'step_finished' AND owner LIKE '%#1'
      AND EXISTS (SELECT 1 FROM journal
                  WHERE run_id = done.run_id AND owner LIKE '%#2')"""
# %% wrong: On another: This row is missing: run_id leak, step model-1
query = """
    SELECT run_id, step FROM journal AS done
    WHERE kind = 'step_finished'
      AND seq < (SELECT seq FROM journal
                 WHERE kind = 'step_recovered' AND run_id = done.run_id)"""
# %% wrong: On another: This row does not belong: run_id pump
query = """
    SELECT 'pump' AS run_id, step FROM (
        SELECT 'context' AS step UNION SELECT 'model-1'
        UNION SELECT 'model-1.tool-1' UNION SELECT 'model-1.tool-2')"""
# %% wrong: Its columns are step; asked are run_id, step.
query = "SELECT step FROM journal WHERE kind = 'step_finished'"
# %% wrong: SQLite cannot run this query: no such column: status
query = "SELECT run_id, step FROM journal WHERE status = 'SUCCEEDED'"
# %% wrong: Give the text of the query, not what it returns.
query = 4

# %% solution
took = """
    SELECT s.task_id, s.run_id, s.step_idx, s.attempt, e.ts - s.ts AS seconds
    FROM journal AS s JOIN journal AS e
      ON e.task_id = s.task_id AND e.run_id = s.run_id
     AND e.step_idx = s.step_idx AND e.attempt = s.attempt
    WHERE s.kind = 'step_started'
      AND e.kind IN ('step_finished', 'step_error')"""
# %% wrong: Its end is that of another attempt: which columns tell attempts apart?
took = """
    SELECT s.task_id, s.run_id, s.step_idx, s.attempt, e.ts - s.ts AS seconds
    FROM journal AS s JOIN journal AS e
      ON e.task_id = s.task_id
     AND e.step_idx = s.step_idx AND e.attempt = s.attempt
    WHERE s.kind = 'step_started'
      AND e.kind IN ('step_finished', 'step_error')"""
# %% wrong: This row stands 2 times
took = """
    SELECT s.task_id, s.run_id, s.step_idx, s.attempt, abs(e.ts - s.ts) AS seconds
    FROM journal AS s JOIN journal AS e
      ON e.run_id = s.run_id AND e.step_idx = s.step_idx AND e.attempt = s.attempt
    WHERE s.kind = 'step_started'
      AND e.kind IN ('step_finished', 'step_error') AND abs(e.ts - s.ts) < 60"""
# %% wrong: Run bbbbbbb2 ended this attempt, by its own clock.
took = """
    SELECT s.task_id, s.run_id, s.step_idx, s.attempt, min(e.ts) - s.ts AS seconds
    FROM journal AS s JOIN journal AS e
      ON e.task_id = s.task_id AND e.step_idx = s.step_idx AND e.seq > s.seq
    WHERE s.kind = 'step_started'
      AND e.kind IN ('step_finished', 'step_error', 'step_recovered')
    GROUP BY s.seq"""
# %% wrong: SQLite cannot run this query: no such column
took = """
    SELECT s.task_id, s.run_id, s.step_idx, s.attempt, s.ended_at - s.ts AS seconds
    FROM journal AS s WHERE s.kind = 'step_started'"""
# %% wrong: This row is missing
took = """
    SELECT s.task_id, s.run_id, s.step_idx, s.attempt, e.ts - s.ts AS seconds
    FROM journal AS s JOIN journal AS e
      ON e.task_id = s.task_id AND e.run_id = s.run_id
     AND e.step_idx = s.step_idx AND e.attempt = s.attempt
    WHERE s.kind = 'step_started' AND e.kind = 'step_finished'"""
# %% wrong: Another task wrote between the two
took = """
    SELECT s.task_id, s.run_id, s.step_idx, s.attempt, e.ts - s.ts AS seconds
    FROM journal AS s JOIN journal AS e
      ON e.seq = s.seq + 1 AND e.task_id = s.task_id
    WHERE s.kind = 'step_started'
      AND e.kind IN ('step_finished', 'step_error')"""

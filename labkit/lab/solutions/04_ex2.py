# %% solution
def bars(journal, task):
    """One row for each bar of the task's timeline."""
    query = """
        SELECT started.run_id, started.step_idx, started.attempt,
               started.seq AS begin_seq, ended.seq AS end_seq
        FROM journal AS started LEFT JOIN journal AS ended
          ON ended.kind IN ('step_finished', 'step_error')
         AND ended.task_id = started.task_id
         AND ended.run_id = started.run_id
         AND ended.step_idx = started.step_idx
         AND ended.attempt = started.attempt
        WHERE started.kind = 'step_started' AND started.task_id = ?
        ORDER BY started.seq"""
    return journal.sql(query, [task])
# %% wrong: there the end was found
def bars(journal, task):
    attempts = journal.attempts(task)
    names = {"started_seq": "begin_seq", "ended_seq": "end_seq"}
    return attempts.rename(columns=names)
# %% wrong: An attempt without an end of its own has a bar, too
def bars(journal, task):
    events = journal.events(task)
    same = ["run_id", "step_idx", "attempt"]
    starts = events[events.kind == "step_started"]
    ends = events[events.kind.isin(["step_finished", "step_error"])]
    pairs = starts.merge(ends[[*same, "seq"]], on=same, suffixes=("", "_end"))
    return pairs.rename(columns={"seq": "begin_seq", "seq_end": "end_seq"})
# %% wrong: its run says at seq 9 how it ended
def bars(journal, task):
    events = journal.events(task)
    same = ["run_id", "step_idx", "attempt"]
    starts = events[events.kind == "step_started"]
    ends = events[events.kind == "step_finished"]
    pairs = starts.merge(ends[[*same, "seq"]], on=same, how="left", suffixes=("", "_end"))
    return pairs.rename(columns={"seq": "begin_seq", "seq_end": "end_seq"})
# %% wrong: is there more than once
def bars(journal, task):
    events = journal.events(task)
    starts = events[events.kind == "step_started"]
    ends = events[events.kind.isin(["step_finished", "step_error", "step_recovered"])]
    same = ["step_idx"]
    pairs = starts.merge(ends[[*same, "seq"]], on=same, how="left", suffixes=("", "_end"))
    return pairs.rename(columns={"seq": "begin_seq", "seq_end": "end_seq"})
# %% wrong: you give a bar of task second
def bars(journal, task):
    attempts = journal.attempts()
    attempts["end_seq"] = attempts.ended_seq.where(attempts.ended_by == attempts.owner)
    return attempts.rename(columns={"started_seq": "begin_seq"})
# %% wrong: a clock may be set back
def bars(journal, task):
    """The next row of the same step, by the clock."""
    events = journal.events(task).sort_values("ts")
    events["end_seq"] = events.groupby("step_idx").seq.shift(-1)
    starts = events[events.kind == "step_started"]
    return starts.rename(columns={"seq": "begin_seq"})
# %% wrong: lacks the columns begin_seq, end_seq
def bars(journal, task):
    return journal.attempts(task)

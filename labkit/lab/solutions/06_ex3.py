# %% solution
def key_for(task_id, idx, attempt):
    return f"{task_id}-{idx}"
# %% wrong: attempt 2 has 'notes-2-2'
def key_for(task_id, idx, attempt):
    return f"{task_id}-{idx}-{attempt}"
# %% wrong: made of time or of chance
def key_for(task_id, idx, attempt):
    import time

    return f"{task_id}-{idx}-{time.time_ns()}"
# %% wrong: belongs to the process or to the day
def key_for(task_id, idx, attempt):
    import os

    return f"{task_id}-{idx}-{os.getpid()}"
# %% wrong: Step 0 of task notes and step 0 of task notes-1 have one key, '0'
def key_for(task_id, idx, attempt):
    return str(idx)
# %% wrong: Step 0 of task notes and step 1 of task notes have one key, 'notes'
def key_for(task_id, idx, attempt):
    return task_id
# %% wrong: Step 11 of task a and step 1 of task a1 have one key, 'a11'
def key_for(task_id, idx, attempt):
    return f"{task_id}{idx}"
# %% wrong: 'notes/0' is no good name for a file
def key_for(task_id, idx, attempt):
    return f"{task_id}/{idx}"
# %% wrong: of type tuple. A key is a text
def key_for(task_id, idx, attempt):
    return task_id, idx

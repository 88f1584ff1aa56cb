# %% solution
def to_do(steps):
    return [step["idx"] for step in steps if step["status"] != "done"]
# %% wrong: step 1 is running though nothing runs
def to_do(steps):
    return [step["idx"] for step in steps if step["status"] == "pending"]
# %% wrong: step 2 is pending, and no other run will do it
def to_do(steps):
    return [step["idx"] for step in steps if step["status"] == "running"]
# %% wrong: step 0 is done, its output is committed
def to_do(steps):
    return [step["idx"] for step in steps]
# %% wrong: Killed at after_commit:1.
def to_do(steps):
    (first,) = [step["idx"] for step in steps if step["status"] == "running"] or [0]
    return list(range(first, len(steps)))
# %% wrong: give a list of indexes, as in [1, 2]
def to_do(steps):
    return len([step for step in steps if step["status"] != "done"])

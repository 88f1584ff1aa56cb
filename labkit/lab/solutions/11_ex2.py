# %% solution
def follow(step, attempts):
    if step is not None and step["checkpoint"]:
        return "reuse"
    if not attempts:
        return "call"
    return "wait"
# %% wrong: it goes out twice
def follow(step, attempts):
    if step is not None and step["checkpoint"]:
        return "reuse"
    if step is not None and step["status"] == "RUNNING":
        return "wait"
    return "call"
# %% wrong: the result of the tool is nowhere
def follow(step, attempts):
    if step is None:
        return "call"
    return "reuse" if step["status"] == "SUCCEEDED" else "wait"
# %% wrong: no attempt is stored: the tool was never called
def follow(step, attempts):
    return "reuse" if step is not None and step["checkpoint"] else "wait"
# %% wrong: the checkpoint is there
def follow(step, attempts):
    return "wait" if attempts else "call"
# %% wrong: then a recovery has ended the attempt. You say call
def follow(step, attempts):
    if step is not None and step["checkpoint"]:
        return "reuse"
    if all(attempt["status"] == "FAILED" for attempt in attempts):
        return "call"
    return "wait"
# %% wrong: has the status PAUSED
def follow(step, attempts):
    if step is None:
        return "call"
    if step["checkpoint"]:
        return "reuse"
    return "wait" if step["status"] in ("RUNNING", "SUCCEEDED") else "call"
# %% wrong: give "call", "reuse" or "wait"
def follow(step, attempts):
    return "stop"

# %% solution
def answer(run, outbox):
    key = f"{run['run_id']}:{run['waiting_step_id']}"
    sent = any(message["key"] == key for message in outbox)
    return "confirm" if sent else "retry"
# %% wrong: Kim has its message 2 times
def answer(run, outbox):
    return "retry"
# %% wrong: though the run says that Kim was told
def answer(run, outbox):
    return "confirm"
# %% wrong: the message in the outbox is of run fan. You answer confirm
def answer(run, outbox):
    return "confirm" if outbox else "retry"
# %% wrong: was answered with a retry, which was killed after notify was called. You answer retry
def answer(run, outbox):
    wanted = run["waiting_step_id"] + "#1"
    return "confirm" if wanted in [m["attempt"] for m in outbox] else "retry"
# %% wrong: Kim has the message, and the run says: SUCCEEDED: not done: NOT_SENT
def answer(run, outbox):
    return "reject"
# %% wrong: use one of retry, confirm
def answer(run, outbox):
    return bool(outbox)

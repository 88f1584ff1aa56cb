# %% solution
def answer(run, outbox):
    key = f"{run['run_id']}:{run['waiting_step_id']}"
    sent = any(message["key"] == key for message in outbox)
    return "confirm" if sent else "retry"
# %% wrong: Kim has its message 2 times
def answer(run, outbox):
    return "retry"
# %% wrong: the outbox is empty. You answer confirm: Kim never gets its message though the run says
def answer(run, outbox):
    return "confirm"
# %% wrong: the message in the outbox is of run pump-2. You answer confirm
def answer(run, outbox):
    sent = any(m["key"].startswith(run["run_id"]) for m in outbox)
    return "confirm" if sent else "retry"
# %% wrong: the message in the outbox is of another step. You answer confirm
def answer(run, outbox):
    sent = any(m["key"].split(":")[0] == run["run_id"] for m in outbox)
    return "confirm" if sent else "retry"
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

# %% solution
def answer(events):
    names = {"step_started": "starts", "step_error": "errors", "step_recovered": "recoveries"}
    counts = events.groupby(["task_id", "step_idx", "kind"], observed=False).size()
    return counts.unstack("kind")[list(names)].rename(columns=names).reset_index()
# %% wrong: After a retry the attempts of a step are numbered from 1 again.
def answer(events):
    steps = events.dropna(subset=["step_idx"])
    steps = steps.assign(
        errors=steps.kind == "step_error", recoveries=steps.kind == "step_recovered"
    )
    grouped = steps.groupby(["task_id", "step_idx"])
    return grouped.agg(
        starts=("attempt", "max"), errors=("errors", "sum"), recoveries=("recoveries", "sum")
    )
# %% wrong: For task_id letter, step_idx 0 your recoveries is 3, not 0.
def answer(events):
    steps = events.assign(
        starts=events.kind == "step_started",
        errors=events.kind == "step_error",
        ended=events.kind == "step_finished",
    )
    table = steps.groupby(["task_id", "step_idx"])[["starts", "errors", "ended"]].sum()
    table["recoveries"] = table.starts - table.ended
    return table.drop(columns="ended")
# %% wrong: A recovery is an event of its own, which the next run writes.
def answer(events):
    steps = events.assign(
        starts=events.kind == "step_started",
        errors=events.kind == "step_error",
        ended=events.kind == "step_finished",
    )
    table = steps.groupby(["task_id", "step_idx"])[["starts", "errors", "ended"]].sum()
    table["recoveries"] = table.starts - table.errors - table.ended
    return table.drop(columns="ended")
# %% wrong: A second attempt says that the first went wrong, not how
def answer(events):
    steps = events.assign(
        starts=events.kind == "step_started", recoveries=events.kind == "step_recovered"
    )
    table = steps.groupby(["task_id", "step_idx"])[["starts", "recoveries"]].sum()
    table["errors"] = table.starts - 1
    return table
# %% wrong: Its columns are step_idx, starts, errors, recoveries; asked are task_id
def answer(events):
    steps = events.assign(
        starts=events.kind == "step_started",
        errors=events.kind == "step_error",
        recoveries=events.kind == "step_recovered",
    )
    return steps.groupby("step_idx")[["starts", "errors", "recoveries"]].sum()
# %% wrong: Your function returns a Series; a DataFrame with
def answer(events):
    return events[events.kind == "step_started"].groupby(["task_id", "step_idx"]).size()
# %% wrong: Your function raised AttributeError
def answer(events):
    return events.steps

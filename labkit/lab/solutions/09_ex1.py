# %% solution
def paid(point, idx, steps):
    needed = sum(step["tool"] == "summarize" for step in steps)
    lost = point == "after_effect" and steps[idx]["tool"] == "summarize"
    return needed + lost
# %% wrong: The answer was committed
def paid(point, idx, steps):
    return sum(step["tool"] == "summarize" for step in steps) + 1
# %% wrong: it does not ask the model
def paid(point, idx, steps):
    needed = sum(step["tool"] == "summarize" for step in steps)
    return needed + (point == "after_effect")
# %% wrong: nothing was bought
def paid(point, idx, steps):
    needed = sum(step["tool"] == "summarize" for step in steps)
    lost = point != "after_commit" and steps[idx]["tool"] == "summarize"
    return needed + lost
# %% wrong: the second run buys it again
def paid(point, idx, steps):
    return sum(step["tool"] == "summarize" for step in steps)

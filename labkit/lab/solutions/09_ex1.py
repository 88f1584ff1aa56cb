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
# %% wrong: Steps 2 and 3 each need an answer, killed or not
def paid(point, idx, steps):
    return sum(step["tool"] == "summarize" for step in steps[idx + 1 :])
# %% wrong: no other is bought twice
def paid(point, idx, steps):
    needed = sum(step["tool"] == "summarize" for step in steps)
    again = sum(step["tool"] == "summarize" for step in steps[: idx + 1])
    return needed + again * (point == "after_effect")

# %% solution
def cost(point, idx):
    first = idx if point == "before_effect" else idx + 1
    published = 1 if first == 3 else 0
    return first + 3, published + 1
# %% wrong: the first process died before the call of step 0
def cost(point, idx):
    first = idx + 1
    return first + 3, 2 if (point, idx) == ("after_effect", 2) else 1
# %% wrong: you say 1 report; a reader finds 2, since both published theirs
def cost(point, idx):
    first = idx if point == "before_effect" else idx + 1
    return first + 3, 1
# %% wrong: Killed at before_effect:1: you say 3 calls; 4 were made, since the second process
def cost(point, idx):
    return 3, 1
# %% wrong: Killed at after_effect:0: you say 3 calls; 4 were made
def cost(point, idx):
    first = idx if point == "before_effect" else 0
    return first + 3, 1
# %% wrong: you say 2 reports; a reader finds 1, since the first had not come to its report
def cost(point, idx):
    first = idx if point == "before_effect" else idx + 1
    return first + 3, 2
# %% wrong: Return two numbers
def cost(point, idx):
    return 3 + idx

# %% solution
reports = {
    "unsafe, before_effect:2": 1,
    "unsafe, after_effect:2": 2,
    "unsafe, after_effect:2 in two runs": 3,
    "unsafe, after_commit:2": 1,
    "unsafe, after_effect:1": 1,
    "safe, after_effect:2 in two runs": 1,
}
# %% wrong: only the second run made it
reports = {
    "unsafe, before_effect:2": 2,
    "unsafe, after_effect:2": 2,
    "unsafe, after_effect:2 in two runs": 3,
    "unsafe, after_commit:2": 2,
    "unsafe, after_effect:1": 1,
    "safe, after_effect:2 in two runs": 1,
}
# %% wrong: Three runs called the tool, and each call appends
reports = {
    "unsafe, before_effect:2": 1,
    "unsafe, after_effect:2": 2,
    "unsafe, after_effect:2 in two runs": 2,
    "unsafe, after_commit:2": 1,
    "unsafe, after_effect:1": 1,
    "safe, after_effect:2 in two runs": 1,
}
# %% wrong: two found its file
reports = {
    "unsafe, before_effect:2": 1,
    "unsafe, after_effect:2": 2,
    "unsafe, after_effect:2 in two runs": 3,
    "unsafe, after_commit:2": 1,
    "unsafe, after_effect:1": 1,
    "safe, after_effect:2 in two runs": 3,
}

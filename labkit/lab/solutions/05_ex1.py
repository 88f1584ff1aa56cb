# %% solution
broken_places = ["after_effect:3", "after_effect:5"]
# %% wrong: You name after_effect:2.
broken_places = ["after_effect:2"]
# %% wrong: You left out after_effect:5.
broken_places = {"after_effect:3"}
# %% wrong: You name before_effect:3.
broken_places = ["before_effect:3", "after_effect:3", "before_effect:5", "after_effect:5"]
# %% wrong: the second run does not call it again
broken_places = ["after_effect:3", "after_commit:3", "after_effect:5", "after_commit:5"]
# %% wrong: 'after_effect:6' is no place
broken_places = ["after_effect:4", "after_effect:6"]
# %% wrong: Give a list of places
broken_places = "after_effect:3"

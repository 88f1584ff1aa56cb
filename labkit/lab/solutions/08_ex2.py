# %% solution
missing = {"fsync": "artifacts", "after": 2}
# %% wrong: artifacts/2026 is forced to the disk by call 8 already
missing = {"fsync": "artifacts/2026", "after": 6}
# %% wrong: . is forced to the disk by call 1 already
missing = {"fsync": ".", "after": 8}
# %% wrong: the name that gets lost is not in that folder yet
missing = {"fsync": "artifacts", "after": 1}
# %% wrong: forces its content, not a name
missing = {"fsync": "artifacts/2026/week.md", "after": 7}
# %% wrong: there is no artifacts/2026/week.md that could be forced
missing = {"fsync": "artifacts/2026/week.md", "after": 2}

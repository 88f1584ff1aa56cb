# %% solution
outcomes = {
    "synchronous OFF, killed": "held",
    "synchronous OFF, power cut": "broken",
    "file not synced, killed": "held",
    "file not synced, power cut": "broken",
    "effect without key, killed": "broken",
    "effect without key, power cut": "broken",
}
# %% wrong: synchronous OFF, killed: you say broken
outcomes = {
    "synchronous OFF, killed": "broken",
    "synchronous OFF, power cut": "broken",
    "file not synced, killed": "broken",
    "file not synced, power cut": "broken",
    "effect without key, killed": "broken",
    "effect without key, power cut": "broken",
}
# %% wrong: file not synced, power cut: you say held
outcomes = {
    "synchronous OFF, killed": "held",
    "synchronous OFF, power cut": "broken",
    "file not synced, killed": "held",
    "file not synced, power cut": "held",
    "effect without key, killed": "broken",
    "effect without key, power cut": "broken",
}
# %% wrong: A power cut that loses nothing is a kill
outcomes = {
    "synchronous OFF, killed": "held",
    "synchronous OFF, power cut": "broken",
    "file not synced, killed": "held",
    "file not synced, power cut": "broken",
    "effect without key, killed": "broken",
    "effect without key, power cut": "held",
}

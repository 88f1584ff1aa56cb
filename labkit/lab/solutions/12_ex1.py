# %% solution
verdicts = {
    "ann, 00:00:29": "stored",
    "ann, 00:00:30, nobody else came": "LeaseNotHeldError",
    "ann, 00:00:49, renewed at 00:00:20": "stored",
    "ann, 00:00:40, bob took over at 00:00:30": "LeaseNotHeldError",
    "bob, 00:00:40, he took over at 00:00:30": "stored",
    "ann, 00:00:40, another ann took over at 00:00:30": "LeaseNotHeldError",
    "ann, 00:00:40, bob took over and ended the run": "StaleRunVersionError",
}
# %% wrong: At 00:00:30 the lease is over, though nobody has come
verdicts = {
    "ann, 00:00:29": "stored",
    "ann, 00:00:30, nobody else came": "stored",
    "ann, 00:00:49, renewed at 00:00:20": "stored",
    "ann, 00:00:40, bob took over at 00:00:30": "LeaseNotHeldError",
    "bob, 00:00:40, he took over at 00:00:30": "stored",
    "ann, 00:00:40, another ann took over at 00:00:30": "LeaseNotHeldError",
    "ann, 00:00:40, bob took over and ended the run": "StaleRunVersionError",
}
# %% wrong: that it has the same name does not help it
verdicts = {
    "ann, 00:00:29": "stored",
    "ann, 00:00:30, nobody else came": "LeaseNotHeldError",
    "ann, 00:00:49, renewed at 00:00:20": "stored",
    "ann, 00:00:40, bob took over at 00:00:30": "LeaseNotHeldError",
    "bob, 00:00:40, he took over at 00:00:30": "stored",
    "ann, 00:00:40, another ann took over at 00:00:30": "stored",
    "ann, 00:00:40, bob took over and ended the run": "StaleRunVersionError",
}
# %% wrong: its version is not the one that ann read
verdicts = {
    "ann, 00:00:29": "stored",
    "ann, 00:00:30, nobody else came": "LeaseNotHeldError",
    "ann, 00:00:49, renewed at 00:00:20": "stored",
    "ann, 00:00:40, bob took over at 00:00:30": "LeaseNotHeldError",
    "bob, 00:00:40, he took over at 00:00:30": "stored",
    "ann, 00:00:40, another ann took over at 00:00:30": "LeaseNotHeldError",
    "ann, 00:00:40, bob took over and ended the run": "LeaseNotHeldError",
}
# %% wrong: the lease ends at 00:00:50
verdicts = {
    "ann, 00:00:29": "stored",
    "ann, 00:00:30, nobody else came": "LeaseNotHeldError",
    "ann, 00:00:49, renewed at 00:00:20": "LeaseNotHeldError",
    "ann, 00:00:40, bob took over at 00:00:30": "LeaseNotHeldError",
    "bob, 00:00:40, he took over at 00:00:30": "stored",
    "ann, 00:00:40, another ann took over at 00:00:30": "LeaseNotHeldError",
    "ann, 00:00:40, bob took over and ended the run": "StaleRunVersionError",
}
# %% wrong: 'refused' is none of the three
verdicts = {
    "ann, 00:00:29": "stored",
    "ann, 00:00:30, nobody else came": "refused",
    "ann, 00:00:49, renewed at 00:00:20": "stored",
    "ann, 00:00:40, bob took over at 00:00:30": "refused",
    "bob, 00:00:40, he took over at 00:00:30": "stored",
    "ann, 00:00:40, another ann took over at 00:00:30": "refused",
    "ann, 00:00:40, bob took over and ended the run": "refused",
}

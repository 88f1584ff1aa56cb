# %% solution
killers = {"A": "a set", "B": "two reports", "C": "second runner"}
# %% wrong: You name 'unharmed' for mutant A
killers = {"A": "unharmed", "B": "two reports", "C": "second runner"}
# %% wrong: One key for a whole task is enough
killers = {"A": "a set", "B": "after_effect:2", "C": "second runner"}
# %% wrong: It matters only while another process is at work
killers = {"A": "a set", "B": "two reports", "C": "lock deleted"}
# %% wrong: 'before' is no case of the table
killers = {"A": "before", "B": "two reports", "C": "second runner"}

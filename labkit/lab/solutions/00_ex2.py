# %% solution
kinds = ["task_created", "run_started", "step_started", "step_finished", "step_started"]
# %% wrong: your list goes on with step_finished. Step 1 was killed
kinds = [
    "task_created", "run_started",
    "step_started", "step_finished", "step_started", "step_finished",
]
# %% wrong: Your list ends after 3 events, and the journal goes on with step_finished
kinds = ["task_created", "run_started", "step_started"]
# %% wrong: Event 4 of the journal is step_finished; your list has step_started there
kinds = ["task_created", "run_started", "step_started", "step_started"]
# %% wrong: a killed process writes nothing
kinds = [
    "task_created", "run_started", "step_started", "step_finished", "step_started", "killed",
]
# %% wrong: Write a list of kinds
kinds = "step_started"
# %% wrong: No event is called 'step_start'; there are
kinds = ["task_created", "run_started", "step_start", "step_finished", "step_start"]

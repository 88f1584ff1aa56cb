# %% solution
def find_faults(exit_code, steps, reports):
    faults = []
    if exit_code != 0:
        faults.append("the second run did not end well")
    wanted = sum(step["tool"] == "write_artifact" for step in steps)
    if len(reports) != wanted:
        faults.append(f"{len(reports)} reports, the plan has {wanted}")
    return faults
# %% wrong: It lets a mutant pass: an agent that takes a step for done
def find_faults(exit_code, steps, reports):
    faults = []
    if exit_code != 0:
        faults.append("the second run did not end well")
    if len(reports) != len(set(reports)):
        faults.append("a report is there twice")
    return faults
# %% wrong: A false alarm: the right agent, whose plan has no report
def find_faults(exit_code, steps, reports):
    faults = []
    if len(reports) != len(set(reports)):
        faults.append("a report is there twice")
    if not reports:
        faults.append("no report")
    return faults
# %% wrong: A false alarm: the right agent, whose plan has two reports
def find_faults(exit_code, steps, reports):
    if len(reports) != 1:
        return ["not one report"]
    return []
# %% wrong: It lets a mutant pass: an agent with one key for both reports
def find_faults(exit_code, steps, reports):
    wanted = any(step["tool"] == "write_artifact" for step in steps)
    twice = len(reports) != len(set(reports))
    return ["lost or doubled"] if twice or (wanted and not reports) else []
# %% wrong: It lets a mutant pass: an agent without keys
def find_faults(exit_code, steps, reports):
    wanted = sum(step["tool"] == "write_artifact" for step in steps)
    return ["lost"] if len(reports) < wanted else []
# %% wrong: It returned False. Return the list of faults
def find_faults(exit_code, steps, reports):
    return exit_code != 0

# %% solution
def is_ready(rows):
    missing = [row for row in rows if row.state == "missing"]
    return len(missing) == 0
# %% wrong: 3 rows and returned True, and one of them is missing
def is_ready(rows):
    return any(row.state == "ok" for row in rows)
# %% wrong: 1 row and returned False, and none of them is missing
def is_ready(rows):
    return any(row.state == "missing" for row in rows)
# %% wrong: 2 rows and returned False, and a warning stops nobody
def is_ready(rows):
    return all(row.state == "ok" for row in rows)
# %% wrong: of type list
def is_ready(rows):
    return [row for row in rows if row.state == "missing"]
# %% wrong: returns nothing
def is_ready(rows):
    print(all(row.state != "missing" for row in rows))

# %% solution
mutant = {
    "file": "labkit/restart/store.py",
    "old": """        with self.db.transaction():
            self._write(kind, *of, **data)""",
    "new": """        self._write(kind, *of, **data)""",
}
# %% wrong: The old text is not found in labkit/restart/store.py
mutant = {
    "file": "labkit/restart/store.py",
    "old": "with self.db.transaction() :",
    "new": "if True:",
}
# %% wrong: The old text stands 3 times in labkit/restart/store.py
mutant = {
    "file": "labkit/restart/store.py",
    "old": "with self.db.transaction():",
    "new": "if True:",
}
# %% wrong: The agent cannot be imported, so it shows nothing: IndentationError
mutant = {
    "file": "labkit/restart/store.py",
    "old": """        with self.db.transaction():
            self._write(kind, *of, **data)""",
    "new": """            self._write(kind, *of, **data)""",
}
# %% wrong: Its unharmed run is broken already
mutant = {
    "file": "labkit/restart/store.py",
    "old": '"step_finished": ("done", "")',
    "new": '"step_finished": ("running", "")',
}
# %% wrong: It is killed by one of the nine points, the case after_effect:0
mutant = {
    "file": "labkit/restart/agent.py",
    "old": """f"{self.task_id}-{step['idx']}", os.getpid()""",
    "new": """f"{self.task_id}-{os.getpid()}", os.getpid()""",
}
# %% wrong: It survives everything
mutant = {
    "file": "labkit/database.py",
    "old": '("foreign_keys", "ON", 1)',
    "new": '("foreign_keys", "OFF", 0)',
}
# %% wrong: That is the lab's own mutant 'two transactions'
mutant = {
    "file": "labkit/restart/store.py",
    "old": """        self.db.execute("INSERT INTO events VALUES""",
    "new": """        self.db.execute("COMMIT")
        self.db.execute("BEGIN IMMEDIATE")
        self.db.execute("INSERT INTO events VALUES""",
}

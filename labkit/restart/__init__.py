"""System 1, the restart agent. Read plan.py, store.py, tools.py, agent.py, __main__.py: ten minutes in this order."""

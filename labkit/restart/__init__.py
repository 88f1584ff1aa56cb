"""System 1, the restart agent. To be read in this order: plan, store, tools, agent, __main__."""

"""Programs for the kit, each a `Scenario`: what the kit is tried on, and how to write one."""

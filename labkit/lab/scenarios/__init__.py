"""Programs that the notebooks run as processes of their own, and the notes they work on."""

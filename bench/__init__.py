"""Speed, side by side in one run: `python -m bench` prints the table that README.md explains."""

"""The checks of the exercises: one module for each notebook, one function for each exercise.

`lab.check("05.ex1", answer)` calls `n05.ex1(answer, desk)`. A check makes its own evidence, so it
works in any order of cells, and it trusts labkit's laws, a real kill and a witness, never a stored
answer alone.
"""

"""Breaks programs on purpose and says what broke: kills, faults, power cuts, mutants."""

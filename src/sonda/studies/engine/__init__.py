"""Carrying a study out: the plan, its points, repetitions, locks, other machines."""

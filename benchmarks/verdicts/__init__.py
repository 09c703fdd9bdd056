"""Verdicts on programs with one planted cause each: how often Sonda names it.

`python -m benchmarks verdicts` observes every program that this machine can run and prints the score.
`python -m benchmarks.verdicts.measure` removes each cause and writes down what that saves.
"""

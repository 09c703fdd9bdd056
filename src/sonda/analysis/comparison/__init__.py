"""Runs held against each other: pairs, repetitions, optimisations, scaling."""

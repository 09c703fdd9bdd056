"""Where people work: what makes Sonda part of other tools. Each is loaded by its tool alone."""

DOORS = ()
"""Modules that other rooms may import: none."""

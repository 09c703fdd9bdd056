"""Samples the stacks of a program's threads: where in the program time goes outside of layers, and how."""

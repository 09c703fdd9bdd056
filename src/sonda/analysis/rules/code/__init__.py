"""Causes in the program's own code, by line."""

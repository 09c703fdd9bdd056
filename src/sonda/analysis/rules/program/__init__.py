"""Causes in the whole program, its processes and its cores."""

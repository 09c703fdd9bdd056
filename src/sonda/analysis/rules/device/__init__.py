"""Causes of a GPU that waits or works slowly, by line."""

"""Causes that the operations of a counted step show."""

"""Counts the operations of a step and the memory of its tensors."""

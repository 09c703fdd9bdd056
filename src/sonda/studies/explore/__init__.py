"""Explorations: the space of designs, its points, the front, searches."""

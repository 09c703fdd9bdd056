"""Figures: their description as plain data, their axes, and how they are drawn as SVG or as a tree."""

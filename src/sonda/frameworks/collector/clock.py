"""Marks in a profile that hold the collector's time: they align the profiler's clock with the collector's."""

from __future__ import annotations

CLOCK = "sonda clock "
"""A mark's name is this prefix and the collector's time just before the mark, ns."""
MARKS = 40
"""How many marks are made. The mark with the shortest time around it is the most exact."""

"""Marks by which a profiler's clock is told apart from the collector's."""

from __future__ import annotations

CLOCK = "sonda clock "
"""A mark's name is this and the collector's time before it, ns."""
MARKS = 40
"""Marks that are made: the one that took the least time between is the most exact."""

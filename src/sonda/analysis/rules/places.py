"""Places in a program: a layer, a line, a phase."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepPlace:
    """Where something happens; '' for what is not known."""

    layer: str = ""
    """Path in the model."""
    line: str = ""
    """`train.py:41`."""
    phase: str = ""

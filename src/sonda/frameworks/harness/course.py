"""How far a training shall go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sonda.record.training import Walk

RECORDED = 2000
"""Steps whose phases are recorded; later ones are left to themselves."""


@dataclass
class Course:
    """How far a training shall go, who keeps its state, and who is told."""

    epochs: int
    sizes: dict[str, int]
    """Samples of each share."""
    done: int = 0
    """Epochs that are behind it already."""
    keep: Callable[[int, Any, Any, list[Walk]], None] = lambda done, learner, loop, walks: None
    """Called after every epoch, outside of its time, on every rank; the loop has the optimizer and scales the loss."""
    end: Callable[[Any], None] = lambda learner: None
    """Called after the test, while the weights are those that were tested."""
    tell: Callable[[str, int, int, int, list[Walk]], None] = lambda part, epoch, step, steps, walks: None

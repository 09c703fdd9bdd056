"""How far a training shall go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sonda.record.training import Walk

RECORDED = 2000
"""How many training steps are recorded; later ones are not."""


@dataclass
class Course:
    """How far a training shall go, and what is called on the way."""

    epochs: int
    sizes: dict[str, int]
    """Samples of each part."""
    done: int = 0
    """Epochs that were done before."""
    keep: Callable[[int, Any, Any, list[Walk]], None] = lambda done, learner, loop, walks: None
    """Called after every epoch, outside its time, on every rank. The loop has the optimizer and scales the loss."""
    end: Callable[[Any], None] = lambda learner: None
    """Called after the test, while the learner has the tested weights."""
    tell: Callable[[str, int, int, int, list[Walk]], None] = lambda part, epoch, step, steps, walks: None
    """Called after every step with its part, epoch and number, the number of steps, and the walks so far."""

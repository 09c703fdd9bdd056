"""Helpers of `test_optimisations.py` that other tests use too."""

from __future__ import annotations

from typing import Any

import numpy as np

from builders import stepped
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import Summary

CHANGES: dict[str, dict[str, object]] = {
    "base": {},
    "prefetch": {"prefetch": 2, "workers": 1},
    "mixed": {"precision": "mixed_bfloat16"},
    "both": {"prefetch": 2, "workers": 1, "precision": "mixed_bfloat16"},
}


def summaries(middle: float, noise: float = 0.01, processes: int = 4, seed: int = 0, **info: Any) -> list[Summary]:
    """Processes of 20 steps of about so many ms; noise from process to process and from step to step is alike."""
    drawn = np.random.default_rng([seed, int(1000 * middle)])
    shifts = middle * (1 + noise * drawn.standard_normal(processes))
    runs = [shift * (1 + noise * drawn.standard_normal(20)) for shift in shifts]
    return [summarise(stepped(steps, **info)) for steps in runs]

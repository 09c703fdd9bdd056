"""Repetitions of one figure: mean with its interval, least, most; and the quotient of two sets of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from sonda.analysis.statistics import CONFIDENCE, ratio, side, student
from sonda.analysis.summary import Value


@dataclass(frozen=True)
class Spread:
    """A mean with its 95 % interval (Student's t), least and most; no interval of a single value."""

    mean: float
    low: float | None
    high: float | None
    minimum: float
    maximum: float


def spread(values: Sequence[float]) -> Spread:
    """Of one value or more."""
    mean = fmean(values)
    if len(values) < 2:
        return Spread(mean, None, None, min(values), max(values))
    reach = student((1 + CONFIDENCE) / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Spread(mean, mean - reach, mean + reach, min(values), max(values))


def quotient(above: Sequence[float], below: Sequence[float], comparisons: int = 1) -> Value:
    """Median of `above` over median of `below`, positive both, with the 95 % interval of repeated processes.

    Without repetitions on either side there is no interval. So many `comparisons` hold at once with 95 %.
    """
    if not above or not below or min(*above, *below) <= 0:
        return Value(None, "1", "derived", reason="nothing to divide")
    sides = [side([np.array([[value]]) for value in values], [1] * len(values)) for values in (below, above)]
    middle, low, high = (float(end[0]) for end in ratio(sides[0], sides[1], comparisons))
    alone = max(len(above), len(below)) < 2
    reason = "one repetition has no interval" if alone else ""
    return Value(middle, "1", "derived", None if alone else low, None if alone else high, reason)

"""Repeated measurements: the spread of one figure, the best of several ways to do the same work, accuracy over epochs.

A way is the best only where repetitions tell it from all others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.statistics import CONFIDENCE, ratio, side, student
from sonda.analysis.steps.training import Training
from sonda.analysis.summary import Value

# ---- Mean, interval, least and most of one figure; quotient of two sets ---------------------------------------------


@dataclass(frozen=True)
class Spread:
    """A mean with its 95 % interval (Student's t), least and most; no interval of a single value."""

    mean: float
    low: float | None
    high: float | None
    minimum: float
    maximum: float


def spread(values: Sequence[float], most: float | None = None) -> Spread:
    """Of one value or more; of parts of a whole, which is `most`, the interval ends there and at 0."""
    mean = fmean(values)
    if len(values) < 2:
        return Spread(mean, None, None, min(values), max(values))
    reach = student((1 + CONFIDENCE) / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    low, high = mean - reach, mean + reach
    if most is not None:
        low, high = max(low, 0.0), min(high, most)
    return Spread(mean, low, high, min(values), max(values))


def quotient(above: Sequence[float], below: Sequence[float], comparisons: int = 1) -> Value:
    """Median of `above` over median of `below`, positive both, with the 95 % interval of repeated processes.

    Without repetitions on either side there is no interval. So many `comparisons` hold at once with 95 %.
    """
    if not above or not below or min(*above, *below) <= 0:
        return Value(None, "1", "derived", reason=reasons.NOTHING_TO_DIVIDE)
    sides = [side([np.array([[value]]) for value in values], [1] * len(values)) for values in (below, above)]
    middle, low, high = (float(end[0]) for end in ratio(sides[0], sides[1], comparisons))
    alone = max(len(above), len(below)) < 2
    reason = reasons.ONE_REPETITION if alone else ""
    return Value(middle, "1", "derived", None if alone else low, None if alone else high, reason)


# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BestOption:
    """A way that is better than the others."""

    best: str
    other: str
    """What it is held against: the usual way, or the next best where the best is the usual one."""
    times: Value
    """How many times as good as that; without an interval where nothing is measured."""


def best_of(
    values: Mapping[str, Sequence[float]], usual: str, *, larger: bool = False, exact: bool = False,
    comparisons: int = 1,
) -> BestOption | None:  # fmt: skip
    """The way whose figure is less, or `larger`, than that of every other; None where that cannot be told.

    `values` are the repetitions of every way. Measured ones need two or more each, and an interval above 1 that holds
    with 95 % for all `comparisons` at once; `exact` ones, which are simulated, differ or do not.
    """
    known = {name: list(of) for name, of in values.items() if of and min(of) > 0}
    if len(known) < 2 or (not exact and min(map(len, known.values())) < 2):
        return None
    order = sorted(known, key=lambda name: median(known[name]), reverse=larger)
    best, *others = order
    times = {name: _times(known[best], known[name], larger, exact, comparisons) for name in others}
    least = [times_as_fast.value if exact else times_as_fast.low for times_as_fast in times.values()]
    if any(low is None or low <= 1 for low in least):
        return None
    second = usual if usual in times else others[0]
    return BestOption(best, second, times[second])


def _times(best: Sequence[float], second: Sequence[float], larger: bool, exact: bool, comparisons: int) -> Value:
    above, below = (best, second) if larger else (second, best)
    if exact:
        return Value(median(above) / median(below), "1", "derived")
    return quotient(above, below, comparisons=comparisons)


# ---- Accuracy over epochs, with its spread over repetitions ---------------------------------------------------------


@dataclass(frozen=True)
class CurvePoint:
    """One epoch of all repetitions."""

    epoch: int
    """From 1."""
    accuracy: Spread
    """Of the validation, 0 to 1."""
    passed: float
    """s of training and validation until then, mean."""
    n: int


def accuracy_curve(trainings: Sequence[Training]) -> tuple[CurvePoint, ...]:
    """One point for every epoch that some repetition validated."""
    by_epoch: dict[int, list[tuple[float, float]]] = {}
    for training in trainings:
        for epoch in training.epochs:
            if epoch.accuracy is not None:
                by_epoch.setdefault(epoch.number, []).append((epoch.accuracy, epoch.passed / 1e9))
    return tuple(
        CurvePoint(
            number,
            spread([accuracy for accuracy, _ in seen], 1.0),
            sum(seconds for _, seconds in seen) / len(seen),
            len(seen),
        )
        for number, seen in sorted(by_epoch.items())
    )

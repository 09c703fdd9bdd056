"""A slowdown with its interval: a ratio of means, measured in turn in the same processes, several times.

Each repetition gives the logarithm of one ratio. The interval is Student's t over repetitions, never narrower than what
the pieces within windows allow. Fewer than three repetitions have none: of two it is so wide that it says nothing, of
one it would leave out how processes differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.statistics import CONFIDENCE, RESAMPLES, SEED, effective_size, student
from sonda.analysis.summary import Value

LARGEST_REACH = 20.0
"""Of an interval, as a logarithm: beyond it nothing is known anyway."""
FEWEST_REPETITIONS = 3


@dataclass(frozen=True)
class Rate:
    """A mean, and the square of its standard error over it."""

    mean: float
    variance: float


def rate(amounts: np.ndarray, counts: np.ndarray | None = None) -> Rate:
    """Sum of amounts over sum of counts, as a ratio estimator (Cochran, Sampling Techniques, 6.3)."""
    counts = np.ones(len(amounts)) if counts is None else counts
    total = float(amounts.sum())
    if total <= 0:
        return Rate(math.nan, 0.0)
    mean = total / float(counts.sum())
    if len(amounts) < 2:
        return Rate(mean, 0.0)
    pieces = effective_size(amounts / counts)
    residuals = amounts - mean * counts
    variance = len(amounts) ** 2 / (len(amounts) - 1) * float(residuals @ residuals) / total**2 / pieces
    return Rate(mean, variance)


@dataclass(frozen=True)
class SlowdownLaw:
    """A slowdown: its logarithm is `middle` ± Student's t with `freedom` degrees x `error`."""

    middle: float
    error: float
    freedom: int
    """0 where there were too few repetitions."""
    nothing: str = ""
    """Why nothing is known of it."""

    @property
    def reason(self) -> str:
        """Why it has no interval; empty where it has one."""
        if self.nothing or not self.freedom:
            return self.nothing or reasons.FEW_REPETITIONS
        return "" if self.error > 0 else reasons.NO_SPREAD

    def value(self) -> Value:
        if not math.isfinite(self.middle):
            return Value(None, "1", "derived", reason=self.nothing or reasons.NO_TIME_SPENT)
        if self.reason:
            return Value(math.exp(self.middle), "1", "derived", reason=self.reason)
        reach = min(student((1 + CONFIDENCE) / 2, self.freedom) * self.error, LARGEST_REACH)
        low, high = math.exp(self.middle - reach), math.exp(self.middle + reach)
        return Value(math.exp(self.middle), "1", "derived", low, high)


def paired_slowdown(rates: Sequence[tuple[Rate, Rate]]) -> SlowdownLaw:
    """The slowdown from before to after, of as many repetitions as there are pairs."""
    logs = [math.log(after.mean / before.mean) for before, after in rates]
    within = [before.variance + after.variance for before, after in rates]
    if not logs or not all(math.isfinite(logarithm) for logarithm in logs):
        return SlowdownLaw(math.nan, 0.0, 1)
    if len(logs) < FEWEST_REPETITIONS:
        return SlowdownLaw(float(np.mean(logs)), 0.0, 0)
    # Few repetitions may agree by chance: they cannot be more exact than what was measured within each.
    between = float(np.var(logs, ddof=1))
    return SlowdownLaw(float(np.mean(logs)), math.sqrt(max(between, float(np.mean(within))) / len(logs)), len(logs) - 1)


def unknown_slowdown(reason: str) -> SlowdownLaw:
    """The slowdown of a program of which nothing is known."""
    return SlowdownLaw(math.nan, 0.0, 0, reason)


def joint_figure(laws: Sequence[SlowdownLaw], combine: Callable[[np.ndarray], np.ndarray]) -> Value:
    """A figure of several slowdowns. Its interval: each slowdown drawn from its own law, independently."""
    if not laws:
        return Value(None, "1", "derived", reason=reasons.NO_NEIGHBOUR)
    missing = [law.value().reason for law in laws if not math.isfinite(law.middle)]
    if missing:
        return Value(None, "1", "derived", reason=missing[0])
    middles = np.exp([law.middle for law in laws])
    value = float(combine(middles[:, None])[0])
    unsure = [law.reason for law in laws if law.reason]
    if unsure:
        return Value(value, "1", "derived", reason=unsure[0])
    generator = np.random.default_rng([SEED, len(laws)])
    draws = np.empty((len(laws), RESAMPLES))
    for place, law in enumerate(laws):
        spread = law.error * generator.standard_t(law.freedom, RESAMPLES)
        draws[place] = middles[place] * np.exp(np.clip(spread, -LARGEST_REACH, LARGEST_REACH))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(combine(draws), [tail, 1 - tail])
    # The smallest over the largest is biased once they are drawn apart: the figure itself is always inside.
    return Value(value, "1", "derived", min(float(low), value), max(float(high), value))

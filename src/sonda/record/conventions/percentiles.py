"""When a percentile of latencies may be quoted: MLPerf Inference's counts of queries; intervals by order statistics.

Two rules. **The full count**: with percentile p, the share of late queries is known to a twentieth of 1 - p with 99 %
confidence once there are z²·p(1-p)/margin² queries (normal approximation), rounded up to a multiple of 8,192: 24,576
for the 90th percentile, 270,336 for the 99th. **Early stopping**: n queries with t late ones show that the percentile
is below the bound when P(X ≤ t) ≤ 0.01, X binomial(n, 1-p); 64 queries are then enough for an estimate of the 90th
percentile, 662 for the 99th. Both take queries to be independent of each other.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

CONFIDENCE = 0.99
MARGIN_PART = 20
"""The margin is this part of 1 - p."""
ROUNDED_TO = 2**13
INTERVAL = 0.95
"""Coverage of the intervals of percentiles."""


def full_count(percentile: float) -> int:
    """Queries after which a percentile (0 to 1) may be quoted as it was counted."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    margin = (1 - percentile) / MARGIN_PART
    needed = z**2 * percentile * (1 - percentile) / margin**2
    return math.ceil(needed / ROUNDED_TO) * ROUNDED_TO


@lru_cache(maxsize=4096)
def late_allowed(queries: int, percentile: float) -> int:
    """The most late ones among so many queries that still show the percentile to be below the bound; -1: none would."""
    below = _distribution(queries, 1 - percentile, math.ceil(queries * (1 - percentile)) + 1)
    return int(np.searchsorted(below, 1 - CONFIDENCE, side="right")) - 1


def least_queries(late: int, percentile: float) -> int:
    """The fewest queries that show it with so many late ones among them."""
    high = late + 1
    while late_allowed(high, percentile) < late:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if late_allowed(middle, percentile) >= late else (middle, high)
    return high


def early_estimate(ordered: np.ndarray, percentile: float) -> float | None:
    """The percentile as early stopping estimates it from sorted latencies: too high rather than too low.

    Of the t late ones that would be allowed, the t - 1 highest are left out; None with too few queries.
    """
    allowed = late_allowed(len(ordered), percentile) if len(ordered) else -1
    return float(ordered[len(ordered) - allowed]) if allowed >= 1 else None


def at_percentile(ordered: np.ndarray, percentile: float) -> float:
    """The percentile of sorted values as LoadGen takes it: the value that floor(n·p) others are not above."""
    # 0.9 · 10 is 9 and must not become 8.999...
    return float(ordered[min(int(len(ordered) * percentile + 1e-9), len(ordered) - 1)])


def interval(ordered: np.ndarray, percentile: float, independent: int | None = None) -> tuple[float, float] | None:
    """The two order statistics that hold the percentile with at least 95 %, whatever the distribution; None: too few.

    Where queries resemble their neighbours, `independent` says how many they are worth.
    """
    count = len(ordered)
    worth = min(count, independent or count)
    if not worth:
        return None
    below = _distribution(worth, percentile, worth)
    tail = (1 - INTERVAL) / 2
    # P(X < low) ≤ tail and P(X ≥ high) ≤ tail, X values below the percentile; ranks from 1.
    low = int(np.searchsorted(below, tail, side="right"))
    high = int(np.searchsorted(below, 1 - tail, side="left")) + 1
    if low < 1 or high > worth:
        return None
    spread = count / worth
    return float(ordered[max(0, math.floor(low * spread) - 1)]), float(
        ordered[min(count, math.ceil(high * spread)) - 1]
    )


def _distribution(trials: int, probability: float, most: int) -> np.ndarray:
    """P(X ≤ k) for k = 0 … most, X binomial; in logarithms, because single terms fall below 1e-300."""
    k = np.arange(min(most, trials), dtype=np.float64)
    steps = np.log((trials - k) / (k + 1)) + math.log(probability / (1 - probability))
    logs = trials * math.log1p(-probability) + np.concatenate(([0.0], np.cumsum(steps)))
    return np.cumsum(np.exp(logs))

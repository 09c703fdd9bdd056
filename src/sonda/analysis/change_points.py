"""Change points of a series: where its level changes for longer than a moment, or that it drifts.

**Method.** Binary segmentation on ranks. A segment of n values is split where the standardised rank sum before the
split is most unlike chance (the Wilcoxon statistic, maximised over all splits: Pettitt 1979, Appl. Stat. 28, 126).
Where no split is, a stretch inside it is tried against what lies around (Olshen and others 2004, Biostatistics 5, 557),
which finds a level that comes and goes. Ranks make single slow steps harmless and need no idea of how the noise is
distributed. The critical values are exceeded once in 1,000 series of independent values by each of the two tests; they
depend on n alone and were simulated. Values that resemble their neighbours are worth fewer: the statistic is lowered by
their correlation, read from differences. What is found is then moved to where two levels fit best,
and kept where the medians on both sides differ by 5 % or more.

A drift is a rank correlation with the order of the values (Spearman's) that chance reaches once in 1,000 series,
lowered in the same way. Where a straight line explains the series better than the levels do (Bayesian information
criterion, absolute deviations), the series drifts and has no change points.

**Limits.** In short series the correlation of neighbours is hardly known: of series of 20 to 50 values with a
correlation of 0.5 about three in a hundred have a change point that is none, with one of 0.8 five to eight; with 200
values it is one or two in a hundred, and of independent values, however distributed, one in 500.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

SHORTEST = 5
"""Values on either side of a change: what lasts less is a moment."""
MOST = 256
"""Longer series are taken as medians of so many stretches; places are then found again among all values."""
LEAST_CHANGE = 0.05
"""Below 5 % a change is not worth a sentence."""
CHANCE = 1.0
"""Correlations of neighbours below this many times 1/sqrt(n) are taken for chance."""
FAR = 6.0
"""Levels, or ends of a line, this many standard deviations of the values apart do not come about by correlation."""
CRITICAL_ORDER = 3.29
"""Exceeded by a standard normal variable, either way, once in 1,000 times."""
REACH = 3
"""Values, or stretches of a long series, by which a place may be off before the levels are fitted."""

LENGTHS = (10, 12, 14, 16, 18, 20, 25, 30, 40, 60, 80, 120, 180, 256)
SPLIT = (2.611, 2.882, 3.098, 3.254, 3.306, 3.381, 3.504, 3.598, 3.680, 3.819, 3.951, 4.014, 4.092, 4.117)
"""By length: exceeded by the largest rank sum over all splits in 1 of 1,000 series (100,000 permutations and more)."""
STRETCH = (2.611, 2.882, 3.130, 3.361, 3.488, 3.628, 3.807, 3.938, 4.121, 4.346, 4.481, 4.532, 4.699, 4.772)
"""The same over all stretches (40,000 permutations and more)."""


@dataclass(frozen=True)
class Change:
    """From value `at` (counting from 0) up to but not including `until` the median is `after`; it was `before`."""

    at: int
    until: int
    before: float
    after: float

    @property
    def relative(self) -> float:
        """0.3 is 30 % more; infinite where it was 0."""
        return (self.after - self.before) / abs(self.before) if self.before else math.copysign(math.inf, self.after)


@dataclass(frozen=True)
class Drift:
    """The series follows a straight line from `first` to `last`."""

    first: float
    last: float

    @property
    def relative(self) -> float:
        return (self.last - self.first) / abs(self.first) if self.first else math.copysign(math.inf, self.last)


def find_changes(series: np.ndarray) -> tuple[tuple[Change, ...], Drift | None]:
    """The changes of a series without gaps, in order; or its drift, and no changes then."""
    values = np.asarray(series, dtype=np.float64)
    if len(values) < 2 * SHORTEST:
        return (), None
    size = -(-len(values) // MOST)
    blocks = np.array([np.median(values[at : at + size]) for at in range(0, len(values), size)])
    places = sorted(set(_places(blocks, 0, len(blocks))))
    ends = [0, *(place * size for place in places), len(values)]
    if places:
        ends = _fitted(values, ends, REACH * size)
    line = _line(values, blocks, size)
    if line is not None and _better(line, values, ends):
        return (), line if abs(line.relative) >= LEAST_CHANGE else None
    return _worth(values, ends), None


def _places(values: np.ndarray, first: int, last: int) -> list[int]:
    """Where the level changes between `first` and `last`, in any order."""
    strongest = _strongest(values[first:last])
    inside = sorted({first + place for place in strongest if 0 < place < last - first})
    ends = [first, *inside, last]
    if not inside:
        return []
    return inside + [place for start, end in pairwise(ends) for place in _places(values, start, end)]


def _strongest(segment: np.ndarray) -> tuple[int, ...]:
    """The one split, or both ends of the one stretch, that chance does not explain; empty where there is none."""
    count = len(segment)
    if count < 2 * SHORTEST:
        return ()
    ranks = _ranks(segment)
    centred = ranks - ranks.mean()
    spread = float((centred**2).mean())
    if spread == 0:
        return ()
    sums = np.concatenate(([0.0], np.cumsum(centred)))
    lengths = np.arange(count + 1)
    deviation = np.sqrt(np.maximum(lengths * (count - lengths) / (count - 1) * spread, 1e-300))
    splits = np.abs(sums[SHORTEST : count - SHORTEST + 1]) / deviation[SHORTEST : count - SHORTEST + 1]
    split = SHORTEST + int(np.argmax(splits))
    if float(splits.max()) * _lowering(segment, (split,)) > _critical(count, SPLIT):
        return (split,)
    best, ends = 0.0, (0, 0)
    for length in range(SHORTEST, count - SHORTEST + 1):
        apart = np.abs(sums[length:] - sums[: count + 1 - length])
        start = int(np.argmax(apart))
        strength = float(apart[start] / deviation[length])
        if strength > best:
            best, ends = strength, (start, start + length)
    if best == 0:
        return ()  # a pattern that repeats itself: every stretch is as high as every other
    return ends if best * _lowering(segment, ends) > _critical(count, STRETCH) else ()


def _critical(count: int, table: tuple[float, ...]) -> float:
    return float(np.interp(math.log(count), np.log(LENGTHS), table))


def _ranks(values: np.ndarray) -> np.ndarray:
    """1 to n; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], dtype=np.float64)


def _lowering(values: np.ndarray, places: tuple[int, ...] = ()) -> float:
    """By how much correlated neighbours weaken a sum of these values, up to 1; their level changes at `places`.

    The variance of a sum of a first-order autoregressive series grows by (1+r)/(1-r). Its r is read from differences on
    one level, which neither a line nor a few more changes disturb: those of values two places apart vary (1+r) times as
    much as those of neighbours.
    """
    level = np.zeros(len(values), dtype=np.int64)
    for place in places:
        level[place:] += 1
    if places and _far_apart(values, level % 2 == 1):
        return 1.0
    varied = []
    for lag in (1, 2):
        same = level[lag:] == level[:-lag]
        varied.append(_variation((values[lag:] - values[:-lag])[same]))
    correlation = min(varied[1] / varied[0] - 1, 0.95) if varied[0] > 0 else 0.0
    if correlation <= CHANCE / math.sqrt(len(values)):
        return 1.0
    return math.sqrt((1 - correlation) / (1 + correlation))


def _far_apart(values: np.ndarray, inside: np.ndarray) -> bool:
    """Whether two levels are so far apart that no correlation explains it."""
    levels = float(np.median(values[inside])), float(np.median(values[~inside]))
    spread = 1.4826 * float(np.median(np.abs(values - np.where(inside, *levels))))
    return abs(levels[0] - levels[1]) > FAR * spread


def _variation(differences: np.ndarray) -> float:
    """Their variance, those beyond Tukey's inner fences drawn in to them."""
    first, third = np.quantile(differences, [0.25, 0.75])
    reach = 1.5 * (third - first)
    return float(np.clip(differences, first - reach, third + reach).var())


def _fitted(values: np.ndarray, ends: list[int], reach: int) -> list[int]:
    """Move every place by up to `reach` to where the levels on both sides fit best."""
    ends = list(ends)
    for at in range(1, len(ends) - 1):
        before, after = (float(np.median(values[start:end])) for start, end in pairwise(ends[at - 1 : at + 2]))
        low = max(ends[at - 1] + 1, ends[at] - reach)
        high = min(ends[at + 1] - 1, ends[at] + reach)
        window = values[low:high]
        # What it costs, against none of them, that the first so many values of the window belong to the level before.
        costs = np.concatenate(([0.0], np.cumsum(np.abs(window - before) - np.abs(window - after))))
        ends[at] = low + int(np.argmin(costs))
    return ends


def _deviation(values: np.ndarray) -> float:
    """Sum of the distances from the median."""
    return float(np.abs(values - np.median(values)).sum())


def _line(values: np.ndarray, blocks: np.ndarray, size: int) -> Drift | None:
    """The line through the series, where its order is more than chance."""
    count = len(blocks)
    order = np.arange(count, dtype=np.float64)
    ranks, places = _ranks(blocks), order - order.mean()
    spread = float(ranks.std() * places.std())
    if spread == 0:
        return None
    strength = abs(float((ranks - ranks.mean()) @ places)) / count / spread * math.sqrt(count - 1)
    if strength <= CRITICAL_ORDER:
        return None
    rise = blocks[None, :] - blocks[:, None]
    run = order[None, :] - order[:, None]
    # Theil and Sen: the median slope of all pairs.
    slope = float(np.median(rise[run > 0] / run[run > 0]))
    rest = blocks - slope * order
    away = 1.4826 * float(np.median(np.abs(rest - np.median(rest))))
    far = abs(slope) * (count - 1) > FAR * away
    if slope == 0 or strength * (1.0 if far else _lowering(blocks)) <= CRITICAL_ORDER:
        return None
    slope /= size
    level = float(np.median(values - slope * np.arange(len(values))))
    return Drift(level, level + slope * (len(values) - 1))


def _better(line: Drift, values: np.ndarray, ends: list[int]) -> bool:
    """Whether a line explains the series better than its levels do."""
    count = len(values)
    along = float(np.abs(values - np.linspace(line.first, line.last, count)).sum())
    levels = sum(_deviation(values[start:end]) for start, end in pairwise(ends))
    # A level and a place each for every change, beside the first level; a line has a level and a slope.
    return _criterion(along, count, 2) < _criterion(levels, count, 2 * len(ends) - 3)


def _criterion(deviation: float, count: int, parameters: int) -> float:
    """Bayesian information criterion under Laplace noise; a perfect fit is as good as one to the last digit."""
    return 2 * count * math.log(max(deviation / count, 1e-300)) + parameters * math.log(count)


def _worth(values: np.ndarray, ends: list[int]) -> tuple[Change, ...]:
    """The changes of 5 % and more; smaller ones are taken out one by one, the smallest first."""
    ends = list(ends)
    while True:
        levels = [float(np.median(values[start:end])) for start, end in pairwise(ends)]
        changes = [
            Change(ends[at], ends[at + 1], before, after) for at, (before, after) in enumerate(pairwise(levels), 1)
        ]
        small = [change for change in changes if abs(change.relative) < LEAST_CHANGE or change.before == change.after]
        if not small:
            return tuple(changes)
        ends.remove(min(small, key=lambda change: abs(change.after - change.before)).at)

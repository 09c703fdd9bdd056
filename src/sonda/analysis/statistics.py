"""Statistics of step times: medians with intervals, warm-up, noise, and the ratio of two groups of runs.

**The interval of a median** is the percentile bootstrap. A resample's median is one of the sample's own ordered values,
so only its rank is random, and that rank has a known law: the middle one of m uniform draws is Beta((m+1)/2, (m+1)/2)
(Maritz and Jarrett 1978, J. Am. Stat. Assoc. 73, 194). Drawing ranks instead of resamples gives the same interval for
any number of columns at the price of one sort. BCa is no better here: its acceleration comes from the jackknife, which
is inconsistent for the median (Efron 1979, Ann. Stat. 7, 1). With few values percentiles are too narrow; the tails are
therefore those of Student's t (the expanded percentile interval of Hesterberg 2015, Am. Stat. 69, 371). The interval
lies between two order statistics, so that its coverage is a binomial sum: 93 % to 98 % from six values on. With fewer,
no interval between two values reaches 95 %, and it is the whole range.

**Steps are not independent**: a neighbour on the machine slows ten steps in a row. Where neighbouring steps resemble
each other more than chance allows, resamples are made smaller, as if there were only `effective_size` of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from sonda.analysis.doubts import Drifted, FewSteps, NoisySteps
from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value

CONFIDENCE = 0.95
SEED = 1979
"""Any number: it makes the same run give the same interval every time it is read."""
RESAMPLES = 4000
"""The ends of a 95 % interval of twenty values then rest on 60 resamples each."""

WARMUP_SHARE = 3
"""At most one step in three can be warm-up: what lasts longer is how the program runs."""
SHORTEST_SERIES = 4
"""With fewer steps there is no 'rest' to be unlike."""
FENCE = 3.0
"""Tukey's outer fence, in interquartile ranges: 4.7 standard deviations of a normal series."""
LEAST_DEVIATION = 0.02
"""A first step within 2 % of the rest does no harm, however quiet the machine is."""

SHORTEST_CORRELATED = 10
"""With fewer steps a correlation between neighbours cannot be told from chance."""
NOISY = 0.05
"""Above ±5 % a regression of 5 %, which is what continuous integration usually asks about, is invisible."""
MOST_TIMES = 100
"""More than so many times the steps is no advice: beyond ±50 % it is not their number that is wrong."""
DRIFT = 0.05
"""Two halves of a run that differ by 5 %, beyond their intervals, are two different machines."""
WANTED_STEPS = 20
"""What is asked for where there are too few steps."""
POWER = 0.8
"""How often an experiment of the size that is asked for tells what it is made to tell."""
MOST_REPETITIONS = 100
"""More are asked of nobody."""
OF_MEDIAN = 0.5
"""Efficiency of the interval of a median against that of the mean: the median's variance is pi/2 of the mean's
(Laplace), and its bootstrap is slow to get there (Hall and Martin 1988, Probab. Th. Rel. Fields 80, 261): both together
are 1.8 to 2.0 of the mean's for 6 to 20 normal values, as simulated."""
ENOUGH_STEPS = 6
"""The least number of values whose range covers the median with 95 %: 1 - 2 * 0.5**6 = 0.969, but 0.9375 for five."""


def interval_words(count: int) -> str:
    """What the two ends beside the median of so many values are: fewer than six reach no 95 %."""
    return "95 % interval" if count >= ENOUGH_STEPS else f"least to most of {count}"


@dataclass(frozen=True)
class Estimate:
    """A median and its 95 % interval, of fewer than six values least and most; None when there is only one value."""

    value: float
    low: float | None
    high: float | None
    few: int = 0
    """How many values there were, where these are too few for a 95 % interval."""

    @property
    def noise(self) -> float:
        """Half-width of the interval over the median; NaN without an interval."""
        if self.low is None or self.high is None or self.value <= 0:
            return math.nan
        return (self.high - self.low) / 2 / self.value


@lru_cache(maxsize=256)
def _middles(count: int) -> np.ndarray:
    """Where, from 0 to 1, the median of `count` draws falls; seeded."""
    shape = (count + 1) / 2
    return np.random.default_rng([SEED, count]).beta(shape, shape, RESAMPLES)


def medians(table: np.ndarray, effective: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Median, low and high end of every column of a table with one row per step.

    Low and high are NaN with fewer than two rows. `effective` is the number of independent rows, all unless told.
    """
    steps = len(table)
    if steps == 0:
        missing = np.full(table.shape[1:], np.nan)
        return missing, missing, missing
    ordered = np.sort(table, axis=0)
    middle = (ordered[(steps - 1) // 2] + ordered[steps // 2]) / 2
    if steps < 2:
        missing = np.full(middle.shape, np.nan)
        return middle, missing, missing
    size = max(2, effective or steps)
    tail = NormalDist().cdf(-math.sqrt(size / (size - 1)) * student((1 + CONFIDENCE) / 2, size - 1))
    low, high = np.quantile(_middles(size), [tail, 1 - tail])
    return middle, ordered[int(low * steps)], ordered[min(int(high * steps), steps - 1)]


def median(values: Sequence[float] | np.ndarray, effective: int | None = None) -> Estimate:
    """Median of one series with its interval. Raises ValueError for an empty series."""
    series = np.asarray(values, dtype=np.float64)
    if len(series) == 0:
        raise ValueError("the median of nothing")
    middle, low, high = (float(end) for end in medians(series, effective))
    if len(series) < 2:
        return Estimate(middle, None, None)
    return Estimate(middle, low, high, len(series) if len(series) < ENOUGH_STEPS else 0)


def find_warmup(durations: Sequence[float] | np.ndarray) -> int:
    """How many steps at the beginning are not like the rest: 0 to a third of them.

    The rest is what can never be warm-up, the last two thirds. A step is unlike it when it lies beyond Tukey's outer
    fence and more than 2 % from its median, slower or faster. Warm-up has to end: a series whose first third and the
    step after it are all unlike the rest has changed its level, and nothing is set apart.
    """
    series = np.asarray(durations, dtype=np.float64)
    if len(series) < SHORTEST_SERIES:
        return 0
    longest = len(series) // WARMUP_SHARE
    low, high = _fences(series[longest:])
    alike = np.flatnonzero((series[: longest + 1] >= low) & (series[: longest + 1] <= high))
    return int(alike[0]) if len(alike) else 0


def _fences(rest: np.ndarray) -> tuple[float, float]:
    first, middle, third = np.quantile(rest, [0.25, 0.5, 0.75])
    reach = FENCE * (third - first)
    return min(first - reach, middle * (1 - LEAST_DEVIATION)), max(third + reach, middle * (1 + LEAST_DEVIATION))


def effective_size(durations: Sequence[float] | np.ndarray) -> int:
    """How many independent steps a series is worth, 2 to all of them.

    n(1-r)/(1+r) for a first-order autoregressive series with correlation r between neighbours; outliers are drawn in to
    the fences first. All of them where r is below 2/sqrt(n), which chance reaches too.
    """
    series = np.asarray(durations, dtype=np.float64)
    steps = len(series)
    if steps < SHORTEST_CORRELATED:
        return steps
    drawn_in = np.clip(series, *_fences(series))
    centred = drawn_in - drawn_in.mean()
    power = float(centred @ centred)
    if power <= 0:
        return steps
    correlation = float(centred[:-1] @ centred[1:]) / power
    if correlation <= 2 / math.sqrt(steps):
        return steps
    return max(2, int(steps * (1 - correlation) / (1 + correlation)))


def judge_noise(durations: Sequence[float] | np.ndarray, repeatable: bool = True, part: str = "") -> list[Finding]:
    """What makes the median of these steps of a part (warm-up already apart) less than trustworthy.

    `repeatable` runs are started with Sonda's own options.
    """
    series = np.asarray(durations, dtype=np.float64)
    if len(series) == 0:
        return []
    if len(series) < ENOUGH_STEPS:
        return [FewSteps(part, len(series), WANTED_STEPS, repeatable)]
    drift = _drift(series)
    if drift:
        return [Drifted(part, Value(drift, "1", "derived"))]
    noise = median(series, effective_size(series)).noise
    if noise > NOISY:
        times = (noise / NOISY) ** 2
        wanted = math.ceil(len(series) * times / 10) * 10 if times <= MOST_TIMES else 0
        return [NoisySteps(part, Value(noise, "1", "derived"), wanted, repeatable)]
    return []


def _drift(series: np.ndarray) -> float:
    """Relative change from the first to the second half where it is beyond both halves' intervals, else 0."""
    half = len(series) // 2
    first, second = median(series[:half]), median(series[half:])
    if first.low is None or first.high is None or second.low is None or second.high is None or first.value <= 0:
        return 0.0
    change = second.value / first.value - 1
    apart = second.low > first.high or second.high < first.low
    return change if apart and abs(change) > DRIFT and half >= ENOUGH_STEPS else 0.0


def proportion(right: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share that was counted, `right` of so many, 0 to 1.

    The score interval (Wilson 1927, J. Am. Stat. Assoc. 22, 209), which holds what it promises also where few were
    counted or nearly all were right (Newcombe 1998, Stat. Med. 17, 857; method 3). Raises ValueError for none.
    """
    if of <= 0 or not 0 <= right <= of:
        raise ValueError(f"{right} of {of}")
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share = right / of
    middle = (share + z**2 / (2 * of)) / (1 + z**2 / of)
    reach = z / (1 + z**2 / of) * math.sqrt(share * (1 - share) / of + z**2 / (4 * of**2))
    return max(min(middle - reach, share), 0.0), min(max(middle + reach, share), 1.0)


@dataclass(frozen=True)
class Side:
    """One side of a comparison: `middle` per column, the median over runs of each run's median; `error` is its standard
    error over that median, with `freedom` degrees of freedom."""

    middle: np.ndarray
    error: np.ndarray
    freedom: int
    common: bool = False
    """Whether `error` is one estimate for all sides of an experiment that are so marked (`pooled`)."""


def side(runs: Sequence[np.ndarray], effective: Sequence[int]) -> Side:
    """Weigh one side: every run is a table with a row per step and the same columns.

    The standard error is that of a hierarchical bootstrap: resample runs, then the steps of each. With one run only the
    variation between its steps is seen.
    """
    if len(runs) == 1:
        ordered = np.sort(runs[0], axis=0)
        ranks = (_middles(effective[0]) * len(ordered)).astype(np.int64)
        weights = np.bincount(ranks, minlength=len(ordered)) / len(ranks)
        middle = np.median(runs[0], axis=0)
        apart = ordered - middle
        spread = np.sqrt(np.maximum(weights @ apart**2 - (weights @ apart) ** 2, 0))
        return Side(middle, _relative(spread, middle), max(1, effective[0] - 1))
    count = len(runs)
    longest = max(len(run) for run in runs)
    columns = runs[0].shape[1]
    ordered = np.zeros((count, longest, columns))
    for index, run in enumerate(runs):
        ordered[index, : len(run)] = np.sort(run, axis=0)
    chosen = np.random.default_rng([SEED, count]).integers(0, count, (RESAMPLES, count))
    sizes = np.array(effective)[chosen]
    lengths = np.array([len(run) for run in runs])[chosen]
    draws = np.zeros(chosen.shape)
    for size in set(effective):
        shape = (size + 1) / 2
        draws = np.where(
            sizes == size, np.random.default_rng([SEED, count, size]).beta(shape, shape, sizes.shape), draws
        )
    ranks = (draws * lengths).astype(np.int64)
    spread = np.empty(columns)
    for column in range(columns):
        spread[column] = np.median(ordered[:, :, column][chosen, ranks], axis=1).std()
    # Resampling n runs shows (n-1)/n of the variance between them.
    spread *= math.sqrt(count / (count - 1))
    middle = np.median(np.array([np.median(run, axis=0) for run in runs]), axis=0)
    return Side(middle, _relative(spread, middle), count - 1)


def _relative(spread: np.ndarray, middle: np.ndarray) -> np.ndarray:
    relative: np.ndarray = np.divide(spread, middle, out=np.zeros_like(spread), where=middle > 0)
    return relative


def ratio(a: Side, b: Side, comparisons: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Time of B over time of A per column, with low and high ends; NaN where A or B takes no time.

    On the logarithm: estimate ± Student's t (Welch's degrees of freedom) x bootstrap standard error. A percentile
    interval cannot leave the range of the runs, which for two or three processes covers far less than 95 %; this one
    can. `comparisons` > 1 widens the intervals (Bonferroni) so that all of them hold at once with 95 %.
    """
    known = (a.middle > 0) & (b.middle > 0)
    middle = np.divide(b.middle, a.middle, out=np.full(a.middle.shape, np.nan), where=known)
    low, high = middle.copy(), middle.copy()
    tail = (1 - CONFIDENCE) / 2 / comparisons
    for column in np.flatnonzero(known):
        first, second = float(a.error[column]) ** 2, float(b.error[column]) ** 2
        if first + second <= 0:
            continue
        freedom = welch([(first, a), (second, b)])
        reach = math.exp(min(student(1 - tail, freedom) * math.sqrt(first + second), 700.0))
        low[column] /= reach
        high[column] *= reach
    return middle, low, high


def repetitions_to_tell(deviations: Sequence[float], distance: float, efficiency: float = 1.0) -> int | None:
    """How many repetitions of each side tell, in four experiments of five, two middles that lie so far apart; None for
    more than a hundred.

    The least n with n >= (t(0.975) + t(0.8))**2 * (sa**2 + sb**2) / (efficiency * distance**2), both quantiles with
    2n - 2 degrees of freedom: the sample size of a two-sample t test (Julious 2004, Stat. Med. 23, 1921, with t in
    place of z; Zar, Biostatistical Analysis). `deviations` are those of one repetition on each side, over their means;
    `distance` is a difference of logarithms.
    """
    spread = sum(deviation**2 for deviation in deviations) / efficiency
    for count in range(2, MOST_REPETITIONS + 1):
        reach = student((1 + CONFIDENCE) / 2, 2 * count - 2) + student(POWER, 2 * count - 2)
        if reach**2 * spread <= count * distance**2 and distance > 0:
            return count
    return None


def welch(terms: Sequence[tuple[float, Side]]) -> int:
    """Degrees of freedom of a sum of squared errors, each with its side (Welch 1947); sides that have one estimate in
    common bring its freedom once."""
    total = sum(term for term, _ in terms)
    shared = sum(term for term, side in terms if side.common)
    apart = sum(term**2 / side.freedom for term, side in terms if not side.common)
    return max(
        1, int(total**2 / (apart + shared**2 / max([side.freedom for _, side in terms if side.common], default=1)))
    )


def pooled(sides: Sequence[Side]) -> list[Side]:
    """Sides of one experiment with one standard error for all of them, as in Dunnett's comparison of several treatments
    with a control (1955, J. Am. Stat. Assoc. 50, 1096): relative errors of processes on one machine are much alike, and
    two or three processes of each cannot tell them apart.

    A side whose error is larger than that of the others beyond chance (5 %, Bonferroni) keeps its own, and so does
    everything where a side has no error. One column.
    """
    squares = np.array([float(side.error[0]) ** 2 for side in sides])
    freedoms = np.array([side.freedom for side in sides])
    if len(sides) < 3 or not squares.all():
        return list(sides)
    weighed = squares * freedoms
    mean_of_others = (weighed.sum() - weighed) / (freedoms.sum() - freedoms)
    chances = [
        float(np.mean(_quotients(int(own), int(freedoms.sum() - own)) >= square / rest))
        for square, rest, own in zip(squares, mean_of_others, freedoms, strict=True)
    ]
    alike = np.array(chances) >= (1 - CONFIDENCE) / len(sides)
    if alike.sum() < 2:
        return list(sides)
    error = np.sqrt(weighed[alike].sum() / freedoms[alike].sum())
    freedom = int(freedoms[alike].sum())
    return [
        Side(side.middle, np.array([error]), freedom, common=True) if like else side
        for side, like in zip(sides, alike, strict=True)
    ]


@lru_cache(maxsize=64)
def _quotients(above: int, below: int) -> np.ndarray:
    """Draws of the quotient of two independent estimates of one variance with these degrees of freedom; seeded."""
    return np.random.default_rng([SEED, above, below]).f(above, below, 50 * RESAMPLES)


NEARLY_NORMAL = 200
"""From here on Student's quantiles differ from the normal ones by less than 1 %."""


@lru_cache(maxsize=4096)
def student(probability: float, freedom: int) -> float:
    """Quantile of Student's t above the median, by bisection of its closed form for whole degrees of freedom."""
    if freedom >= NEARLY_NORMAL:
        return NormalDist().inv_cdf(probability)
    inside = 2 * probability - 1
    low, high = 0.0, 1.0
    while _student_inside(high, freedom) < inside and high < 1e12:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_inside(middle, freedom) < inside else (low, middle)
    return (low + high) / 2


def _student_inside(t: float, freedom: int) -> float:
    """Probability that |T| < t: Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for factor in range(2 if odd else 1, freedom, 2):
        total += term
        term *= cosine**2 * factor / (factor + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total

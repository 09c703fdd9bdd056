"""Shares of a batch: how many samples each rank gets, so that all finish together.

A rank's step of n samples takes a + b·n seconds; a and b are measured. The shares of a batch are those whose slowest
rank is fastest, and they sum to the batch exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

from sonda.record.errors import SondaError

FLOOR = 1e-9
"""s per sample: a rank that takes no time at all would be given everything."""


@dataclass(frozen=True)
class Line:
    """What a step costs one rank: `fixed` s, and `each` s more for every sample."""

    fixed: float
    each: float

    def time(self, samples: float) -> float:
        """s of a step of so many samples."""
        return self.fixed + self.each * samples

    def scaled(self, factor: float) -> Line:
        """The line of the same rank when everything takes `factor` times as long."""
        return Line(self.fixed * factor, self.each * factor)


def fit_line(samples: Sequence[float], seconds: Sequence[float]) -> Line:
    """The line through measured steps by least squares; neither part of it is below 0.

    With one size only, all of the time is taken to be per sample.
    """
    count = len(samples)
    mean_n, mean_t = sum(samples) / count, sum(seconds) / count
    spread = sum((n - mean_n) ** 2 for n in samples)
    each = sum((n - mean_n) * (t - mean_t) for n, t in zip(samples, seconds, strict=True)) / spread if spread else 0.0
    fixed = mean_t - each * mean_n
    if not spread or fixed < 0:
        # Through the origin, so that it still passes among the points.
        fixed = 0.0
        each = sum(n * t for n, t in zip(samples, seconds, strict=True)) / sum(n * n for n in samples)
    elif each < 0:
        fixed, each = mean_t, 0.0
    return Line(fixed, max(each, FLOOR))


def split_batch(lines: Sequence[Line], batch: int) -> tuple[int, ...]:
    """Samples for every rank: at least 1 each, `batch` together, and the slowest rank as fast as can be.

    One sample after another goes to the rank that would finish it first, which is optimal because a step never gets
    shorter with more samples. Raises SondaError where there are fewer samples than ranks.
    """
    if batch < len(lines):
        raise SondaError(
            f"a batch of {batch} cannot be shared by {len(lines)} ranks: one of them would get nothing",
            f"use --batch {len(lines)} or more, or fewer devices",
        )
    shares = [1] * len(lines)
    waiting = [(line.time(2), rank) for rank, line in enumerate(lines)]
    heapify(waiting)
    for _ in range(batch - len(lines)):
        _, rank = waiting[0]
        shares[rank] += 1
        heapreplace(waiting, (lines[rank].time(shares[rank] + 1), rank))
    return tuple(shares)


def equal_shares(ranks: int, batch: int) -> tuple[int, ...]:
    """The same for everybody; what is left over goes one each to the first. Raises SondaError as `split_batch`."""
    return split_batch([Line(0.0, 1.0)] * ranks, batch)


def slowest(lines: Sequence[Line], shares: Sequence[int]) -> float:
    """s until the last rank is done with its share."""
    return max(line.time(share) for line, share in zip(lines, shares, strict=True))

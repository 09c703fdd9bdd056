"""Shares of a batch: how many samples each rank gets, so that all finish together.

A rank's step of n samples takes a + b·n seconds; a and b are measured. Shares are chosen so that the slowest rank is as
fast as possible. They sum to the batch exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

from sonda.record.errors import SondaError

FLOOR = 1e-9
"""Smallest time of a sample, s: a rank that took no time at all would be given the whole batch."""


@dataclass(frozen=True)
class Line:
    """The step time of one rank by its number of samples: `fixed` s, and `per_sample` s more for every sample."""

    fixed: float
    per_sample: float

    def time(self, samples: float) -> float:
        """Time of a step of so many samples, s."""
        return self.fixed + self.per_sample * samples

    def scaled(self, factor: float) -> Line:
        """The line of the same rank where everything takes `factor` times as long."""
        return Line(self.fixed * factor, self.per_sample * factor)


def fit_line(samples: Sequence[float], seconds: Sequence[float]) -> Line:
    """The least-squares line through measured steps; both of its numbers are at least 0.

    Where all steps have the same size, the whole time counts as time per sample.
    """
    count = len(samples)
    mean_n, mean_t = sum(samples) / count, sum(seconds) / count
    spread = sum((n - mean_n) ** 2 for n in samples)
    covariance = sum((n - mean_n) * (t - mean_t) for n, t in zip(samples, seconds, strict=True))
    per_sample = covariance / spread if spread else 0.0
    fixed = mean_t - per_sample * mean_n
    if not spread or fixed < 0:
        # Through the origin instead, so that the line still passes among the points.
        fixed = 0.0
        per_sample = sum(n * t for n, t in zip(samples, seconds, strict=True)) / sum(n * n for n in samples)
    elif per_sample < 0:
        fixed, per_sample = mean_t, 0.0
    return Line(fixed, max(per_sample, FLOOR))


def split_batch(lines: Sequence[Line], batch: int) -> tuple[int, ...]:
    """Samples of every rank: at least 1 each, `batch` together, with the slowest rank as fast as possible.

    Each sample goes to the rank that would finish it first. This greedy choice is optimal because a step never gets
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
    """Equal shares; the first ranks get one sample more where the batch does not divide. Raises as `split_batch`."""
    return split_batch([Line(0.0, 1.0)] * ranks, batch)


def slowest_time(lines: Sequence[Line], shares: Sequence[int]) -> float:
    """Time until the last rank has finished its share, s."""
    return max(line.time(share) for line, share in zip(lines, shares, strict=True))

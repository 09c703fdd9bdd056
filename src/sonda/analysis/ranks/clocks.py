"""Clocks of the ranks of a job, compared by the ends of collectives: all leave one at about the same moment.

The offset of a clock is the median of the differences to the ends of a clock that is known already, taken over the
collectives around each, because clocks drift. Where a clock shares no collective with the first, it is compared with
another that does, and so on; clocks that share none in any way are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sonda.analysis.ranks.collectives import Matched

AROUND = 50
"""Collectives before and behind, over which a median is taken."""
KNOTS = 25
"""It is taken at every so many of them, and lines are drawn between."""


@dataclass(frozen=True)
class Offsets:
    """What to take off the times of each group's collectives, in their shape, ns."""

    groups: tuple[np.ndarray, ...]
    doubt: int
    """ns by which clocks may still differ: the median deviation of single ends from the offset, and that of the clock
    it was compared with; the largest of all."""
    apart: int
    """How many sets of clocks share no collective with one another: 1 where all are compared."""


def no_offsets(groups: Sequence[Matched]) -> Offsets:
    """Of ranks that have one clock."""
    return Offsets(tuple(np.zeros(group.start.shape, np.int64) for group in groups), 0, 1)


def clock_offsets(groups: Sequence[Matched], clocks: Sequence[str]) -> Offsets:
    """`clocks` are the names of the ranks' clocks, in the order of rows; the first one's is right."""
    offsets = no_offsets(groups).groups
    numbers = {clock: number for number, clock in enumerate(dict.fromkeys(clocks))}
    of_rows = [np.array([numbers[clocks[row]] for row in group.rows]) for group in groups]
    shared = _shared(groups, of_rows, len(numbers))
    by, most = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
    known, doubts, apart = np.zeros(len(numbers), bool), np.zeros(len(numbers)), 0
    for _ in range(len(numbers)):
        # The most in common with one that is known; among equals the clock that was known first.
        clock = int(np.argmax(np.where(known, -1, most)))
        if most[clock]:
            doubts[clock] = doubts[by[clock]] + _take(groups, offsets, of_rows, int(by[clock]), clock)
        else:
            apart += 1
        known[clock] = True
        closer = shared[clock] > most
        by[closer], most[closer] = clock, shared[clock][closer]
    return Offsets(offsets, int(np.ceil(doubts.max(initial=0.0))), apart)


def _shared(groups: Sequence[Matched], of_rows: Sequence[np.ndarray], clocks: int) -> np.ndarray:
    """How many collectives two clocks have in common."""
    shared = np.zeros((clocks, clocks), np.int64)
    for group, numbers in zip(groups, of_rows, strict=True):
        here = np.unique(numbers)
        shared[np.ix_(here, here)] += len(group.steps)
    return shared


def _take(
    groups: Sequence[Matched], offsets: Sequence[np.ndarray], of_rows: Sequence[np.ndarray], known: int, clock: int
) -> float:
    """Fill in the offsets of a clock, compared with a known one; the median deviation from them."""
    ends: list[np.ndarray] = []
    aparts: list[np.ndarray] = []
    origin, about = 0, 0
    for group, offset, numbers in zip(groups, offsets, of_rows, strict=True):
        mine, theirs = np.flatnonzero(numbers == clock), np.flatnonzero(numbers == known)
        if not len(mine) or not len(theirs):
            continue
        first = group.end[mine[0]]
        if not ends:
            origin, about = int(first[0]), int(first[0] - group.end[theirs[0], 0] + offset[theirs[0], 0])
        # Differences only: a clock that began long ago has more digits than a double.
        base = np.median(group.end[theirs] - offset[theirs] - (first - about), axis=0)
        aparts.append(np.median(group.end[mine] - first, axis=0) - base)
        ends.append(first - origin)
    when, apart = np.concatenate(ends), np.concatenate(aparts)
    order = np.argsort(when, kind="stable")
    when, apart = when[order], apart[order]
    smooth = _smooth(apart)
    for group, offset, numbers in zip(groups, offsets, of_rows, strict=True):
        mine = np.flatnonzero(numbers == clock)
        if len(mine):
            at = np.interp(group.end[mine[0]] - origin, when, smooth)
            offset[mine] = about + np.rint(at).astype(np.int64)
    return float(np.median(np.abs(apart - smooth)))


def _smooth(values: np.ndarray) -> np.ndarray:
    """The median of each value and those around it."""
    count = len(values)
    if count <= 2 * AROUND + 1:
        return np.full(count, np.median(values))
    knots = np.union1d(np.arange(AROUND, count - AROUND, KNOTS), [count - AROUND - 1])
    medians = np.array([np.median(values[at - AROUND : at + AROUND + 1]) for at in knots.tolist()])
    apart = 2 * AROUND // KNOTS
    if len(knots) > apart:
        # Before the first median and behind the last a clock goes on as it went between two that share hardly a value.
        before, behind = ((medians[at] - medians[neighbour]) / (knots[at] - knots[neighbour]) for at, neighbour in (
            (0, apart), (-1, -1 - apart)))  # fmt: skip
        medians = np.concatenate(
            ([medians[0] - before * knots[0]], medians, [medians[-1] + behind * (count - 1 - knots[-1])])
        )
        knots = np.concatenate(([0], knots, [count - 1]))
    line: np.ndarray = np.interp(np.arange(count), knots, medians)
    return line

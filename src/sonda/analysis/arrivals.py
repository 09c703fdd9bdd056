"""Who comes last to collectives, and how long the others wait, on clocks that need not agree.

Nobody can leave such a collective before the last has come, and all leave at about the same moment. So clocks are
compared by the ends of collectives: the offset of a machine is the median of the differences to the first one's ends,
taken over the collectives around each, because clocks drift. Ranks that name the same machine share its clock. Where
all do, and no collective contradicts it, nothing is corrected. What remains contradictory is left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sonda.analysis.collectives import Matched

AROUND = 50
"""Collectives before and behind, over which a median is taken."""
KNOTS = 25
"""It is taken at every so many of them, and lines are drawn between."""
CONTRADICTED = 0.01
"""Share of collectives that could not have been on one clock, above which it is not taken for one."""


@dataclass(frozen=True)
class Arrivals:
    """A row for each rank, a column for each collective that is possible; ns."""

    steps: np.ndarray
    """By collective: the place of its step."""
    wait: np.ndarray
    """From a rank's arrival to the last one's."""
    transfer: np.ndarray
    """From the last one's arrival to a rank's leaving."""
    last: np.ndarray
    """By collective: the row of the rank that came last, -1 where all came at once as far as clocks can tell."""
    held: np.ndarray
    """By collective: from the last arrival but one to the last."""
    offsets: np.ndarray
    """By rank: the median of what was taken off its clock."""
    doubt: int
    """ns by which clocks may still differ: the median deviation of single ends from the offset. 0 on one clock."""
    clocks: int
    """How many were told apart."""
    impossible: int
    """Collectives left out, because somebody would have left before the last had come."""


def arrivals(matched: Matched, hosts: Sequence[str] = ()) -> Arrivals:
    """`hosts` are the names of the ranks' machines, empty where files do not say."""
    start, end = matched.start, matched.end
    ranks, count = start.shape
    offset, doubt, clocks = np.zeros((ranks, count), np.int64), 0, 1
    one_clock = len(hosts) == ranks and len(set(hosts)) == 1
    if count and not (one_clock and (start.max(axis=0) > end.min(axis=0)).mean() <= CONTRADICTED):
        groups = list(hosts) if len(hosts) == ranks and not one_clock else [str(rank) for rank in range(ranks)]
        clocks = len(set(groups))
        offset, doubt = _offsets(end, groups)
    arrived, left = start - offset, end - offset
    last = arrived.max(axis=0, initial=np.iinfo(np.int64).min)
    possible = last <= left.min(axis=0, initial=np.iinfo(np.int64).max) + doubt
    arrived, left, last = arrived[:, possible], left[:, possible], last[possible]
    ordered = np.sort(arrived, axis=0)
    together = ordered[-1] - ordered[0] <= doubt if len(last) else np.zeros(0, bool)
    return Arrivals(
        steps=matched.steps[possible], wait=last - arrived, transfer=np.maximum(left - last, 0),
        last=np.where(together, -1, np.argmax(arrived, axis=0)) if ranks else np.zeros(0, np.int64),
        held=np.where(together, 0, ordered[-1] - ordered[-2]) if ranks > 1 else np.zeros(len(last), np.int64),
        offsets=np.median(offset, axis=1).astype(np.int64) if count else np.zeros(ranks, np.int64),
        doubt=doubt, clocks=clocks, impossible=int((~possible).sum()),
    )  # fmt: skip


@dataclass(frozen=True)
class Late:
    """Ranks that the others wait for."""

    rows: tuple[int, ...]
    """Which; at most half of all."""
    last: int
    """How many collectives one of them came to as the last."""
    held: int
    """ns in all, from the arrival of the last of the others to the last of all."""


def late_ones(came: Arrivals) -> Late:
    """Those who wait least, up to the largest gap among the mean waits of ranks: a slow machine has several."""
    ranks = len(came.wait)
    if ranks < 2 or not came.wait.shape[1]:
        return Late((), 0, 0)
    mean = came.wait.mean(axis=1)
    order = np.argsort(mean, kind="stable")
    size = int(np.argmax(np.diff(mean[order])[: ranks // 2])) + 1
    held = came.wait[order[size:]].min(axis=0)
    held = np.where(held > came.doubt, held, 0)
    return Late(tuple(sorted(order[:size].tolist())), int(np.isin(came.last, order[:size]).sum()), int(held.sum()))


def _offsets(end: np.ndarray, groups: Sequence[str]) -> tuple[np.ndarray, int]:
    """What to take off every end, a row for each rank, and the largest median deviation from it among the clocks."""
    of = {group: [rank for rank, one in enumerate(groups) if one == group] for group in groups}
    # Differences only: a clock that began long ago has more digits than a double.
    base = np.median(end[of[groups[0]]] - end[0], axis=0)
    offset, doubt = np.zeros(end.shape, np.int64), 0.0
    for group, rows in of.items():
        if group == groups[0]:
            continue
        about = int(end[rows[0], 0] - end[0, 0])
        apart = np.median(end[rows] - end[0] - about, axis=0) - base
        smooth = _smooth(apart)
        offset[rows] = about + np.rint(smooth).astype(np.int64)
        doubt = max(doubt, float(np.median(np.abs(apart - smooth))))
    return offset, int(np.ceil(doubt))


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
        before, behind = ((medians[at] - medians[other]) / (knots[at] - knots[other]) for at, other in (
            (0, apart), (-1, -1 - apart)))  # fmt: skip
        medians = np.concatenate(
            ([medians[0] - before * knots[0]], medians, [medians[-1] + behind * (count - 1 - knots[-1])])
        )
        knots = np.concatenate(([0], knots, [count - 1]))
    return np.interp(np.arange(count), knots, medians)

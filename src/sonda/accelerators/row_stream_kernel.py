"""Reuse distances of a stream of lookups, by which a buffer of any size is known to hit or to miss."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


def reuse_distances(place: Whole, distinct: int, distance: Whole) -> None:
    """Fills `distance`: how many other places were visited since the last visit of this one; -1 on its first.

    Places are 0 to distinct - 1. A tree of partial sums over time (Fenwick) marks the last visit of every place, so a
    visit costs the logarithm of their number.
    """
    visits = place.size
    marks = np.zeros(visits + 1, np.int64)
    last = np.full(distinct, -1, np.int64)
    seen = 0
    for now in range(visits):
        before = last[place[now]]
        if before < 0:
            distance[now] = -1
            seen += 1
        else:
            until = 0
            at = before + 1
            while at > 0:
                until += marks[at]
                at -= at & -at
            distance[now] = seen - until
            at = before + 1
            while at <= visits:
                marks[at] -= 1
                at += at & -at
        at = now + 1
        while at <= visits:
            marks[at] += 1
            at += at & -at
        last[place[now]] = now

"""A stream of lookups in an embedding table, through a buffer that keeps the rows used last (LRU).

What does not depend on the buffer is computed once for a stream: how many other rows were looked up since a row's last
lookup (Mattson's stack distance). A buffer of so many rows hits where fewer were. Rows of the table lie one after the
other from the beginning of a row of the memory on; nothing is allocated for them, and nothing grows with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from sonda.accelerators.memory.hierarchy import Sizes
from sonda.accelerators.operations.program import Bags
from sonda.record.jit import compiled

Whole = NDArray[np.int64]


class Fetches(NamedTuple):
    """Lookups that the buffer could not serve."""

    cold: int
    """Lookups of rows that were never looked up before."""
    again: int
    """Lookups of rows that had left the buffer."""
    accesses: int
    """Accesses of the memory, for both."""
    row_misses: int
    """Of these accesses, those to a row of the memory that was not open."""


class RowStream:
    """Lookups in their order, and after which distance each row comes again."""

    def __init__(self, rows: Whole, together: Whole) -> None:
        """`together` are the lookups of which an engine takes a few columns at a time, for each lookup."""
        self.rows = rows
        self.together = together
        used, place = np.unique(rows, return_inverse=True)
        self.distances = np.empty(len(rows), np.int64)
        compiled(reuse_distances)(place.astype(np.int64), len(used), self.distances)
        self.distinct = len(used)
        self._most_together = int(together.max(initial=0))
        self._known: dict[tuple[int, ...], Fetches] = {}

    def fetches(self, sizes: Sizes, room: int, columns: int, at_once: int) -> Fetches:
        """What a buffer with `room` bytes for rows of `columns` elements cannot serve.

        An engine that takes `at_once` columns of all rows of a bag before the next columns needs these rows to stay
        meanwhile. Where they do not fit, each row comes in pieces, every piece an access of its own.
        """
        size = columns * sizes.element_bytes
        held = min(room // size, len(self.rows))
        if self._most_together <= held:
            at_once = columns  # all stay, so that nothing comes in pieces
        key = (held, columns, at_once, *sizes[1:])
        if key not in self._known:
            self._known[key] = self._fetches(sizes, held, columns, at_once)
        return self._known[key]

    def _fetches(self, memory: Sizes, held: int, columns: int, at_once: int) -> Fetches:
        size = columns * memory.element_bytes
        missed = (self.distances < 0) | (self.distances >= held)
        pieces = -(-columns // at_once)
        split = self.together > held if pieces > 1 else np.zeros(len(self.rows), bool)
        fetched = missed | split
        begin = self.rows[fetched] * size
        end = begin + size - 1
        opened, closed = begin // memory.row_bytes, end // memory.row_bytes
        changed = np.ones(len(begin), bool)
        changed[1:] = opened[1:] != closed[:-1]
        crossed = int((closed - opened).sum())
        split = split[fetched]
        whole = int((end // memory.burst_bytes - begin // memory.burst_bytes + 1).sum())
        # A piece that ends inside a burst and the next piece each move that burst; one that ends inside a row of the
        # memory and the next piece each open that row.
        ends = np.arange(1, pieces) * at_once * memory.element_bytes
        twice = _inside(begin[split], ends, memory.burst_bytes)
        opened_twice = _inside(begin[changed & split], ends, memory.row_bytes)
        return Fetches(
            cold=self.distinct,
            again=int(np.count_nonzero(fetched)) - self.distinct,
            accesses=whole + twice,
            row_misses=int(changed.sum()) + crossed + opened_twice,
        )


def _inside(begins: Whole, ends: Whole, block: int) -> int:
    """How many of these ends, counted from every beginning, lie inside a block of so many bytes."""
    places, often = np.unique(begins % block, return_counts=True)
    return int(often @ np.count_nonzero((places[:, None] + ends) % block, axis=1))


_KNOWN: WeakKeyDictionary[Bags, dict[Hashable, RowStream]] = WeakKeyDictionary()
"""Streams of bags that are still in use, by the order in which an engine takes them."""


def remembered_stream(bags: Bags, order: Hashable, make: Callable[[], RowStream]) -> RowStream:
    """The lookups of these bags in an order that has this name; made once."""
    known = _KNOWN.setdefault(bags, {})
    if order not in known:
        known[order] = make()
    return known[order]


# ---- Reuse distances of a stream of lookups, by which a buffer of any size is known to hit or to miss ---------------


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

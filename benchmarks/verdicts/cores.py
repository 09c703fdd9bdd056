"""Runs programs side by side, each bound to cores of its own, so that none disturbs another."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

CORES = 2
"""Cores of a program: the planted causes were written for so many."""


def split_cores(programs: int) -> list[set[int]]:
    """Cores for so many programs at once. Raises ValueError where there are too few."""
    available = sorted(os.sched_getaffinity(0))
    if programs * CORES > len(available):
        raise ValueError(f"{programs} programs at once need {programs * CORES} cores; {len(available)} may be used")
    return [set(available[first : first + CORES]) for first in range(0, programs * CORES, CORES)]


def map_side_by_side(
    work: Callable[[Item], Result], items: Sequence[Item], programs: int
) -> Iterator[tuple[Item, Result]]:
    """Each item with its result, in order, so many at once; processes that `work` starts inherit its cores."""
    if programs == 1:
        yield from ((item, work(item)) for item in items)
        return
    free: queue.SimpleQueue[set[int]] = queue.SimpleQueue()
    for cores in split_cores(programs):
        free.put(cores)

    def work_bound(item: Item) -> Result:
        cores = free.get()
        try:
            os.sched_setaffinity(0, cores)  # Of this thread, and of the processes that it starts.
            return work(item)
        finally:
            free.put(cores)

    with ThreadPoolExecutor(programs) as pool:
        yield from zip(items, pool.map(work_bound, items), strict=True)

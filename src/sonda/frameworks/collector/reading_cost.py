"""What reading counters costs a phase, measured in the process that was observed, with the threads that it has.

A phase that computes leaves nothing of ours in the caches: what follows it takes some times as long as the same done
over and over. So caches are swept before each try of what long phases read, and the CPU time of this thread counts,
which others disturb least. What short phases read is timed over and over: they follow each other closely.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns as now
from time import thread_time_ns as spent
from typing import Any

from .phases import UNKNOWN
from .recorder import Stream

CALLS = 50
TRIES = 5
SWEPT = 4 << 20
"""Bytes that are read and written in between: together more than the caches that a core has for itself."""


def reading_costs(counting: Any) -> dict:
    """ns at both ends of a phase together.

    `group_ns`: the counters that were asked for, which every phase reads. `os_ns`: these and what the operating system
    counts, which long phases read instead. `wait_ns`: what it adds to ask every thread how long it waited.
    """
    stream = Stream(False)

    def group() -> None:
        counting.take(stream)
        counting.take(stream)

    def system(last: int) -> None:
        before = counting.os.begin(last, now())
        counting.reader_with_os.take(stream)
        counting.reader_with_os.take(stream)
        counting.os.end(stream, before, now())

    without, waits = _cold([partial(system, last) for last in (0, UNKNOWN)])
    begin = spent()
    for _ in range(CALLS):
        group()
    return {"group_ns": (spent() - begin) / CALLS, "os_ns": without, "wait_ns": max(waits - without, 0.0)}


def cold(work: Callable[[], None]) -> float:
    """The CPU time of some work behind other work, ns: the median of a few tries, less that of nothing."""
    return _cold([work])[0]


def _cold(works: list) -> list:
    """The same of each of these."""
    swept, target = bytearray(SWEPT), bytearray(SWEPT)
    tried = [*works, _nothing]
    times: list = [[] for _ in tried]
    for _ in range(TRIES):
        for one, kept in zip(tried, times, strict=True):
            target[:] = swept
            begin = spent()
            one()
            kept.append(spent() - begin)
    *done, nothing = (sorted(one)[TRIES // 2] for one in times)
    return [float(max(one - nothing, 0)) for one in done]


def _nothing() -> None:
    pass

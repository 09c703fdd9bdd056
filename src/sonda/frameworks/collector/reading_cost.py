"""What reading counters costs a phase, measured in the process that was observed, with the threads that it has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns as now
from typing import Any

from .phases import UNKNOWN
from .recorder import Stream

CALLS = 40
TRIES = 5


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

    without, waits = (_each(partial(system, last), stream) for last in (0, UNKNOWN))
    return {"group_ns": _each(group, stream), "os_ns": without, "wait_ns": max(waits - without, 0.0)}


def _each(read: Callable[[], None], stream: Stream) -> float:
    best = 1 << 62
    for _ in range(TRIES):
        begin = now()
        for _ in range(CALLS):
            read()
        best = min(best, now() - begin)
        stream.events.clear()
        stream.counts.clear()
    return best / CALLS

"""Measures what observing costs: reading counters and recording, in the observed process, with its threads.

A phase that computes evicts the collector's code and data from the caches. What follows it takes several times as long
as the same call repeated. So the caches are swept before each try of what long phases read. Short phases follow each
other closely: what they read is timed in a loop. CPU time of this thread is measured, because other programs disturb it
least.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns as now
from time import thread_time_ns as spent
from typing import Any

from .phases import UNKNOWN, Phases
from .recorder import Recorder, Stream

READING_CALLS = 50
READING_TRIES = 5
SWEPT = 4 << 20
"""Bytes that are read, and as many that are written, to sweep the caches: more than a core's own caches hold."""


def measure_reading_costs(counting: Any) -> dict:
    """Costs of the readings at both ends of a phase, ns.

    `group_ns`: the requested counters, which every phase reads. `os_ns`: the requested counters and those of the
    operating system, which long phases read. `wait_ns`: the extra cost of asking every thread how long it waited.
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

    without, waits = _time_each_cold([partial(system, last) for last in (0, UNKNOWN)])
    begin = spent()
    for _ in range(READING_CALLS):
        group()
    return {"group_ns": (spent() - begin) / READING_CALLS, "os_ns": without, "wait_ns": max(waits - without, 0.0)}


def time_cold(work: Callable[[], None]) -> float:
    """The CPU time of some work with cold caches, ns: the median of a few tries, less that of an empty call."""
    return _time_each_cold([work])[0]


def _time_each_cold(works: list) -> list:
    """The CPU time of each of these with cold caches, ns."""
    swept, target = bytearray(SWEPT), bytearray(SWEPT)
    tried = [*works, _do_nothing]
    times: list = [[] for _ in tried]
    for _ in range(READING_TRIES):
        for work, own_times in zip(tried, times, strict=True):
            target[:] = swept
            begin = spent()
            work()
            own_times.append(spent() - begin)
    *medians, empty = (sorted(own_times)[READING_TRIES // 2] for own_times in times)
    return [float(max(median - empty, 0)) for median in medians]


def _do_nothing() -> None:
    pass


# ---- What recording costs where calls of compiled functions are phases, measured in the observed process ------------

CALLS = 100
TRIES = 4
"""The program waits meanwhile, so there are few calls. The fastest try counts."""


def measure_recording_costs() -> dict:
    """What it costs to record a layer (`span_ns`) and a phase (`phase_ns`), on this machine, now.

    Layers follow each other closely, so they are timed in a loop. A phase is a whole call of a compiled function, or as
    long, so it is timed with cold caches.
    """
    recorder = Recorder("")
    phases = Phases(recorder)
    stream = recorder.stream()
    code = recorder.define(kind="layer", name="Identity", path="", root=1, root_name="Identity", direction="forward")
    forward = phases.codes["forward"]

    def layer() -> None:
        stream.layers.append(code)
        stream.push((code, now()))
        try:
            pass
        finally:
            stream.push((code + 1, now()))
            stream.layers.pop()

    def phase() -> None:
        stream.begin(forward, None)
        stream.end()

    return {"span_ns": time_repeated(layer, stream), "phase_ns": time_cold(phase)}


def time_repeated(record: Callable[[], None], stream: Stream, calls: int = CALLS) -> float:
    """The CPU time of one recording, ns: the mean over `calls` on this stream, in the fastest try.

    CPU time leaves out what other programs do on a shared processor.
    """
    best = 1 << 62
    for _ in range(TRIES):
        begin = spent()
        for _ in range(calls):
            record()
        best = min(best, spent() - begin)
        stream.events.clear()
        stream.counts.clear()
    return best / calls

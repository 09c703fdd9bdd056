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

from .phases import UNKNOWN, Phases
from .recorder import Recorder, Stream

READING_CALLS = 50
READING_TRIES = 5
SWEPT = 4 << 20
"""Bytes that are read and written in between: together more than the caches that a core has for itself."""


def measure_reading_costs(counting: Any) -> dict:
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

    without, waits = _time_each_cold([partial(system, last) for last in (0, UNKNOWN)])
    begin = spent()
    for _ in range(READING_CALLS):
        group()
    return {"group_ns": (spent() - begin) / READING_CALLS, "os_ns": without, "wait_ns": max(waits - without, 0.0)}


def time_cold(work: Callable[[], None]) -> float:
    """The CPU time of some work behind other work, ns: the median of a few tries, less that of nothing."""
    return _time_each_cold([work])[0]


def _time_each_cold(works: list) -> list:
    """The same of each of these."""
    swept, target = bytearray(SWEPT), bytearray(SWEPT)
    tried = [*works, _do_nothing]
    times: list = [[] for _ in tried]
    for _ in range(READING_TRIES):
        for one, kept in zip(tried, times, strict=True):
            target[:] = swept
            begin = spent()
            one()
            kept.append(spent() - begin)
    *done, nothing = (sorted(one)[READING_TRIES // 2] for one in times)
    return [float(max(one - nothing, 0)) for one in done]


def _do_nothing() -> None:
    pass


# ---- What recording costs where calls of compiled functions are phases, measured in the observed process ------------

CALLS = 100
TRIES = 4
"""The program waits meanwhile: few calls, of which the fastest try counts."""


def measure_recording_costs() -> dict:
    """ns that a layer and a phase cost to record, on this machine, now.

    Layers follow each other closely; a phase is a whole call of a compiled function, or as long.
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
    """The processor's time of one recording among many on this stream, ns: of the fastest try.

    What others do meanwhile is not in it: a processor that is shared makes no recording cost more.
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

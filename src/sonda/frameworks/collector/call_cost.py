"""What recording costs where calls of compiled functions are phases, measured in the observed process when it ends."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns as now
from time import thread_time_ns as spent

from .phases import Phases
from .reading_cost import cold
from .recorder import Recorder, Stream

CALLS = 100
TRIES = 4
"""The program waits meanwhile: few calls, of which the fastest try counts."""


def costs() -> dict:
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

    return {"span_ns": over_and_over(layer, stream), "phase_ns": cold(phase)}


def over_and_over(record: Callable[[], None], stream: Stream, calls: int = CALLS) -> float:
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

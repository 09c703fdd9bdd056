"""What recording costs where calls of compiled functions are phases, measured in the observed process when it ends."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns as now

from .phases import Phases
from .reading_cost import cold
from .recorder import Recorder, Stream

CALLS = 2_000
TRIES = 5


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


def over_and_over(record: Callable[[], None], stream: Stream) -> float:
    """The time of one recording among many on this stream, ns: of the fastest try."""
    best = 1 << 62
    for _ in range(TRIES):
        begin = now()
        for _ in range(CALLS):
            record()
        best = min(best, now() - begin)
        stream.events.clear()
    return best / CALLS

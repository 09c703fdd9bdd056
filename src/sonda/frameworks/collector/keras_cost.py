"""What recording costs in TensorFlow and Keras, measured in the process that was observed, when it ends."""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any

from .phases import Phases
from .reading_cost import cold
from .recorder import Recorder

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

    return {"span_ns": _each(layer, stream), "phase_ns": cold(phase)}


def _each(record: Any, stream: Any) -> float:
    best = 1 << 62
    for _ in range(TRIES):
        begin = now()
        for _ in range(CALLS):
            record()
        best = min(best, now() - begin)
        stream.events.clear()
    return best / CALLS

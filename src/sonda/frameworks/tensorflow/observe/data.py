"""How a data set of tf.data loads: in parallel, and ahead of the step, as far as its definition tells."""

from __future__ import annotations

import os
from typing import Any

from ...collector.recorder import Recorder

MOST_INPUTS = 200
"""Chained data sets that are looked at."""


class Datasets:
    """States once how each data set loads."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known: set = set()

    def introduce(self, number: int, dataset: Any) -> int:
        """State how a data set loads, the first time that it is seen; returns its number."""
        if number not in self._known:
            self._known.add(number)
            try:
                self._recorder.state_lasting(loader=number, loads=loading_of(dataset))
            except Exception:  # another version of it, or an iterator whose data set is not known
                pass
        return number


def loading_of(dataset: Any) -> dict:
    """How a data set loads: `workers` is the number of parallel calls, `prefetch` that of batches that are made ahead.

    `prefetch` is -1 where tf.data decides: it makes the next batch ahead by itself unless it is told not to.
    """
    pending, visited = [dataset], 0
    workers = prefetch = 0
    while pending and visited < MOST_INPUTS:
        stage = pending.pop()
        visited += 1
        calls = _as_int(getattr(stage, "_num_parallel_calls", None))
        workers = max(workers, len(os.sched_getaffinity(0)) if calls < 0 else calls)
        if type(stage).__name__ == "_PrefetchDataset":
            prefetch = prefetch or _as_int(stage._buffer_size)
        pending += stage._inputs()
    return {"loader": "tf.data", "workers": workers, "prefetch": prefetch or (-1 if _loads_ahead(dataset) else 0)}


def _loads_ahead(dataset: Any) -> bool:
    options = dataset.options()
    optimization = options.experimental_optimization
    switches = (optimization.inject_prefetch, optimization.apply_default_optimizations, options.autotune.enabled)
    return not any(switch is False for switch in switches)


def _as_int(value: Any) -> int:
    if value is None:
        return 0
    return int(value.numpy() if hasattr(value, "numpy") else value)

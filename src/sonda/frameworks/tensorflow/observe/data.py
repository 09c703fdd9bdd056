"""How a data set of tf.data loads: in parallel, and ahead of the step, as far as its making tells."""

from __future__ import annotations

import os
from typing import Any

from ...collector.recorder import Recorder

MOST_INPUTS = 200
"""Data sets behind one another that are looked at."""


class Datasets:
    """Introduces every data set once."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known: set = set()

    def introduce(self, number: int, dataset: Any) -> int:
        """State how it loads, the first time that it is seen; returns its number."""
        if number not in self._known:
            self._known.add(number)
            try:
                self._recorder.state_lasting(loader=number, loads=loading_of(dataset))
            except Exception:  # another version of it, or an iterator whose data set is not known
                pass
        return number


def loading_of(dataset: Any) -> dict:
    """`workers`: calls at a time of what is mapped, `prefetch`: batches that are made ahead, -1 where tf.data decides.

    tf.data makes the next batch ahead by itself unless it is told not to.
    """
    waiting, seen = [dataset], 0
    workers = prefetch = 0
    while waiting and seen < MOST_INPUTS:
        one = waiting.pop()
        seen += 1
        calls = _number(getattr(one, "_num_parallel_calls", None))
        workers = max(workers, len(os.sched_getaffinity(0)) if calls < 0 else calls)
        if type(one).__name__ == "_PrefetchDataset":
            prefetch = prefetch or _number(one._buffer_size)
        waiting += one._inputs()
    return {"loader": "tf.data", "workers": workers, "prefetch": prefetch or (-1 if _ahead(dataset) else 0)}


def _ahead(dataset: Any) -> bool:
    options = dataset.options()
    optimization = options.experimental_optimization
    told = (optimization.inject_prefetch, optimization.apply_default_optimizations, options.autotune.enabled)
    return not any(one is False for one in told)


def _number(value: Any) -> int:
    if value is None:
        return 0
    return int(value.numpy() if hasattr(value, "numpy") else value)

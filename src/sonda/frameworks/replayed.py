"""Marks for a profiler outside, such as ncu, that replays kernels: where to begin and where to end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sonda.frameworks.collector.cuda_marks import profiler_marks


@contextmanager
def replayed() -> Iterator[None]:
    """Tell a profiler outside, which replays kernels, where to begin and where to end."""
    start, stop = profiler_marks()
    start()
    try:
        yield
    finally:
        stop()

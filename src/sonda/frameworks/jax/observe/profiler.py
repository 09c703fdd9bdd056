"""JAX's own profiler: how it is started, and marks that tie its clock to ours."""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any

from ...collector.clock import CLOCK, MARKS


def start_trace(profiler: Any, folder: str) -> None:
    """Begin a profile that is written to a folder; `profiler` is `jax.profiler`."""
    if not hasattr(profiler, "ProfileOptions"):  # an older JAX
        profiler.start_trace(folder)
        return
    options = profiler.ProfileOptions()
    # Frames of Python would fill the profile and say nothing of operations and kernels.
    options.python_tracer_level = 0
    profiler.start_trace(folder, profiler_options=options)


def drop_trace() -> None:
    """Drop a profile that could not be written: JAX keeps it, and would not start another for the program."""
    from jax._src import profiler

    with profiler._profile_state.lock:
        profiler._profile_state.reset()


def mark_clock(profiler: Any) -> None:
    """Write marks into the profile. The name of each holds our time before it."""
    for _ in range(MARKS):
        with profiler.TraceAnnotation(f"{CLOCK}{now()}"):
            pass

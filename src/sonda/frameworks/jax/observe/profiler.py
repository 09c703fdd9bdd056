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
    """Forget a profile that could not be written: JAX holds it, and would start none for the program."""
    from jax._src import profiler

    with profiler._profile_state.lock:
        profiler._profile_state.reset()


def mark_clock(profiler: Any) -> None:
    """Marks in the profile, whose names hold our time before each."""
    for _ in range(MARKS):
        with profiler.TraceAnnotation(f"{CLOCK}{now()}"):
            pass

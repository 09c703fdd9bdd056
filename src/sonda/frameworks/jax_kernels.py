"""Kernels of a few steps of a JAX program: its own profiler around them, and what is said of the GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from time import perf_counter_ns as now
from typing import Any

from sonda.frameworks.announced import AnnouncedObserver
from sonda.frameworks.collector.kernel_pass import CLOCK, MARKS
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.profiled_kernels import ProfileFile, Profiler, recorded
from sonda.frameworks.torch_driver import KERNEL_STEPS, Driving

TRACE = ProfileFile("JAX", "trace", ".trace.json.gz", "jax.kernels.json.gz")


def recorded_by(recorder: Recorder, jax: Any) -> AbstractContextManager[None]:
    """Record the kernels of what runs in this block."""

    def start(folder: str) -> None:
        options = jax.profiler.ProfileOptions()
        # Frames of Python would fill the trace and say nothing of kernels.
        options.python_tracer_level = 0
        jax.profiler.start_trace(folder, profiler_options=options)

    def mark() -> None:
        for _ in range(MARKS):
            with jax.profiler.TraceAnnotation(f"{CLOCK}{now()}"):
                pass

    return recorded(recorder, Profiler(TRACE, start, mark, jax.profiler.stop_trace))


def record_kernels(observer: AnnouncedObserver, jax: Any, how: Driving, step: Callable[[], None]) -> None:
    """Run steps of their own whose kernels are recorded, and say which GPU it was."""
    with recorded_by(observer.recorder, jax), observer.span("pass", "kernels"):
        for _ in range(KERNEL_STEPS):
            step()
    _state_device(observer.recorder, jax, how.device)


def _state_device(recorder: Recorder, jax: Any, device: str) -> None:
    """Which GPU it was, and the most of its memory that JAX held."""
    number = device.partition(":")[2] or "0"
    one = jax.devices()[int(number)]
    memory = one.memory_stats() or {}
    peak = memory.get("peak_bytes_in_use", 0)
    held = memory.get("peak_pool_bytes", memory.get("pool_bytes", peak))
    about = {"name": one.device_kind, "peak_allocated": peak, "peak_reserved": max(held, peak)}
    recorder.state(devices={number: about})

"""Kernels of a few steps of a JAX program: its own profiler around them, and what is said of the GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from sonda.frameworks.announced import AnnouncedObserver
from sonda.frameworks.collector.jax_profiler import mark_clock, start_trace
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.driving import KERNEL_STEPS, Driving
from sonda.frameworks.profiled_kernels import ProfileFile, Profiler, recorded

TRACE = ProfileFile("JAX", "trace", ".trace.json.gz", "jax.kernels.json.gz")


def recorded_by(recorder: Recorder, jax: Any) -> AbstractContextManager[None]:
    """Record the kernels of what runs in this block."""
    start, mark = (partial(one, jax.profiler) for one in (start_trace, mark_clock))
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

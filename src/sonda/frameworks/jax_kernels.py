"""Kernels of a few steps of a JAX program: its own profiler around them, and what is said of the GPU.

JAX's trace is read like any imported one. Its clock is tied to the collector's by the same marks as torch.profiler's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns as now
from typing import Any

from sonda.frameworks.announced import AnnouncedObserver
from sonda.frameworks.collector.kernel_pass import CLOCK, MARKS
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.torch_driver import KERNEL_STEPS, Driving


@contextmanager
def recorded(recorder: Recorder, jax: Any) -> Iterator[None]:
    """Record the kernels of what runs in this block; where JAX's profiler fails, the reason is stated instead."""
    folder = Path(recorder.directory) / "jax-profile"
    try:
        options = jax.profiler.ProfileOptions()
        # Frames of Python would fill the trace and say nothing of kernels.
        options.python_tracer_level = 0
        jax.profiler.start_trace(str(folder), profiler_options=options)
        _mark_clock(jax)
    except Exception as error:
        recorder.state(no_kernels=_first_line(error))
        yield
        return
    try:
        yield
    finally:
        try:
            _mark_clock(jax)
            jax.profiler.stop_trace()
            keep_trace(recorder, folder)
        except Exception as error:
            recorder.state(no_kernels=_first_line(error))


def keep_trace(recorder: Recorder, folder: Path) -> None:
    """Put the trace that JAX left in a folder beside the events, and say which thread launched its kernels.

    The thread waits for every operation, so that whatever the trace calls it, it is the one that launched.
    """
    traces = sorted(folder.glob("**/*.trace.json.gz"))
    if not traces:
        recorder.state(no_kernels="JAX's profiler wrote no trace")
        return
    name = f"{os.getpid()}-jax.kernels.json.gz"
    shutil.move(traces[-1], Path(recorder.directory) / name)
    shutil.rmtree(folder, ignore_errors=True)
    recorder.state(kernels=name, launching=recorder.stream().native)


def _mark_clock(jax: Any) -> None:
    for _ in range(MARKS):
        with jax.profiler.TraceAnnotation(f"{CLOCK}{now()}"):
            pass


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["JAX's profiler failed"])[0]


def record_kernels(observer: AnnouncedObserver, jax: Any, how: Driving, step: Callable[[], None]) -> None:
    """Run steps of their own whose kernels are recorded, and say which GPU it was."""
    with recorded(observer.recorder, jax), observer.span("pass", "kernels"):
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

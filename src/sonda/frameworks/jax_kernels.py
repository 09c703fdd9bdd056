"""Kernels of a few steps of a JAX program: its own profiler around them, or a profiler outside that is told of them.

JAX's trace is read like any imported one. Its clock is tied to the collector's by the same marks as torch.profiler's.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns as now
from typing import Any

from sonda.frameworks.collector.kernel_pass import CLOCK, MARKS
from sonda.frameworks.collector.recorder import Recorder

RUNTIME = "libcudart.so"
DRIVER = "libcuda.so.1"


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


@contextmanager
def replayed() -> Iterator[None]:
    """Tell a profiler outside, which replays kernels, where to begin and where to end."""
    start, stop = _profiler()
    start()
    try:
        yield
    finally:
        stop()


def _profiler() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """CUDA's own marks for profilers: of the runtime that is loaded or installed, else of the driver."""
    for path in _runtimes():
        try:
            library = ctypes.CDLL(path)
            return library.cudaProfilerStart, library.cudaProfilerStop
        except (OSError, AttributeError):
            continue
    driver = ctypes.CDLL(DRIVER)
    return driver.cuProfilerStart, driver.cuProfilerStop


def _runtimes() -> list[str]:
    """Where CUDA's runtime library may be, the one that this process has loaded first."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        loaded = [line.split(maxsplit=5)[5].strip() for line in maps if RUNTIME in line]
    installed = [
        str(path) for folder in sys.path if folder for path in sorted(Path(folder).glob(f"nvidia/*/lib/{RUNTIME}*"))
    ]
    named = ctypes.util.find_library("cudart")
    return list(dict.fromkeys([*loaded, *installed, *([named] if named else []), RUNTIME]))

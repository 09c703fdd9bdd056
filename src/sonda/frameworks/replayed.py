"""Marks for a profiler outside, such as ncu, that replays kernels: where to begin and where to end.

They are CUDA's own, and nothing of a framework is needed for them.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RUNTIME = "libcudart.so"
DRIVER = "libcuda.so.1"


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

"""CUDA's functions that tell an external profiler, such as ncu, where to begin and where to end."""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os
import sys

RUNTIME = "libcudart.so"
DRIVER = "libcuda.so.1"


def find_profiler_marks() -> tuple:
    """The functions that start and stop an external profiler: of the CUDA runtime, or else of the driver.

    Raises OSError where neither library can be loaded.
    """
    for path in _runtime_paths():
        try:
            library = ctypes.CDLL(path)
            return library.cudaProfilerStart, library.cudaProfilerStop
        except (OSError, AttributeError):
            continue
    driver = ctypes.CDLL(DRIVER)
    return driver.cuProfilerStart, driver.cuProfilerStop


def _runtime_paths() -> list:
    """Paths at which CUDA's runtime library may be; those that this process has loaded come first."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        loaded = [line.split(maxsplit=5)[5].strip() for line in maps if RUNTIME in line]
    installed = [
        path
        for folder in sys.path
        if folder
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "nvidia", "*", "lib", f"{RUNTIME}*")))
    ]
    named = ctypes.util.find_library("cudart")
    return list(dict.fromkeys([*loaded, *installed, *([named] if named else []), RUNTIME]))

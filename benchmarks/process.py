"""What processes have used: memory, processor time with that of all that they started, and of single calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import process_time_ns
from typing import Any

import numpy as np


def highest_memory() -> float:
    """MB that this process held at most. Not getrusage's: that begins with what its parent held."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6


def processor_seconds() -> float:
    """Of this process, all that it started, and all that they started and waited for."""
    import psutil

    own = psutil.Process()
    times = [one.cpu_times() for one in (own, *own.children(recursive=True))]
    return sum(one.user + one.system + one.children_user + one.children_system for one in times)


def cpu_times(call: Callable[[], Any], count: int) -> np.ndarray:
    """ns of CPU time of each of so many calls; a call shorter than the clock's own cost is still one call."""
    times = np.empty(count)
    for number in range(count):
        begin = process_time_ns()
        call()
        times[number] = process_time_ns() - begin
    return times

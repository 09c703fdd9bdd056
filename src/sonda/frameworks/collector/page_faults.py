"""The cost of a page fault: of the first write to a page of memory that the system has not given before."""

from __future__ import annotations

import mmap
from time import thread_time_ns as spent

PAGES = 2048
TRIES = 3


def measure_fault_ns() -> float:
    """Processor time of one fault, ns: the least of a few tries over as many pages."""
    size = mmap.PAGESIZE
    times = []
    for _ in range(TRIES):
        memory = mmap.mmap(-1, PAGES * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        ones = b"\1" * PAGES
        begin = spent()
        memory[::size] = ones
        times.append((spent() - begin) / PAGES)
        memory.close()
    return float(min(times))

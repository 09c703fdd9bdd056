"""Page faults: the first write to a page of memory that the system gives. How many a step has, and what one costs."""

from __future__ import annotations

import mmap
import resource
from time import thread_time_ns as spent

PAGES = 2048
TRIES = 3
FIRST = 4
"""Steps that are left out: in the first ones everything is allocated once."""


class StepFaults:
    """Counts the page faults of this process from one step to another: at few steps, so that counting costs nothing."""

    def __init__(self) -> None:
        self._counts: list = []
        """Steps and faults until then."""

    def note(self, steps: int) -> None:
        """So many steps have ended."""
        self._counts.append((steps, resource.getrusage(resource.RUSAGE_SELF).ru_minflt))

    def facts(self) -> dict:
        """`step_faults`: of a step, between the last two counts; nothing where there are fewer steps than `FIRST`."""
        if len(self._counts) < 2:
            return {}
        (first, before), (last, after) = self._counts[-2:]
        return {"step_faults": (after - before) / (last - first)} if first >= FIRST and last > first else {}


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

"""How long a training waits outside its phases: for a file, a socket, a lock, another process, a sleep.

Between the end of an optimizer's step and the next forward, time in which the thread neither ran nor stood in the queue
for a processor is a wait; fetching from a DataLoader is a phase of its own and left out. A reading takes some µs, so a
loop that does not wait is looked at every now and then only, in steps that are spread by the golden ratio.
"""

from __future__ import annotations

import os
from time import perf_counter_ns as now
from time import thread_time_ns as ran

from .detail import GOLDEN

WORTH_NS = 1_000_000
"""A step that waited this long is worth reading clocks in the next one."""
ALL_OF_FIRST, ONE_IN = 8, 16
"""The first steps are all looked at, then every so many."""
MOST = 2048
"""Steps that are kept; beyond them every other is dropped, and half as many are looked at."""
QUEUE = "/proc/thread-self/schedstat"


class Waits:
    """Of one thread. `begin` and `end` stand around what is no phase, `step` at the end of a step."""

    def __init__(self) -> None:
        self.open = False
        """Whether clocks are running."""
        self.steps: list = []
        """Of each step that was looked at the ns waited, and how many steps it stands for."""
        self._chosen = True
        self._stands_for = 1
        self._count = 0
        self._stride = 1
        self._waited = -1
        """ns so far in this step; -1: nothing was looked at."""
        self._since = (0, 0, 0)
        self._queue_told = True
        """Whether the kernel keeps account of the queue."""

    def step(self) -> None:
        """A step is over, in which `begin` and `end` may have been called."""
        if self._waited >= 0:
            self.steps.append((self._waited, self._stands_for))
            if len(self.steps) >= MOST:
                self.steps = [(waited, 2 * count) for waited, count in self.steps[::2]]
                self._stride *= 2
        worth = self._waited >= WORTH_NS
        self._waited = -1
        self._count += 1
        self._stands_for = self._stride if worth or self._count < ALL_OF_FIRST else ONE_IN * self._stride
        self._chosen = (self._count * GOLDEN) % 1 < 1 / self._stands_for

    def begin(self) -> None:
        """Nothing of the framework runs from here on. What was begun before and not ended is forgotten: who knows what
        ran in it."""
        self.open = self._chosen
        if self.open:
            self._since = now(), ran(), self._queued()

    def end(self) -> None:
        """A phase begins."""
        self.open = False
        time, spent, before = self._since
        queued = self._queued()
        queued = queued - before if self._queue_told else 0
        self._waited = max(0, self._waited) + max(0, now() - time - (ran() - spent) - queued)

    def facts(self) -> dict:
        """For the end: how long a step waits on average, ns, how many were looked at, and how many of these waited."""
        stood_for = sum(count for _, count in self.steps)
        if not stood_for:
            return {}
        mean = sum(waited * count for waited, count in self.steps) / stood_for
        waited = sum(waited >= WORTH_NS for waited, _ in self.steps)
        return {"waits": {"step_ns": round(mean), "steps": len(self.steps), "waited": waited}}

    def _queued(self) -> int:
        """ns that the thread has stood in the queue for a processor; 0 where nobody tells."""
        if not self._queue_told:
            return 0
        try:
            file = os.open(QUEUE, os.O_RDONLY | os.O_CLOEXEC)  # kept open, it would outlive the thread
            try:
                return int(os.read(file, 64).split()[1])
            finally:
                os.close(file)
        except (OSError, IndexError, ValueError):
            self._queue_told = False
            return 0

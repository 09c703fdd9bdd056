"""Measures how long a training waits outside its phases: for a file, a socket, a lock, another process, a sleep.

Between an optimizer's step and the next forward, a thread waits while it neither runs nor stands in the queue for a
processor. Fetching from a DataLoader is a phase of its own and does not count. A reading takes some µs. So in a loop
that does not wait only some steps are measured, which the golden ratio spreads.
"""

from __future__ import annotations

import os
from time import perf_counter_ns as now
from time import thread_time_ns as ran

from .detail import GOLDEN

WORTH_NS = 1_000_000
"""After a step that waited this long, the next one is measured too."""
ALL_OF_FIRST, ONE_IN = 8, 16
"""The first steps are all measured, then one in so many."""
MOST = 2048
"""Measured steps that are stored. Beyond it every second one is dropped, and half as many are measured."""
QUEUE = "/proc/thread-self/schedstat"


class Waits:
    """The waits of one thread. `begin` and `end` stand around time outside phases; `end_step` follows every step."""

    def __init__(self) -> None:
        self.open = False
        """Whether a measurement is open."""
        self.steps: list = []
        """For each measured step the ns waited, and how many steps it stands for."""
        self._chosen = True
        self._stands_for = 1
        self._count = 0
        self._stride = 1
        self._waited = -1
        """ns waited so far in this step; -1 where nothing was measured."""
        self._since = (0, 0, 0)
        """Time, the thread's time on a processor and in the queue when the measurement began, ns."""
        self._queue_known = True
        """Whether the kernel tells the time in the queue."""

    def end_step(self) -> None:
        """A step ended. Decide whether the next one is measured."""
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
        """The framework runs nothing from here on. A measurement that was begun and not ended is dropped: the framework
        may have run in it."""
        self.open = self._chosen
        if self.open:
            # The time is read last here and first at the end: while the queue is read, the thread may be put into it
            # for longer than any wait that is told.
            queued, spent = self._queued(), ran()
            self._since = now(), spent, queued

    def end(self) -> None:
        """A phase begins: add the wait since `begin`."""
        self.open = False
        time, spent, before = self._since
        lasted, spent = now() - time, ran() - spent
        queued = self._queued()
        queued = queued - before if self._queue_known else 0
        self._waited = max(0, self._waited) + max(0, lasted - spent - queued)

    def facts(self) -> dict:
        """The mean wait of a step, ns, how many steps were measured, and how many of these waited; {} without steps."""
        stood_for = sum(count for _, count in self.steps)
        if not stood_for:
            return {}
        mean = sum(waited * count for waited, count in self.steps) / stood_for
        waited = sum(waited >= WORTH_NS for waited, _ in self.steps)
        return {"waits": {"step_ns": round(mean), "steps": len(self.steps), "waited": waited}}

    def _queued(self) -> int:
        """How long the thread has stood in the queue for a processor, ns; 0 where the kernel does not tell."""
        if not self._queue_known:
            return 0
        try:
            file = os.open(QUEUE, os.O_RDONLY | os.O_CLOEXEC)  # opened each time: an open file would outlive the thread
            try:
                return int(os.read(file, 64).split()[1])
            finally:
                os.close(file)
        except (OSError, IndexError, ValueError):
            self._queue_known = False
            return 0

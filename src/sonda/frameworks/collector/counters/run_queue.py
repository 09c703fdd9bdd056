"""Reads from the scheduler how long the threads of this process waited for a processor."""

from __future__ import annotations

import os

from ..descriptors import close_named, move_aside

FILE = "/schedstat"
LISTED_NS = 100_000_000
"""The list of threads is read at most this often. What a new thread waited until then counts at its first reading."""


class RunQueue:
    """The wait in the run queue, ns: the second number of `/proc/self/task/<id>/schedstat`, summed over all threads.

    Threads that have ended are in the sum.
    """

    def __init__(self) -> None:
        self._descriptors: dict = {}
        self._last: dict = {}
        self._ended = 0
        self._listed = 0

    @property
    def threads(self) -> int:
        """How many threads the next reading asks; 0 where the kernel does not count."""
        return len(self._descriptors)

    def open(self, time: int) -> None:
        """Look for new threads, at `time` (ns)."""
        self._listed = time
        try:
            names = os.listdir("/proc/self/task")
        except OSError:
            return
        for name in names:
            if name not in self._descriptors:
                try:
                    path = f"/proc/self/task/{name}{FILE}"
                    self._descriptors[name] = move_aside(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                except OSError:
                    continue  # the thread has ended, or the kernel has no such file
                self._last[name] = 0

    def read(self, time: int) -> int:
        """What all threads waited so far, ns."""
        if time - self._listed > LISTED_NS:
            self.open(time)
        for name, descriptor in list(self._descriptors.items()):
            try:
                self._last[name] = int(os.pread(descriptor, 64, 0).split()[1])
            except (OSError, IndexError, ValueError):
                close_named(self._descriptors.pop(name), FILE)
                self._ended += self._last.pop(name)
        return self._ended + sum(self._last.values())

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            close_named(descriptor, FILE)
        self._descriptors.clear()
        self._last.clear()

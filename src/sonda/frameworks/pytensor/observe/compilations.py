"""When Numba compiled: PyTensor's default linker leaves compiling to the first call of a function.

Numba does not compile what it finds in its cache on disk, so that a function may have no compilation.
"""

from __future__ import annotations

import sys
import threading
from time import perf_counter_ns as now
from typing import Any

COMPILE_EVENT = "numba:compile"


class _ThreadCompilations(threading.local):
    """Compilations of one thread: how many are open inside one another, and when the outermost began."""

    def __init__(self) -> None:
        self.open = 0
        self.begin = 0
        self.intervals: list = []


class NumbaCompilations:
    """Listens to Numba once it is imported. Functions that another needs are compiled within the time of that one."""

    def __init__(self) -> None:
        self.count = 0
        """The number of functions that were compiled, inner ones included."""
        self._thread = _ThreadCompilations()
        self._event: Any = None

    def listen(self) -> None:
        """Begin to listen if Numba is imported; calling it again costs nothing."""
        if self._event is None and "numba" in sys.modules:
            from numba.core import event

            listener = type("Listener", (event.Listener,), {"on_start": self._begin, "on_end": self._end})()
            event.register(COMPILE_EVENT, listener)
            self._event = event, listener

    def stop(self) -> None:
        if self._event is not None:
            event, listener = self._event
            event.unregister(COMPILE_EVENT, listener)
            self._event = None

    def _begin(self, _event: Any) -> None:
        thread = self._thread
        if not thread.open:
            thread.begin = now()
        thread.open += 1
        self.count += 1

    def _end(self, _event: Any) -> None:
        thread = self._thread
        thread.open -= 1
        if not thread.open:
            thread.intervals.append((thread.begin, now()))

    def take_intervals(self) -> list:
        """Begin and end (ns) of what this thread compiled since the last call, in order."""
        thread = self._thread
        intervals, thread.intervals = thread.intervals, []
        return intervals

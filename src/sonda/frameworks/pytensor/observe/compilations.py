"""When Numba compiled: PyTensor's default linker leaves that to the first call of a function.

What Numba finds in its cache on disk it does not compile, so a function of an earlier process has none.
"""

from __future__ import annotations

import sys
import threading
from time import perf_counter_ns as now
from typing import Any

EVENT = "numba:compile"


class _Compiling(threading.local):
    """Of one thread: compilations that are open, inside one another, and when the outermost began."""

    def __init__(self) -> None:
        self.open = 0
        self.begin = 0
        self.intervals: list = []


class NumbaCompilations:
    """Listens to Numba once it is imported. Functions that another one needs are compiled inside that one's time."""

    def __init__(self) -> None:
        self.count = 0
        """Functions that were compiled, inner ones included."""
        self._mine = _Compiling()
        self._event: Any = None

    def listen(self) -> None:
        """Begin, where Numba is there; asking again costs nothing."""
        if self._event is None and "numba" in sys.modules:
            from numba.core import event

            listener = type("Listener", (event.Listener,), {"on_start": self._begins, "on_end": self._ends})()
            event.register(EVENT, listener)
            self._event = event, listener

    def stop(self) -> None:
        if self._event is not None:
            event, listener = self._event
            event.unregister(EVENT, listener)
            self._event = None

    def _begins(self, _event: Any) -> None:
        mine = self._mine
        if not mine.open:
            mine.begin = now()
        mine.open += 1
        self.count += 1

    def _ends(self, _event: Any) -> None:
        mine = self._mine
        mine.open -= 1
        if not mine.open:
            mine.intervals.append((mine.begin, now()))

    def taken(self) -> list:
        """Begin and end (ns) of what this thread compiled since the last time it asked, in order."""
        mine = self._mine
        found, mine.intervals = mine.intervals, []
        return found

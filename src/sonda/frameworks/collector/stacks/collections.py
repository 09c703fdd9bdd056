"""Records garbage collections: when each began and ended."""

from __future__ import annotations

import gc
from _thread import get_native_id
from array import array
from time import perf_counter_ns as now
from typing import Any


class CollectionRecorder:
    """The garbage collections of this process from `begin` to `end`."""

    def __init__(self) -> None:
        self._rows: list = []
        self._began = 0

    def begin(self) -> None:
        gc.callbacks.append(self._note)

    def end(self) -> None:
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, about: Any) -> None:
        if phase == "start":
            self._began = now()
        elif self._began:
            self._rows.extend((self._began, now(), get_native_id(), about["generation"]))
            self._began = 0

    def take(self) -> array:
        """Rows that were not taken yet."""
        count = len(self._rows)
        rows = array("q", self._rows[:count])
        del self._rows[:count]
        return rows

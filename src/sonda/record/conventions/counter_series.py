"""A counter that only grows, as it was read: what it added between two moments, and between which bounds that lies.

A reading is late: the counter shows what it held at its last update, at most one update before. Readings of such a
counter still bound it, because it never falls: at any moment it holds at least what the last reading before showed, and
at most what the first reading that is one update or more later showed. Close to a reading the bounds are narrower
still, because it does not grow faster than its device can spend. Readings that did grow faster disprove that, and then
it bounds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CounterSeries:
    """Readings in order of time; `times` in ns, `values` cumulative and unwrapped (J)."""

    times: np.ndarray
    values: np.ndarray
    update: int = 0
    """ns from one update to the next."""
    highest: float = np.inf
    """W that it cannot grow faster than."""

    def between(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What was added in every window, its lower and its upper bound; NaN for a window that was not covered.

        Between readings the counter is taken to grow evenly, from one change to the next. The bounds need no such
        assumption.
        """
        begin, end = np.asarray(begin, dtype=np.float64), np.asarray(end, dtype=np.float64)
        nothing = np.full(len(begin), np.nan)
        if len(self.times) < 2:
            return nothing, nothing.copy(), nothing.copy()
        covered = (begin >= self.times[0]) & (end <= self.times[-1]) & (end >= begin)
        low = np.maximum(self._least(end) - self._most(begin), 0.0)
        high = self._most(end) - self._least(begin)
        value = np.clip(self._even(end) - self._even(begin), low, high)
        return tuple(np.where(covered, column, np.nan) for column in (value, low, high))  # type: ignore[return-value]

    @property
    def lag(self) -> float:
        """ns that a new value is old when it is first read, on average: half an update, or half an interval."""
        return min(self.update, float(np.median(np.diff(self.times)))) / 2 if len(self.times) > 1 else 0.0

    def growth(self) -> float:
        """What was added from the first reading to the last."""
        return float(self.values[-1] - self.values[0]) if len(self.values) else 0.0

    def _even(self, moments: np.ndarray) -> np.ndarray:
        # Read more often than it is updated, a counter climbs in stairs: what counts are their edges.
        edges = np.ones(len(self.values), dtype=bool)
        edges[1:-1] = self.values[1:-1] != self.values[:-2]
        values: np.ndarray = np.interp(moments, self.times[edges] - self.lag, self.values[edges])
        return values

    def _least(self, moments: np.ndarray) -> np.ndarray:
        before = self._at(np.searchsorted(self.times, moments, side="right") - 1)
        after = self._at(np.searchsorted(self.times, moments, side="left"))
        least: np.ndarray = np.maximum(
            self.values[before], self.values[after] - self._steep(self.times[after] - moments)
        )
        return least

    def _most(self, moments: np.ndarray) -> np.ndarray:
        before = self._at(np.searchsorted(self.times, moments, side="right") - 1)
        after = self._at(np.searchsorted(self.times, moments + self.update, side="left"))
        steep = self._steep(moments - self.times[before] + self.update)
        most: np.ndarray = np.minimum(self.values[after], self.values[before] + steep)
        return most

    def _at(self, places: np.ndarray) -> np.ndarray:
        inside: np.ndarray = np.clip(places, 0, len(self.values) - 1)
        return inside

    def _steep(self, ns: np.ndarray) -> np.ndarray:
        """The most that can be added in so many ns."""
        rate = self.highest / 1e9
        if (np.diff(self.values) > (np.diff(self.times) + self.update) * rate).any():
            rate = np.inf
        return np.full(len(ns), np.inf) if np.isinf(rate) else np.maximum(ns, 0) * rate

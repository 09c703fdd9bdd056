"""Chooses the steps of a training loop whose layers are recorded, so that recording stays a small part of the time.

Each layer costs some µs to record, which is much in a step of half a millisecond. So all layers of the first steps are
recorded, and afterwards those of a sample of steps that keeps the cost small. The golden ratio spreads the sample over
the loop, so that it does not follow anything that a program does, for example, in every tenth step.
"""

from __future__ import annotations

BEGINNING, WINDOW = 32, 64
"""The first steps are all recorded in detail. Then the stride is chosen, and again after every window of steps."""
PAIR_NS = 15_000
"""About what one begin or end of a layer costs to record, ns, with its share of the mark on its backward. Measured on
an EPYC in a network whose steps of 11 ms evict the collector from the caches; in shorter steps it is a third."""
SHARE = 0.02
"""The share of the loop's time that recording layers may take."""
LONGEST_STRIDE = 16
GOLDEN = 0.6180339887498949


class DetailSample:
    """Chooses at the end of every step whether the next one is recorded in detail."""

    def __init__(self) -> None:
        self.stride = 1
        """One in so many steps is recorded in detail."""
        self._steps = 0
        self._began = 0
        """When the window began, ns."""
        self._next = BEGINNING
        """The step at which the stride is chosen next."""
        self._pairs = 0
        """The fewest begins and ends in a detailed step of this window: others may hold an evaluation too."""
        self._chosen = True

    def choose(self, now: int, pairs: int) -> bool:
        """Whether the next step is recorded in detail. The step that ended at `now` (ns) recorded so many `pairs`."""
        if self._chosen and pairs > 0:
            self._pairs = min(self._pairs or pairs, pairs)
        if not self._steps:
            self._began = now
        elif self._steps == self._next:
            steps = BEGINNING if self._next == BEGINNING else WINDOW
            if self._pairs and now > self._began:
                cost = steps * self._pairs * PAIR_NS
                self.stride = max(1, min(LONGEST_STRIDE, round(cost / (SHARE * (now - self._began)))))
            self._began, self._pairs = now, 0
            self._next += WINDOW
        self._steps += 1
        self._chosen = self.stride == 1 or (self._steps * GOLDEN) % 1 < 1 / self.stride
        return self._chosen

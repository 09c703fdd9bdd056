"""Which steps of a training loop have their layers recorded, so that recording stays a small part of a short step.

The layers of a step cost some µs each to record: much in a step of half a millisecond, which comes a thousand times.
Once enough steps were recorded in detail, only as many more are as keeps the cost small. They are spread over the loop
by the golden ratio: whatever a program does in every tenth step, they do not keep to it.
"""

from __future__ import annotations

BEGINNING, WINDOW = 32, 64
"""The first steps are all recorded in detail; then the stride is chosen, and chosen anew after so many steps."""
PAIR_NS = 15_000
"""About what one begin or end of a layer costs to record, ns, with its share of the mark that backward carries: on an
EPYC, in a network whose steps of 11 ms leave nothing of ours in the caches. In shorter ones it is a third."""
SHARE = 0.02
"""Of the time of the loop, what recording layers may take."""
LONGEST_STRIDE = 16
GOLDEN = 0.6180339887498949


class DetailSample:
    """Told of the end of every step, chooses whether the next one is recorded in detail."""

    def __init__(self) -> None:
        self.stride = 1
        """One of so many steps is recorded in detail."""
        self._steps = 0
        self._began = 0
        """When the window began, ns."""
        self._next = BEGINNING
        """The step at which the stride is chosen."""
        self._pairs = 0
        """Begins and ends in the detailed step of this window that had fewest: another may hold an evaluation."""
        self._chosen = True

    def choose(self, now: int, pairs: int) -> bool:
        """Whether the next step is recorded in detail; the one that ended recorded so many begins and ends."""
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

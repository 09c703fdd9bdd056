"""Which steps of a training loop have their layers recorded, so that recording stays a small part of a short step.

The layers of a step cost some µs each to record: much in a step of half a millisecond, which comes a thousand times.
Once enough steps were recorded in detail, only as many more are as keeps the cost small. They are spread over the loop
by the golden ratio: whatever a program does in every tenth step, they do not keep to it.
"""

from __future__ import annotations

WINDOW = 64
"""Steps after which the stride is chosen anew; those before are all recorded in detail."""
PAIR_NS = 5_000
"""About what one begin or end of a layer costs to record, ns, with its share of the mark that backward carries."""
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
        self._pairs = 0
        """Begins and ends in the detailed step of this window that had fewest: another may hold an evaluation."""
        self._chosen = True

    def choose(self, now: int, pairs: int) -> bool:
        """Whether the next step is recorded in detail; the one that ended recorded so many begins and ends."""
        if self._chosen and pairs > 0:
            self._pairs = min(self._pairs or pairs, pairs)
        if self._steps % WINDOW == 0:
            if self._steps and self._pairs:
                cost = WINDOW * self._pairs * PAIR_NS
                self.stride = max(1, min(LONGEST_STRIDE, round(cost / (SHARE * (now - self._began)))))
            self._began, self._pairs = now, 0
        self._steps += 1
        self._chosen = self.stride == 1 or (self._steps * GOLDEN) % 1 < 1 / self.stride
        return self._chosen

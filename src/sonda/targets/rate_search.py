"""The highest rate at which something holds, found by bisection."""

from __future__ import annotations

from collections.abc import Callable

from sonda.record.errors import SondaError
from sonda.targets.traffic import per_second

PRECISION = 1.03
"""The search ends when the rate that held and the one that did not are this close."""
MOST_HALVINGS = 10
MOST_DOUBLINGS = 6


def find_rate(holds: Callable[[float], bool], guess: float) -> float:
    """The highest rate (queries/s) that held, within 3 %; `guess` is where to begin.

    Raises SondaError when no rate down to a thousandth of it holds. Beyond 64 times the guess it looks no further.
    """
    low, high = guess, guess
    if holds(guess):
        for _ in range(MOST_DOUBLINGS):
            high = 2 * low
            if not holds(high):
                break
            low = high
        else:
            return low
    else:
        for _ in range(MOST_HALVINGS):
            low = high / 2
            if holds(low):
                break
            high = low
        else:
            raise SondaError(f"the bound does not hold even at {per_second(high)}", "give a longer --latency-bound")
    while high / low > PRECISION:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low

"""The highest rate at which a bound holds, found by bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sonda.record.errors import SondaError

PRECISION = 1.03
"""The search ends when the rate that held and the one that did not are this close."""
MOST_HALVINGS = 10
MOST_DOUBLINGS = 6
BACKWARDS = 0.95
MOST_BACKWARDS = 8
"""A rate that held in the search and not in the run that counts is lowered so, at most so often."""


@dataclass(frozen=True)
class Trial:
    """One rate that was tried: queries/s, how many were sent, how many came late, whether the bound held."""

    rate: float
    queries: int
    late: int
    held: bool


def find_rate(trial: Callable[[float], Trial], guess: float) -> tuple[float, list[Trial]]:
    """The highest rate (queries/s) that held, within 3 %, and every trial in order.

    `guess` is where to begin. Raises SondaError when no rate down to a thousandth of it holds.
    """
    trials: list[Trial] = []

    def holds(rate: float) -> bool:
        trials.append(trial(rate))
        return trials[-1].held

    low, high = guess, guess
    if holds(guess):
        for _ in range(MOST_DOUBLINGS):
            high = 2 * low
            if not holds(high):
                break
            low = high
        else:
            return low, trials
    else:
        for _ in range(MOST_HALVINGS):
            low = high / 2
            if holds(low):
                break
            high = low
        else:
            raise SondaError(
                f"the bound does not hold even at {high:.3g} queries/s", "give a longer --latency-bound"
            )  # fmt: skip
    while high / low > PRECISION:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, trials

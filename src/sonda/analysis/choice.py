"""The best of several ways to do the same work, where repetitions tell it from all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from sonda.analysis.spread import quotient
from sonda.analysis.summary import Value


@dataclass(frozen=True)
class Choice:
    """A way that is better than the others."""

    best: str
    other: str
    """What it is held against: the usual way, or the next best where the best is the usual one."""
    times: Value
    """How many times as good as that; without an interval where nothing is measured."""


def best_of(
    values: Mapping[str, Sequence[float]], usual: str, *, larger: bool = False, exact: bool = False,
    comparisons: int = 1,
) -> Choice | None:  # fmt: skip
    """The way whose figure is less, or `larger`, than that of every other; None where that cannot be told.

    `values` are the repetitions of every way. Measured ones need two or more each, and an interval above 1 that holds
    with 95 % for all `comparisons` at once; `exact` ones, which are simulated, differ or do not.
    """
    known = {name: list(of) for name, of in values.items() if of and min(of) > 0}
    if len(known) < 2 or (not exact and min(map(len, known.values())) < 2):
        return None
    order = sorted(known, key=lambda name: median(known[name]), reverse=larger)
    best, *others = order
    times = {name: _times(known[best], known[name], larger, exact, comparisons) for name in others}
    least = [one.value if exact else one.low for one in times.values()]
    if any(one is None or one <= 1 for one in least):
        return None
    other = usual if usual in times else others[0]
    return Choice(best, other, times[other])


def _times(best: Sequence[float], other: Sequence[float], larger: bool, exact: bool, comparisons: int) -> Value:
    above, below = (best, other) if larger else (other, best)
    if exact:
        return Value(median(above) / median(below), "1", "derived")
    return quotient(above, below, comparisons=comparisons)

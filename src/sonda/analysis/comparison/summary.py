"""The comparison of two groups of runs, as plain data."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from sonda.analysis.comparison.limit import LimitCheck, Variation, check_limit
from sonda.analysis.findings import Finding
from sonda.analysis.statistics import OF_MEDIAN
from sonda.analysis.summary import Value

VAGUE = 0.1
"""Of a factor that is known to less than ±10 % the second digit is unknown: both ends are said instead."""
MOST_TIMES = 1000
"""Of a factor beyond it nobody needs the digits."""


@dataclass(frozen=True)
class ComparedRow:
    """One thing that both sides have: the whole step, a phase, or a layer."""

    name: str
    """`step`, the phase, or the layer's class."""
    path: str
    """Module path of a layer; '' for all else, and for the model itself."""
    a: Value
    """ns per step on side A: median over runs of each run's median; cycles where both sides are simulated."""
    b: Value
    ratio: Value
    """Time of B over time of A, with its 95 % interval; above 1 B is slower. Of cycles it is exact, without one."""
    significant: bool
    """Whether the interval leaves out 1; of cycles, whether they differ."""
    text: str
    """`1.05x faster`, `1.21 to 1.60x slower`, `not significant`, or of cycles `equal`: B seen from A."""


@dataclass(frozen=True)
class PartComparison:
    """A part (train, validate, test) that both sides have."""

    name: str
    step: ComparedRow
    phases: tuple[ComparedRow, ...]
    layers: tuple[ComparedRow, ...]
    only_a: tuple[str, ...]
    """Phases and layers that only A has, as `phase NAME` or `PATH (CLASS)`."""
    only_b: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """B against A."""

    a: tuple[str, ...]
    """Ids of the runs of side A."""
    b: tuple[str, ...]
    parts: tuple[PartComparison, ...]
    """The first is the one that `slowdown` speaks of."""
    slowdown: Value
    """How much slower B is, 0.05 for 5 %; negative where B is faster."""
    warnings: tuple[Finding, ...]
    """What makes the comparison doubtful, each with its remedy."""
    notes: tuple[Finding, ...]
    """What the intervals mean."""
    exact: bool = False
    """Both sides are simulated: cycles in place of times, and nothing is estimated."""

    variations: tuple[Variation, ...] = ()
    """How much the processes of A and of B differ; none of cycles."""
    of_programs: bool = False
    """A side has runs of a program, which `--repeat` does not repeat."""

    def check(self, limit: float) -> LimitCheck:
        """Whether B is slower than A by more than `limit` (0.05 for 5 %) with 95 % confidence; exactly so in cycles."""
        return check_limit(self.slowdown, limit, self.variations, OF_MEDIAN)


def describe(times: float, low: float | None = None, high: float | None = None) -> str:
    """`0.952` -> `1.05x faster`, `1.3` -> `1.30x slower`; of an interval that leaves the second digit open both ends:
    `1.21 to 1.60x slower`."""
    word = "slower" if times > 1 else "faster"
    if low is None or high is None or not is_vague(low, high):
        return f"{times if times > 1 else 1 / times:.2f}x {word}"
    return f"{factor_range(low, high)} {word}"


def is_vague(low: float, high: float) -> bool:
    """Whether a ratio with these ends is known to less than ±10 %."""
    return low <= 0 or math.sqrt(high / low) - 1 > VAGUE


def factor_range(low: float, high: float) -> str:
    """`1.21 to 1.60x`: the ends of a ratio as factors of one direction; of ratios below 1 those of the inverse."""
    least, most = (low, high) if high > 1 else (1 / high, 1 / low if low > 0 else math.inf)
    return f"{factor_digits(least)} to {factor_digits(most)}x"


def factor_digits(factor: float) -> str:
    """`1.06`, `12.6`, `126`: a factor of at least 1 in three digits."""
    if factor > MOST_TIMES:
        return f">{MOST_TIMES:,}"
    return f"{factor:.2f}" if factor < 9.995 else f"{factor:.1f}" if factor < 99.95 else f"{factor:,.0f}"


def lonely(
    phases: Collection[str],
    other_phases: Collection[str],
    layers: Collection[tuple[str, str]],
    other_layers: Collection[tuple[str, str]],
) -> tuple[str, ...]:
    """What only one side has, as `PartComparison.only_a` says it; layers are paths and classes."""
    elsewhere = set(other_layers)
    apart = [f"{path or 'the model'} ({kind})" for path, kind in layers if (path, kind) not in elsewhere]
    return tuple([f"phase {name}" for name in phases if name not in other_phases] + apart)

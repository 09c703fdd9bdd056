"""The comparison of two groups of runs, as plain data."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value


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
    """`1.05x faster`, `1.30x slower`, `not significant`, or of cycles `equal`: B seen from A."""


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
    """How much slower B is, 0.05 for 5 %; `low` is what `--fail-above` is held against; negative where B is faster."""
    warnings: tuple[Finding, ...]
    """What makes the comparison doubtful, each with its remedy."""
    notes: tuple[Finding, ...]
    """What the intervals mean."""
    exact: bool = False
    """Both sides are simulated: cycles in place of times, and nothing is estimated."""

    def fails(self, limit: float) -> bool:
        """Whether B is slower than A by more than `limit` (0.05 for 5 %) with 95 % confidence; exactly so in cycles."""
        return self.slowdown.low is not None and self.slowdown.low > limit


def describe(times: float) -> str:
    """`0.952` -> `1.05x faster`, `1.3` -> `1.30x slower`."""
    return f"{times:.2f}x slower" if times > 1 else f"{1 / times:.2f}x faster"


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

"""What the counters of kernels have to tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sonda.analysis.findings import Finding
from sonda.analysis.summary import Value


@dataclass(frozen=True)
class WarpsWait(Finding):
    """What the warps of a kernel wait for most."""

    kind: ClassVar[str] = "warps wait"

    reason: str
    """One of `STALLS`."""
    share: Value
    """Of the cycles of resident warps, 0 to 1."""


@dataclass(frozen=True)
class MendStall(Finding):
    """To try: what makes warps wait less for this reason."""

    kind: ClassVar[str] = "mend stall"

    reason: str


@dataclass(frozen=True)
class CountedUnlikeNominal(Finding):
    """Counted FLOPs of a class of layers, or of a phase, differ from those of its formulas."""

    kind: ClassVar[str] = "counted unlike nominal"

    name: str
    """The class, or the phase."""
    layer: bool
    places: int
    """How many of them."""
    counted: float
    """FLOP."""
    nominal: float

    @property
    def ratio(self) -> float:
        return self.counted / self.nominal

"""What the counters of kernels have to tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sonda.analysis.findings import Finding


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

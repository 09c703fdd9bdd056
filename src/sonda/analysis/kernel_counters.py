"""What the counters of kernels say of a run: kernels, layers beside their formulas, stalls, and sentences."""

from __future__ import annotations

from dataclasses import dataclass

from sonda.analysis.counted_flops import (
    CountedKernel,
    CountedPlace,
    counted_kernels,
    counted_places,
    ratio_sentences,
)
from sonda.analysis.stalls import StallRow, counted_rows, stall_rows
from sonda.record.span import Spans


@dataclass(frozen=True)
class KernelCounters:
    """Of one repetition."""

    kernels: tuple[CountedKernel, ...]
    """Those that take longest first."""
    places: tuple[CountedPlace, ...]
    """Layers, and phases outside them, in their order."""
    stalls: tuple[StallRow, ...]
    """Of the kernels that were asked, those that take longest first."""
    sentences: tuple[str, ...]
    """Where counted and nominal FLOPs differ, and why."""


def summarise_kernel_counters(spans: Spans) -> KernelCounters | None:
    """None where nothing was counted."""
    if not len(counted_rows(spans)):
        return None
    places = counted_places(spans)
    return KernelCounters(counted_kernels(spans), places, stall_rows(spans), ratio_sentences(places))

"""More arithmetic than the formulas ask for, where arithmetic is what limits the kernels."""

from __future__ import annotations

from sonda.analysis.rules.limit_findings import MoreArithmetic
from sonda.analysis.rules.work import WORTH, first_part
from sonda.analysis.summary import Summary, Value, Verdict

FAR = 1.5
"""Half as much again is more than tiles filled up at their edges."""
BOUND = 0.5
"""A peak that explains half of the time is what limits, as everywhere."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when layers that count half as much again as their formulas take a tenth of the step or more.

    Only where kernels are near the peak of arithmetic: elsewhere FLOPs cost no time.
    """
    part, counters = first_part(summary), summary.kernel_counters
    if part is None or counters is None:
        return None
    total = sum(place.time for place in counters.places)
    far_places = [place for place in counters.places if place.layer and (place.ratio.value or 0.0) >= FAR]
    limited = {kernel.nearest for kernel in counters.kernels if (kernel.roof.value or 0.0) >= BOUND}
    time = sum(place.time for place in far_places)
    # Kernels take the part of the step in which the device is busy.
    busy = min(part.device.share, 1.0) if part.device is not None else 1.0
    share = busy * time / total if total else 0.0
    if share < WORTH or "flops" not in limited:
        return None
    counted = Value(sum(place.counted.value or 0.0 for place in far_places), "FLOP", "counted")
    nominal = Value(sum(place.nominal.value or 0.0 for place in far_places), "FLOP", "nominal")
    of_step = Value(share, "1", "derived")
    return Verdict(
        kind="compute",
        finding=MoreArithmetic(tuple(place.name for place in far_places), counted, nominal, of_step),
        evidence={"share": of_step, "counted": counted, "nominal": nominal},
        share=share,
    )

"""Stalls: what a kernel waits for that the device's peaks do not explain, said only where it was counted."""

from __future__ import annotations

from sonda.analysis.rules.limit_findings import KernelStalled
from sonda.analysis.rules.work import WORTH, first_part
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

KINDS = {"long_scoreboard": "memory", "lg_throttle": "memory", "drain": "memory", "math_pipe_throttle": "compute",
         "gmma": "compute"}  # fmt: skip
"""Reasons that say which side limits; all others are overhead."""
NEAR = 0.5
"""A kernel that reaches half of a roof is explained by it, whatever its warps wait for."""


def rule(summary: Summary) -> Verdict | None:
    """Fires for the kernel that takes longest, from a tenth of the step on, among those that wait for something that
    can be mended and are not explained by a roof of the device. Where no roof is known it is not called out of line."""
    part, counters = first_part(summary), summary.kernel_counters
    rows = counters.stalls if counters is not None else ()
    row = next((row for row in rows if row.remedy and (row.roof is None or row.roof < NEAR)), None)
    if part is None or row is None or row.wait is None or row.remedy is None:
        return None
    # Kernels take the part of the step in which the device is busy.
    share = row.share * (min(part.device.share, 1.0) if part.device is not None else 1.0)
    if share < WORTH:
        return None
    of_step = Value(share, "1", "derived")
    roof = Value(row.roof, "1", "derived") if row.roof is not None else None
    return Verdict(
        kind=KINDS.get(row.top, "overhead"),
        finding=KernelStalled(row.name, of_step, roof, row.wait),
        evidence={
            "share": of_step,
            **({"roof": roof} if roof is not None else {}),
            **{reason: Value(value, "1", "derived") for reason, value in list(row.shares.items())[:3]},
        },
        remedies=(Remedy(row.remedy),),
        share=share,
    )

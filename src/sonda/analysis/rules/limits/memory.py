"""Memory-bound: moving data at the measured bandwidth explains the time."""

from __future__ import annotations

from sonda.analysis import reasons
from sonda.analysis.rules import remedies
from sonda.analysis.rules.limit_findings import MemoryBound
from sonda.analysis.rules.work import WORTH, bound_by, first_part, leading, pieces_of, reached, share
from sonda.analysis.summary import Summary, Value, Verdict

MOSTLY = 0.5
"""The memory that moves more than half of the bytes gives the bandwidth its name."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when layers or phases bound by memory take a tenth of the step or more."""
    part = first_part(summary)
    bounded = bound_by(part, "memory") if part else []
    if share(bounded) < WORTH:
        return None
    named = leading(bounded)
    moved = sum(work.cost.bytes.value or 0.0 for work in named)
    cached = sum((work.cost.bytes.value or 0.0) * work.cost.cached for work in named)
    of_bandwidth = reached(named, "memory")
    in_cache = cached > MOSTLY * moved
    time_share, traffic = Value(share(named), "1", "derived"), Value(moved, "B", "nominal")
    return Verdict(
        kind="memory",
        finding=MemoryBound(pieces_of(named), time_share, traffic, of_bandwidth, in_cache),
        evidence={
            "share": time_share,
            "bytes": traffic,
            "of_bandwidth": of_bandwidth.value(reasons.ABOVE_ROOF),
            "bandwidth": summary.ceilings["cache_bandwidth" if in_cache else "dram_bandwidth"],
        },
        remedies=remedies.remedies(summary, remedies.float32, remedies.compiled, remedies.threads, remedies.bfloat16),
        share=share(bounded),
    )

"""Compute-bound: arithmetic near the peak explains the time."""

from __future__ import annotations

from sonda.analysis import reasons
from sonda.analysis.rules import remedies
from sonda.analysis.rules.limit_findings import ComputeBound
from sonda.analysis.rules.work import WORTH, bound_by, first_part, leading, pieces_of, reached, share
from sonda.analysis.summary import Summary, Value, Verdict


def rule(summary: Summary) -> Verdict | None:
    """Fires when layers or phases bound by arithmetic take a tenth of the step or more."""
    part = first_part(summary)
    bounded = bound_by(part, "compute") if part else []
    if share(bounded) < WORTH:
        return None
    named = leading(bounded)
    of_peak = reached(named, "compute")
    time_share = Value(share(named), "1", "derived")
    return Verdict(
        kind="compute",
        finding=ComputeBound(pieces_of(named), time_share, of_peak, summary.target.device.startswith("cuda")),
        evidence={
            "share": time_share,
            "of_peak": of_peak.value(reasons.ABOVE_ROOF),
            "peak": summary.ceilings["flops"],
        },
        remedies=remedies.remedies(
            summary, remedies.float32, remedies.threads, remedies.channels_last, remedies.bfloat16
        ),
        share=share(bounded),
    )

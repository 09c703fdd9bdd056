"""Overhead-bound: the operations are too small for what the framework costs per operation."""

from __future__ import annotations

from sonda.analysis import reasons
from sonda.analysis.rules import remedies
from sonda.analysis.rules.limit_findings import OverheadBound
from sonda.analysis.rules.work import WORTH, bound_by, first_part, leading, limit, pieces_of, reached, share, time
from sonda.analysis.summary import Summary, Value, Verdict


def rule(summary: Summary) -> Verdict | None:
    """Fires when layers or phases bound by the framework's own cost take a tenth of the step or more."""
    part = first_part(summary)
    bounded = bound_by(part, "overhead") if part else []
    if share(bounded) < WORTH:
        return None
    named = leading(bounded)
    operations = sum(work.cost.operations.value or 0.0 for work in named)
    of_time = reached(named, "overhead")
    time_share, count = Value(share(named), "1", "derived"), Value(operations, "1", "counted")
    cost = Value(limit(named, "overhead") / operations, "ns", "measured")
    taken = Value(time(named) / operations, "ns", "derived")
    return Verdict(
        kind="overhead",
        finding=OverheadBound(pieces_of(named), time_share, count, cost, taken, of_time),
        evidence={
            "share": time_share,
            "operations": count,
            "operation_cost": cost,
            "of_time": of_time.value(reasons.ABOVE_ROOF),
        },
        remedies=remedies.remedies(summary, remedies.batch, remedies.compiled),
        share=share(bounded),
    )

"""Overhead-bound: the operations are too small for what the framework costs per operation."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.rules import remedies
from sonda.analysis.rules.work import WORTH, bound_by, families, first_part, leading, limit, share, time
from sonda.analysis.summary import Summary, Value, Verdict


def rule(summary: Summary) -> Verdict | None:
    """Fires when layers or phases bound by the framework's own cost take a tenth of the step or more."""
    part = first_part(summary)
    found = bound_by(part, "overhead") if part else []
    if share(found) < WORTH:
        return None
    named = leading(found)
    operations = sum(work.cost.operations.value or 0.0 for work in named)
    cost = limit(named, "overhead") / operations
    return Verdict(
        kind="overhead",
        sentence=f"Overhead-bound in {families(named)}: {wording.percent(share(named))} of the step goes to "
        f"{wording.plural(operations, 'operation')} that cost {wording.duration(cost)} each, however small.",
        evidence={
            "share": Value(share(named), "1", "derived"),
            "operations": Value(operations, "1", "counted"),
            "operation_cost": Value(cost, "ns", "measured"),
            "of_time": Value(limit(named, "overhead") / time(named), "1", "derived"),
        },
        remedies=remedies.remedies(summary, remedies.batch, remedies.compiled),
        share=share(found),
    )

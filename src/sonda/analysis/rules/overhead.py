"""Overhead-bound: the operations are too small for what the framework costs per operation."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.bounds import Judgement
from sonda.analysis.roofline import ABOVE_ROOF
from sonda.analysis.rules import remedies
from sonda.analysis.rules.work import WORTH, bound_by, families, first_part, leading, limit, reached, share, time
from sonda.analysis.summary import Summary, Value, Verdict


def rule(summary: Summary) -> Verdict | None:
    """Fires when layers or phases bound by the framework's own cost take a tenth of the step or more."""
    part = first_part(summary)
    bounded = bound_by(part, "overhead") if part else []
    if share(bounded) < WORTH:
        return None
    named = leading(bounded)
    operations = sum(work.cost.operations.value or 0.0 for work in named)
    cost, of_time = limit(named, "overhead") / operations, reached(named, "overhead")
    each = f"cost {wording.duration(cost)} each, however small"
    if of_time.judgement is not Judgement.HOLDS:  # they cannot have cost more than they took
        each = f"take {wording.duration(time(named) / operations)} each, no longer than small ones do here"
    return Verdict(
        kind="overhead",
        sentence=f"Overhead-bound in {families(named)}: {wording.percent(share(named))} of the step goes to "
        f"{wording.plural(operations, 'operation')} that {each}.",
        evidence={
            "share": Value(share(named), "1", "derived"),
            "operations": Value(operations, "1", "counted"),
            "operation_cost": Value(cost, "ns", "measured"),
            "of_time": of_time.value(ABOVE_ROOF),
        },
        remedies=remedies.remedies(summary, remedies.batch, remedies.compiled),
        share=share(bounded),
    )

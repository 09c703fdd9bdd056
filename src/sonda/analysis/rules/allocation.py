"""Allocation: the step writes to memory that the system gives anew each time, page by page."""

from __future__ import annotations

from sonda.analysis.rules.advice import ReuseBuffers
from sonda.analysis.rules.evidence import TimedEvidence, evidence_of
from sonda.analysis.rules.limits import AllocatesAnew
from sonda.analysis.rules.places import CodePlace
from sonda.analysis.rules.work import WORTH, first_part
from sonda.analysis.summary import PartSummary, Remedy, Summary, Value, Verdict

FAULTS = "page_faults:counted"


def rule(summary: Summary) -> Verdict | None:
    """Fires when page faults, each at its measured cost, take a tenth of the step or more."""
    part, cost = first_part(summary), summary.workload.fault_ns
    faults = part.counters.get(FAULTS) if part is not None else None
    if part is None or not cost or faults is None or not faults.value or not part.step.value:
        return None
    spent = float(cost) * faults.value
    share = min(spent / part.step.value, 1.0)
    if share < WORTH:
        return None
    place = _place(part, evidence_of(summary))
    of_step, time = Value(share, "1", "derived"), Value(spent, "ns", "derived")
    each = Value(float(cost), "ns", "measured")
    return Verdict(
        kind="allocation",
        finding=AllocatesAnew(of_step, time, place, faults, each),
        evidence={"share": of_step, "time": time, "page_faults": faults, "fault_time": each},
        remedies=(Remedy(ReuseBuffers(place)),),
        share=share,
    )


def _place(part: PartSummary, evidence: TimedEvidence | None) -> CodePlace:
    """The phase with the most faults, and the layer and line that move most bytes in it."""
    faults = {row.name: row.counters[FAULTS].value or 0.0 for row in part.phases if FAULTS in row.counters}
    phase = max(faults, key=lambda name: faults[name], default="")
    groups = [timed.group for timed in evidence.groups if timed.group.phase == phase] if evidence is not None else []
    if not groups:
        return CodePlace(phase=phase)
    largest = max(groups, key=lambda group: group.bytes)
    return CodePlace(largest.layer or "", largest.line, phase)

"""Allocation: the step writes to memory that the system gives anew each time, page by page."""

from __future__ import annotations

from sonda.analysis.rules.advice import ReuseBuffers
from sonda.analysis.rules.evidence import TimedEvidence, evidence_of, told_ns
from sonda.analysis.rules.limits import AllocatesAnew
from sonda.analysis.rules.places import CodePlace
from sonda.analysis.rules.work import WORTH, first_part
from sonda.analysis.summary import PartSummary, Remedy, Summary, Value, Verdict

FAULTS = "page_faults:counted"
HALF = 0.5


def rule(summary: Summary) -> Verdict | None:
    """Fires when page faults, each at its measured cost, take a tenth of the step or more."""
    part, cost = first_part(summary), summary.workload.fault_ns
    if part is None or not cost or not part.step.value:
        return None
    faults = _faults(summary, part)
    if not faults.value:
        return None
    spent = float(cost) * faults.value
    share = min(spent / told_ns(part), 1.0)
    if share < WORTH:
        return None
    place = _place(part, evidence_of(summary), faults.value)
    of_step, time = Value(share, "1", "derived"), Value(spent, "ns", "derived")
    each = Value(float(cost), "ns", "measured")
    return Verdict(
        kind="allocation",
        finding=AllocatesAnew(of_step, time, place, faults, each),
        evidence={"share": of_step, "time": time, "page_faults": faults, "fault_time": each},
        remedies=(Remedy(ReuseBuffers(place)),),
        share=share,
    )


def _faults(summary: Summary, part: PartSummary) -> Value:
    """Page faults a step: those of its phases, or of the whole step where they are more."""
    in_phases = part.counters.get(FAULTS)
    whole = Value(float(summary.workload.step_faults or 0.0) if part.name == "train" else 0.0, "1", "counted")
    return in_phases if in_phases is not None and (in_phases.value or 0.0) >= (whole.value or 0.0) else whole


def _place(part: PartSummary, evidence: TimedEvidence | None, total: float) -> CodePlace:
    """The phase with the most faults, and the layer and line that move most bytes in it."""
    faults = {row.name: row.counters[FAULTS].value or 0.0 for row in part.phases if FAULTS in row.counters}
    phase = max(faults, key=lambda name: faults[name], default="")
    if sum(faults.values()) < HALF * total:
        phase = ""  # outside of all phases
    groups = [timed.group for timed in evidence.groups if timed.group.phase == phase] if evidence is not None else []
    if not groups:
        return CodePlace(phase=phase)
    largest = max(groups, key=lambda group: group.bytes)
    return CodePlace(largest.layer or "", largest.line, phase)

"""Double precision: most of the step computes with 64-bit numbers."""

from __future__ import annotations

from sonda.analysis.rules.advice import ComputeInFloat32
from sonda.analysis.rules.cause_findings import DoublePrecision
from sonda.analysis.rules.operations.evidence import evidence_of
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

DOUBLE = 64
HALF = 2.0
"""Half of the bits are half of the bytes, and twice as many numbers in a vector register."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when 32-bit numbers would save a tenth of the step or more. Operations that cost their overhead cost it in
    either precision."""
    evidence = evidence_of(summary)
    if evidence is None:
        return None
    peaks = summary.ceilings.get("peaks", {})
    times = HALF
    if "float64" in peaks and "float32" in peaks and peaks["float64"].value:
        times = max(HALF, peaks["float32"].value / peaks["float64"].value)
    cost = (summary.ceilings["operation"].value or 0.0) if "operation" in summary.ceilings else 0.0
    whole = saved = 0.0
    for timed in evidence.groups:
        if timed.group.bits != DOUBLE:
            continue
        whole += timed.ns
        work = max(timed.ns - cost * timed.group.operations, 0.0)
        saved += work * (1 - 1 / (times if timed.group.family == "product" else HALF))
    share = evidence.share(saved)
    if share < WORTH:
        return None
    chosen = summary.workload.double_line
    place = StepPlace(line=chosen) if chosen else evidence.largest_place(lambda group: group.bits == DOUBLE)
    of_step, time = Value(share, "1", "derived"), Value(saved, "ns", "derived")
    taken = Value(evidence.share(whole), "1", "derived")
    return Verdict(
        kind="double_precision",
        finding=DoublePrecision(of_step, time, place, bool(chosen), taken),
        evidence={"share": of_step, "time": time, "in_float64": taken},
        remedies=(Remedy(ComputeInFloat32(place)),),
        share=share,
    )

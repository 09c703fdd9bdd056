"""Memory format: operations read tensors that lie in memory with gaps, or in another order."""

from __future__ import annotations

from sonda.analysis.rules import remedies
from sonda.analysis.rules.advice import MakeContiguous
from sonda.analysis.rules.causes import StridedOperands
from sonda.analysis.rules.evidence import TimedGroup, evidence_of
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

MOSTLY = 0.5
"""Part of a group's bytes that lie so, from which on that is what it reads."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when operations on such tensors take a tenth of the step beyond what memory asks for, or more. Copies have
    a rule of their own."""
    evidence = evidence_of(summary)
    if evidence is None or "dram_bandwidth" not in summary.ceilings:
        return None
    bandwidth = summary.ceilings["dram_bandwidth"].value or 1.0
    cost = (summary.ceilings["operation"].value or 0.0) if "operation" in summary.ceilings else 0.0
    lost: list[tuple[float, TimedGroup]] = []
    for timed in evidence.groups:
        group = timed.group
        if group.family == "copy" or group.phase == "optimizer" or not group.bytes:
            continue
        if float(group.strided) >= MOSTLY * float(group.bytes):
            least = 1e9 * float(group.bytes) / bandwidth + cost * group.operations
            lost.append((max(timed.ns - least, 0.0), timed))
    spent = sum(ns for ns, _ in lost)
    share = evidence.share(spent)
    if share < WORTH:
        return None
    strided = {id(timed.group) for _, timed in lost}
    place = evidence.largest_place(lambda group: id(group) in strided)
    of_step, time = Value(share, "1", "derived"), Value(spent, "ns", "derived")
    moved = Value(sum(float(timed.group.strided) for _, timed in lost), "B", "nominal")
    return Verdict(
        kind="memory_format",
        finding=StridedOperands(of_step, time, place, moved),
        evidence={"share": of_step, "time": time, "bytes": moved},
        remedies=(Remedy(MakeContiguous(place)), *remedies.remedies(summary, remedies.channels_last)),
        share=share,
    )

"""Graph breaks: a compiled function falls apart into pieces, between which Python runs."""

from __future__ import annotations

from sonda.analysis.rules.advice import RemoveBreaks
from sonda.analysis.rules.limits import GraphBreaks
from sonda.analysis.rules.places import CodePlace
from sonda.analysis.rules.work import WORTH, first_part
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

COMPILED = ("forward", "fused", "prefill", "decode")
"""Phases in which compiled functions run."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when a function that breaks runs in phases that take a tenth of the step or more. What a break costs is
    not known, so it counts as the least that is worth a sentence."""
    part, found = first_part(summary), summary.workload.compilations
    if part is None or found is None or not found.breaks or not part.step.value:
        return None
    spent = sum(row.cost.time.value or 0.0 for row in part.phases if row.name in COMPILED)
    if spent / part.step.value < WORTH:
        return None
    worst = max(found.breaks, key=lambda place: place.times)
    place = CodePlace(line=worst.line, phase="forward")
    of_step, time = Value(min(spent / part.step.value, 1.0), "1", "derived"), Value(spent, "ns", "derived")
    breaks = sum(place.times for place in found.breaks)
    return Verdict(
        kind="graph_breaks",
        finding=GraphBreaks(of_step, time, place, breaks, worst.reason),
        evidence={"share": of_step, "time": time, "breaks": Value(float(breaks), "1", "counted")},
        remedies=(Remedy(RemoveBreaks(place)),),
        share=WORTH,
    )

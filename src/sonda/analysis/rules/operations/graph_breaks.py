"""Graph breaks: a compiled function falls apart into pieces, between which Python runs."""

from __future__ import annotations

from sonda.analysis.rules.advice import RemoveBreaks
from sonda.analysis.rules.cause_findings import GraphBreaks
from sonda.analysis.rules.operations.evidence import told_ns
from sonda.analysis.rules.operations.recompilation import breaks_within, compiled_again
from sonda.analysis.rules.operations.small_operations import small_operations
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH, first_part
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.evidence import GraphBreak

COMPILED = ("forward", "fused", "prefill", "decode")
"""Phases in which compiled functions run."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when a function that breaks runs in phases that take a tenth of the step or more. It explains the overhead
    of small operations, which compiling would have removed, and that pieces are compiled again; without any of these it
    counts as the least that is worth a sentence."""
    part, found = first_part(summary), breaks(summary)
    step = told_ns(part) if part is not None else 0.0
    if part is None or not found or not step:
        return None
    spent = sum(row.cost.time.value or 0.0 for row in part.phases if row.name in COMPILED)
    if spent / step < WORTH:
        return None
    worst = max(found, key=lambda place: place.times)
    place = StepPlace(line=worst.line, phase="forward")
    of_step, time = Value(min(spent / step, 1.0), "1", "derived"), Value(spent, "ns", "derived")
    times = sum(place.times for place in found)
    small = small_operations(summary)
    return Verdict(
        kind="graph_breaks",
        finding=GraphBreaks(of_step, time, place, times, worst.reason),
        evidence={"share": of_step, "time": time, "breaks": Value(float(times), "1", "counted")},
        remedies=(Remedy(RemoveBreaks(place)),),
        share=max(
            WORTH, small.evidence.share(small.overhead) if small is not None else 0.0, _share_compiled_again(summary)
        ),
    )


def _share_compiled_again(summary: Summary) -> float:
    """The part of all steps in which functions were compiled again whose graphs break."""
    total = sum((part.total.value or 0.0) for part in summary.parts if part.total is not None)
    again = [function for function in compiled_again(summary) if breaks_within(summary, function)]
    spent = 1e9 * sum(float(function.again) for function in again)
    return min(spent / max(total, spent), 1.0) if spent else 0.0


def breaks(summary: Summary) -> list[GraphBreak]:
    """Where compiled functions of the program break."""
    found = summary.workload.compilations
    return found.breaks if found is not None else []

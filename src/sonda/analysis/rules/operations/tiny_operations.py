"""Tiny operations: a great many small operations, each of which costs its overhead, whatever the batch."""

from __future__ import annotations

from sonda.analysis.rules import remedies
from sonda.analysis.rules.advice import Vectorise
from sonda.analysis.rules.cause_findings import TinyOperations
from sonda.analysis.rules.operations.graph_breaks import breaks
from sonda.analysis.rules.operations.small_operations import small_operations
from sonda.analysis.summary import Remedy, Summary, Value, Verdict


def rule(summary: Summary) -> Verdict | None:
    """Fires when the overhead of small operations takes the step, and not because the batch is small."""
    small = small_operations(summary)
    if small is None or small.few_samples or breaks(summary):
        return None
    share = small.evidence.share(small.overhead)
    of_step, time = Value(share, "1", "derived"), Value(small.overhead, "ns", "derived")
    operations = Value(float(small.operations), "1", "counted")
    each = Value(small.time / small.operations, "ns", "derived")
    return Verdict(
        kind="tiny_operations",
        finding=TinyOperations(of_step, time, small.place, operations, small.here, each, small.evidence.step.batch),
        evidence={"share": of_step, "time": time, "operations": operations},
        remedies=(Remedy(Vectorise(small.place)), *remedies.remedies(summary, remedies.compiled))
        if small.looped
        else remedies.remedies(summary, remedies.compiled, remedies.batch),
        share=share,
    )

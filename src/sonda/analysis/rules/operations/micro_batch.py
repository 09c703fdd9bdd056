"""Micro-batch: a step has so few samples that the overhead of its operations takes it, not their work."""

from __future__ import annotations

from sonda.analysis.rules import remedies
from sonda.analysis.rules.cause_findings import MicroBatch
from sonda.analysis.rules.operations.graph_breaks import breaks
from sonda.analysis.rules.operations.small_operations import SmallOperations, small_operations
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.summary import Summary, Value, Verdict


def rule(summary: Summary) -> Verdict | None:
    """Fires when the overhead of small operations takes the step, where the batch is small."""
    small = small_operations(summary)
    if small is None or not small.few_samples or breaks(summary):
        return None
    share = small.evidence.share(small.overhead)
    of_step, time = Value(share, "1", "derived"), Value(small.overhead, "ns", "derived")
    operations = Value(float(small.operations), "1", "counted")
    each = Value(small.time / small.operations, "ns", "derived")
    return Verdict(
        kind="micro_batch",
        finding=MicroBatch(of_step, time, _place(summary, small), operations, each, small.evidence.step.batch),
        evidence={"share": of_step, "time": time, "operations": operations},
        remedies=remedies.remedies(summary, remedies.batch, remedies.compiled),
        share=small.evidence.share(small.saved),
    )


def _place(summary: Summary, small: SmallOperations) -> StepPlace:
    """Where the loader of the batches is made; without one, where the model is called with a batch; where that is not
    known, the layer of most small operations."""
    line = summary.workload.loader_line or small.evidence.step.line
    return StepPlace(line=line) if line else small.place

"""Denormals: the network computes with subnormal numbers, for which a processor has a slow path."""

from __future__ import annotations

from sonda.analysis.rules.advice import FlushDenormals
from sonda.analysis.rules.evidence import layer_row
from sonda.analysis.rules.limits import SubnormalNumbers
from sonda.analysis.rules.places import CodePlace
from sonda.analysis.rules.work import WORTH, first_part
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.evidence import Denormals, DenormalTensor

OPERANDS = ("weights",)
"""What a layer multiplies with; its gradients and results are numbers that it makes."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when layers with subnormal numbers would take a tenth of the step less without them, by what an operation
    with such numbers was measured to take here."""
    part, found = first_part(summary), summary.workload.denormals
    if part is None or found is None or not part.step.value:
        return None
    saved: dict[str, float] = {}
    for tensor in found.places:
        row = layer_row(part, tensor.layer)
        spent = (row.cost.time.value or 0.0) if row is not None else 0.0
        saved[tensor.layer] = max(saved.get(tensor.layer, 0.0), spent * (1 - 1 / _times(found, tensor)))
    total = min(sum(saved.values()), part.step.value)
    share = total / part.step.value
    if share < WORTH:
        return None
    worst = max(found.places, key=lambda tensor: saved[tensor.layer])
    place = CodePlace(worst.layer)
    of_step, time = Value(share, "1", "derived"), Value(total, "ns", "derived")
    times = Value(_times(found, worst), "1", "measured")
    return Verdict(
        kind="denormals",
        finding=SubnormalNumbers(of_step, time, place, worst.what, Value(float(worst.part), "1", "counted"), times),
        evidence={"share": of_step, "time": time, "times": times},
        remedies=(Remedy(FlushDenormals(place)),),
        share=share,
    )


def _times(found: Denormals, tensor: DenormalTensor) -> float:
    """How many times longer work on this tensor takes: as its subnormal part is, between none and all."""
    slower = float(found.product_times if tensor.what in OPERANDS else found.element_times)
    return 1 + float(tensor.part) * max(slower - 1, 0.0)

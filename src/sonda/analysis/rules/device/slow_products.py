"""Slow products: float32 products on a GPU whose faster mode for them is not allowed."""

from __future__ import annotations

from sonda.analysis.rules.advice import AllowTf32
from sonda.analysis.rules.cause_findings import SlowProducts
from sonda.analysis.rules.operations.evidence import evidence_of, layer_row
from sonda.analysis.rules.remedies import FASTER_PEAK
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import PartSummary, Remedy, Summary, Value, Verdict
from sonda.record.evidence import OperationGroup

SINGLE = 32
"""Bits."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when products in TF32 would save a tenth of the step or more, by the measured peaks of the GPU."""
    evidence = evidence_of(summary)
    allowed = summary.target.tf32
    peaks = summary.ceilings.get("peaks", {})
    if evidence is None or evidence.part.device is None or allowed is None or not {"tf32", "float32"} <= set(peaks):
        return None
    slow, fast = peaks["float32"].value or 0.0, peaks["tf32"].value or 0.0
    if fast < FASTER_PEAK * slow:
        return None

    def wanted(group: OperationGroup) -> bool:
        mode = "convolution" if _is_convolution(evidence.part, group) else "matmul"
        return bool(group.phase) and group.family == "product" and group.bits == SINGLE and not allowed.get(mode, True)

    whole = evidence.time(wanted)
    saved = whole * (1 - slow / fast)
    share = evidence.share(saved)
    if share < WORTH:
        return None
    of_step, time = Value(share, "1", "derived"), Value(saved, "ns", "derived")
    place, taken = evidence.largest_place(wanted), Value(evidence.share(whole), "1", "derived")
    return Verdict(
        kind="slow_matmul_mode",
        finding=SlowProducts(of_step, time, place, taken, Value(fast / slow, "1", "measured")),
        evidence={"share": of_step, "time": time, "in_products": taken},
        remedies=(Remedy(AllowTf32(place)),),
        share=share,
    )


def _is_convolution(part: PartSummary, group: OperationGroup) -> bool:
    row = layer_row(part, group.layer) if group.layer is not None else None
    return row is not None and row.name.startswith("Conv")

"""Dominating layer: one layer takes the step by its size, out of proportion to the rest of the network."""

from __future__ import annotations

from sonda.analysis.rules.advice import SmallerLayer
from sonda.analysis.rules.cause_findings import DominatingLayer
from sonda.analysis.rules.operations.evidence import evidence_of, layer_row
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.summary import LayerRow, PartSummary, Remedy, Summary, Value, Verdict
from sonda.record.evidence import LayerSize

HALF = 0.5
"""A layer that takes more than half of the step takes more than all others together."""
MOST_WEIGHTS = 0.75
"""A layer with three quarters of all weights has three times those of all others together; tables, of which a step
reads some rows, are no part of its work, and no such layers."""
WIDE = 8
"""A matrix that is so many times as wide as long joins parts of different size: a flattened input, a vocabulary."""
LARGE_KERNEL = 7
"""Larger than the 3 and 5 of most convolutions; where a 7 stands first in a network it takes a small part."""
UPDATE = "optimizer"
FEWEST = 3
"""Layers with weights, from which on one can be out of proportion."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when a layer takes half of the step or more, alone and with the update of its weights, and holds most
    weights in a wide matrix, or in one behind convolutions, or has a large kernel."""
    evidence = evidence_of(summary)
    if evidence is None or len(evidence.step.sizes) < FEWEST:
        return None
    every = sum(size.weights for size in evidence.step.sizes)
    layers = [size for size in evidence.step.sizes if not _is_table(evidence.part, size)]
    total = sum(size.weights for size in layers)
    updating = evidence.share(sum(row.cost.time.value or 0.0 for row in evidence.part.phases if row.name == UPDATE))
    for size in layers:
        row = layer_row(evidence.part, size.layer)
        cost = (row.own_cost or row.cost) if row is not None else None
        if row is None or cost is None or cost.share != cost.share or not cost.time.value:
            continue
        # Where weights lie in tables whose rows are updated, the others' updates take a larger part of it.
        updates = updating * size.weights / every if every else 0.0
        taken = min(cost.share + updates, 1.0)
        if taken < HALF:
            continue
        own = size.weights / total if total else 0.0
        flattens = not size.kernel and sum(other.kernel > 0 for other in evidence.step.sizes) >= FEWEST
        if not ((_is_wide(size) or flattens) and own >= MOST_WEIGHTS) and size.kernel < LARGE_KERNEL:
            continue
        rest = _usual_share(evidence.part, row)
        place = StepPlace(size.layer)
        share = Value(taken, "1", "derived")
        saved = max(taken - rest, 0.0)
        time = Value(cost.time.value * taken / cost.share, "ns", "derived")
        weights = Value(own, "1", "counted")
        return Verdict(
            kind="dominating_layer",
            finding=DominatingLayer(share, time, place, row.name, weights, size.kernel),
            evidence={"share": share, "time": time, "weights": weights},
            remedies=(Remedy(SmallerLayer(place, size.kernel)),),
            share=saved,
        )
    return None


def _is_table(part: PartSummary, size: LayerSize) -> bool:
    """Whether rows are looked up in a layer's weights: fewer operations are counted than a product of all its weights
    with a single sample has."""
    row = layer_row(part, size.layer)
    cost = (row.own_cost or row.cost) if row is not None else None
    return cost is not None and cost.flops.value is not None and cost.flops.value < 2 * size.weights


def _is_wide(size: LayerSize) -> bool:
    least, most = sorted((size.inputs, size.outputs))
    return bool(least) and most >= WIDE * least


def _usual_share(part: PartSummary, apart: LayerRow) -> float:
    """What the largest of all other layers takes."""
    shares = [row.own_cost.share for row in part.layers if row.own_cost is not None and row.path != apart.path]
    return max((share for share in shares if share == share), default=0.0)

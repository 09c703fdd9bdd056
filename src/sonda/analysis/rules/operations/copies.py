"""Copies: tensors are cloned, converted or made contiguous within the step."""

from __future__ import annotations

from sonda.analysis.rules.advice import CopyLess
from sonda.analysis.rules.cause_findings import NeedlessCopies
from sonda.analysis.rules.operations.evidence import TimedEvidence, evidence_of
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.evidence import OperationGroup

AS_LARGE = 2.0
"""A backward moves the gradient of what its forward moved: as much, or twice that where it widens numbers."""
APART = ("data", "transfer")
"""Phases whose copies bring the input."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when copies take a tenth of the step or more. Autocast converts in every step, which is its way to work."""
    evidence = evidence_of(summary)
    if evidence is None or summary.workload.autocast:
        return None
    # Autograd copies too, where gradients lie otherwise than their weights: no line can leave that out. A backward has
    # copies that can be where its forward makes as large ones.
    forward, backward = (_moved_by_layer(evidence, back) for back in (False, True))

    def is_needless(group: OperationGroup) -> bool:
        back = _is_back(group)
        return _is_copy(group) and (not back or backward[group.layer] <= AS_LARGE * forward.get(group.layer, 0.0))

    spent = evidence.time(is_needless)
    share = evidence.share(spent)
    if share < WORTH:
        return None
    groups = [timed.group for timed in evidence.groups if is_needless(timed.group)]
    place = evidence.largest_place(lambda group: _is_copy(group) and not _is_back(group))
    of_step, time = Value(share, "1", "derived"), Value(spent, "ns", "derived")
    moved = Value(sum(float(group.bytes) for group in groups), "B", "nominal")
    return Verdict(
        kind="copies",
        finding=NeedlessCopies(of_step, time, place, sum(group.operations for group in groups), moved),
        evidence={"share": of_step, "time": time, "bytes": moved},
        remedies=(Remedy(CopyLess(place)),),
        share=share,
    )


def _moved_by_layer(evidence: TimedEvidence, back: bool) -> dict[str | None, float]:
    """B that copies of each layer move in the backward, or elsewhere."""
    moved: dict[str | None, float] = {}
    for timed in evidence.groups:
        group = timed.group
        if _is_copy(group) and _is_back(group) == back and group.phase != "optimizer":
            moved[group.layer] = moved.get(group.layer, 0.0) + float(group.bytes)
    return moved


def _is_copy(group: OperationGroup) -> bool:
    return group.family == "copy" and group.phase not in APART


def _is_back(group: OperationGroup) -> bool:
    return group.phase == "backward"

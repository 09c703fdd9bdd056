"""Copies: tensors are cloned, converted or made contiguous within the step."""

from __future__ import annotations

from sonda.analysis.rules.advice import CopyLess
from sonda.analysis.rules.causes import NeedlessCopies
from sonda.analysis.rules.evidence import evidence_of
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.evidence import OperationGroup

APART = ("data", "transfer")
"""Phases whose copies bring the input."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when copies take a tenth of the step or more. Autocast converts in every step, which is its way to work."""
    evidence = evidence_of(summary)
    if evidence is None or summary.workload.autocast:
        return None
    spent = evidence.time(_is_copy)
    share = evidence.share(spent)
    if share < WORTH:
        return None
    groups = [timed.group for timed in evidence.groups if _is_copy(timed.group)]
    place = evidence.largest_place(lambda group: _is_copy(group) and group.phase != "backward")
    of_step, time = Value(share, "1", "derived"), Value(spent, "ns", "derived")
    moved = Value(sum(float(group.bytes) for group in groups), "B", "nominal")
    return Verdict(
        kind="copies",
        finding=NeedlessCopies(of_step, time, place, sum(group.operations for group in groups), moved),
        evidence={"share": of_step, "time": time, "bytes": moved},
        remedies=(Remedy(CopyLess(place)),),
        share=share,
    )


def _is_copy(group: OperationGroup) -> bool:
    return group.family == "copy" and group.phase not in APART

"""Communication-bound: ranks that train together wait for each other's gradients or weights."""

from __future__ import annotations

from sonda.analysis.rules.advice import Change, TryChange
from sonda.analysis.rules.limit_findings import CommunicationBound
from sonda.analysis.rules.work import WORTH, communication_share, first_part
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.target import RanksTarget

BATCH = Remedy(TryChange(Change.LARGER_BATCH_EXCHANGES_LESS))
SAMPLES = Remedy(TryChange(Change.MORE_SAMPLES_EXCHANGE_LESS))
SELDOM = Remedy(TryChange(Change.LOCAL_SGD))
LARGER_H = Remedy(TryChange(Change.LARGER_H))
AUTO = Remedy(TryChange(Change.LEAVE_OUT_DEVICES))


def rule(summary: Summary) -> Verdict | None:
    """Fires when the time in which ranks do nothing but exchange takes a tenth of the step or more."""
    part = first_part(summary)
    waiting = communication_share(part) if part else 0.0
    if part is None or waiting < WORTH:
        return None
    spent = Value(waiting * (part.step.value or 0.0), "ns", "derived")
    spent = next((row.cost.time for row in part.phases if row.name == "communicate"), spent)
    mode = summary.target.mode if isinstance(summary.target, RanksTarget) else ""
    hybrid = (BATCH,) if "auto" in summary.target.spec.partition("@")[2].split(",") else (BATCH, AUTO)
    advice = {"ddp": (BATCH, SELDOM), "hybrid": hybrid, "localsgd": (LARGER_H,)}
    share = Value(waiting, "1", "derived")
    return Verdict(
        kind="communication",
        finding=CommunicationBound(share, spent),
        evidence={"share": share, "communicate": spent},
        remedies=advice.get(mode, (BATCH,) if summary.target.spec else (SAMPLES,)),
        share=waiting,
    )

"""Communication-bound: ranks that train together wait for each other's gradients or weights."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.rules.work import WORTH, communication_share, first_part
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.target import RanksTarget

BATCH = Remedy("give a larger --batch: a step exchanges as much, and computes more")
SAMPLES = Remedy("process more samples per step: a step exchanges as much, and computes more")
SELDOM = Remedy("average weights now and then instead of gradients in every step: --on localsgd=, and look at accuracy")
LARGER_H = Remedy("average less often, with a larger @h=")
AUTO = Remedy("leave out devices that do not pay: --on hybrid=...@auto")


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
    return Verdict(
        kind="communication",
        sentence=f"Communication-bound: exchanging with other ranks, or waiting for them, takes "
        f"{wording.percent(waiting)} of the step ({wording.duration(spent.value or 0.0)}).",
        evidence={"share": Value(waiting, "1", "derived"), "communicate": spent},
        remedies=advice.get(mode, (BATCH,) if summary.target.spec else (SAMPLES,)),
        share=waiting,
    )

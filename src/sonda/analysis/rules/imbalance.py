"""Imbalance: one rank works longer than the others, which wait for it."""

from __future__ import annotations

from sonda.analysis.rules.advice import Balance
from sonda.analysis.rules.causes import UnevenRanks
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH, first_part
from sonda.analysis.summary import Remedy, Summary, Value, Verdict


def rule(summary: Summary) -> Verdict | None:
    """Fires when the step would take a tenth less if every rank worked as long as all do on average."""
    part = first_part(summary)
    works = {rank.rank: rank.work.value for rank in part.ranks if rank.work.value} if part is not None else {}
    if part is None or len(works) < 2 or not part.step.value:
        return None
    slowest = max(works, key=lambda rank: works[rank] or 0.0)
    longest, mean = works[slowest] or 0.0, sum(work or 0.0 for work in works.values()) / len(works)
    share = min((longest - mean) / part.step.value, 1.0)
    if share < WORTH:
        return None
    of_step, time = Value(share, "1", "derived"), Value(longest - mean, "ns", "derived")
    least = Value(min(work or 0.0 for work in works.values()), "ns", "measured")
    return Verdict(
        kind="imbalance",
        finding=UnevenRanks(of_step, time, StepPlace(), slowest, Value(longest, "ns", "measured"), least),
        evidence={"share": of_step, "time": time},
        remedies=(Remedy(Balance(StepPlace())),),
        share=share,
    )

"""Imbalance: one rank works longer than the others, which wait for it."""

from __future__ import annotations

from sonda.analysis.rules.advice import BalanceRanks
from sonda.analysis.rules.cause_findings import UnevenRanks
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH, first_part
from sonda.analysis.summary import RankPhases, Remedy, Summary, Value, Verdict
from sonda.record.target import RanksTarget

PIPELINE = "pipeline"


def rule(summary: Summary) -> Verdict | None:
    """Fires when the step would take a tenth less if every rank worked as long as all do on average, and the slowest
    works longer than the average for sure."""
    part = first_part(summary)
    ranks = [rank for rank in part.ranks if rank.work.value] if part is not None else []
    if part is None or len(ranks) < 2 or not part.step.value:
        return None
    slowest = max(ranks, key=_work)
    least = min(ranks, key=_work)
    longest, mean = _work(slowest), sum(map(_work, ranks)) / len(ranks)
    share = min((longest - mean) / part.step.value, 1.0)
    # Without an interval nobody knows whether it is slower for sure.
    if share < WORTH or slowest.work.low is None or slowest.work.low <= mean:
        return None
    of_step, time = Value(share, "1", "derived"), Value(longest - mean, "ns", "derived")
    stages = isinstance(summary.target, RanksTarget) and summary.target.mode == PIPELINE
    return Verdict(
        kind="imbalance",
        finding=UnevenRanks(of_step, time, StepPlace(), slowest.rank, slowest.work, least.work),
        evidence={"share": of_step, "time": time},
        remedies=(Remedy(BalanceRanks(StepPlace(), stages)),),
        share=share,
    )


def _work(rank: RankPhases) -> float:
    return rank.work.value or 0.0

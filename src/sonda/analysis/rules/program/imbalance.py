"""Imbalance: one rank works longer than the others, which wait for it."""

from __future__ import annotations

from sonda.analysis.rules.advice import BalanceRanks
from sonda.analysis.rules.cause_findings import UnevenRanks
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH, first_part
from sonda.analysis.summary import CausePlace, RankPhases, Remedy, Summary, Value, Verdict
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
    # Without an interval, or with one of few steps, nobody knows whether it is slower for sure.
    lag = slowest.lag
    if lag.low is None or lag.few or lag.low <= 0 or (lag.value or 0.0) < WORTH:
        return None
    share = min(lag.value or 0.0, 1.0)
    of_step = Value(share, "1", "derived")
    time = Value(share * (slowest.step.value or part.step.value), "ns", "derived")
    division = summary.workload.division
    file, number = (division.file, division.line) if division is not None else ("", 0)
    place = StepPlace(line=f"{file}:{number}" if file else "")
    stages = isinstance(summary.target, RanksTarget) and summary.target.mode == PIPELINE
    return Verdict(
        kind="imbalance",
        finding=UnevenRanks(of_step, time, place, slowest.rank, slowest.work, least.work),
        evidence={"share": of_step, "time": time},
        remedies=(Remedy(BalanceRanks(place, stages)),),
        share=share,
        place=CausePlace(file, number, division.function) if division is not None else None,
    )


def _work(rank: RankPhases) -> float:
    return rank.work.value or 0.0

"""Ranks that do a part together: what each spends its step on, and which one the others wait for.

What ranks do differs by their devices, shares and stages, so nothing is ever averaged over them: the numbers of a part
are those of its critical rank, and every rank has a row of its own beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.bounds import share_of
from sonda.analysis.findings import Finding
from sonda.analysis.ranks.findings import CriticalRank
from sonda.analysis.statistics import effective_size, median
from sonda.analysis.steps.parts import COMMUNICATE, Part
from sonda.analysis.summary import PartSummary, RankPhases, Value
from sonda.record.target import RankFacts, RanksTarget, Target

UNEVEN = 0.05
"""Ranks whose work differs by less than this share of a step are alike."""

Summarised = Callable[[Part], tuple[PartSummary, list[Finding]]]


def summarise_ranks(part: Part, target: Target, summarise: Summarised) -> tuple[PartSummary, list[Finding]]:
    """The summary of a part by its critical rank, with a row for every rank, and notes.

    `summarise` gives that of one rank.
    """
    summary, notes = summarise(part)
    if not part.others:
        return summary, notes
    summaries = {mine.rank: summary if mine is part else summarise(mine)[0] for mine in part.ranks}
    facts = {rank.rank: rank for rank in target.ranks} if isinstance(target, RanksTarget) else {}
    own = {row.path for row in summary.layers}
    rows = tuple(
        replace(_row(mine, summaries[mine.rank], facts.get(mine.rank)), critical=mine is part, lag=_lag(mine, part),
                layers=tuple(row for row in summaries[mine.rank].layers if row.path not in own))
        for mine in part.ranks
    )  # fmt: skip
    return replace(summary, ranks=rows), [*notes, _critical_rank(part.name, rows)]


def _row(part: Part, summary: PartSummary, facts: RankFacts | None) -> RankPhases:
    return RankPhases(
        rank=part.rank,
        device=facts.device if facts is not None else "",
        node=(facts.node or "") if facts is not None else "",
        step=summary.step,
        work=_work(part, summary),
        phases={row.name: row.cost.time for row in summary.phases},
        flops=_flops(summary),
        steps=summary.steps,
        critical=False,
    )


def _work(part: Part, summary: PartSummary) -> Value:
    if not part.measured.any():
        return Value(None, "ns", "measured", reason=summary.step.reason)
    work = median(part.works, part.effective)
    return Value(work.value, "ns", "measured", work.low, work.high, few=work.few)


def _lag(mine: Part, part: Part) -> Value:
    """Ranks do each step together, so it is compared step by step: how long steps are matters for none of them."""
    positions = {other.rank: _positions(other) for other in part.ranks}
    common = np.array(sorted(set.intersection(*(set(known.tolist()) for known in positions.values()))), dtype=np.int64)
    if not len(common):
        return Value(None, "1", "derived", reason=reasons.NO_STEP_TIMED)
    works = {other.rank: other.works[np.isin(positions[other.rank], common)] for other in part.ranks}
    steps = mine.durations[mine.measured][np.isin(positions[mine.rank], common)]
    lags = (works[mine.rank] - np.mean(list(works.values()), axis=0)) / np.maximum(steps, 1)
    lag = median(lags, effective_size(lags))
    return Value(lag.value, "1", "derived", lag.low, lag.high, few=lag.few)


def _positions(part: Part) -> np.ndarray:
    """The place of each measured step among all steps of its rank."""
    spans = part.index.spans
    own = np.flatnonzero(spans.where(kind="step") & (spans.number("rank") == part.rank))
    start = spans.number("start")
    places: np.ndarray = np.searchsorted(np.sort(start[own]), start[part.rows[part.measured]])
    return places


def _flops(summary: PartSummary) -> Value:
    counted = [row.cost.flops for row in summary.phases if row.cost.flops.value is not None]
    if not counted:
        known_reasons = (row.cost.flops.reason for row in summary.phases if row.cost.flops.reason)
        return Value(None, "FLOP", "nominal", reason=next(known_reasons, reasons.NOTHING_COUNTED))
    reason = next((value.reason for value in counted if value.reason), "")
    return Value(sum(value.value or 0.0 for value in counted), "FLOP", "nominal", reason=reason)


def _critical_rank(part: str, rows: Sequence[RankPhases]) -> Finding:
    """Whose numbers they are, and who waits."""
    critical = next(row for row in rows if row.critical)
    finding = CriticalRank(part, critical.rank, critical.device)
    step, work = critical.step.value, critical.work.value
    waits = [
        (row, row.phases[COMMUNICATE].value or 0.0)
        for row in rows
        if not row.critical and COMMUNICATE in row.phases and row.work.value is not None
    ]
    if not waits or not step or work is None:
        return finding
    longest, waited = max(waits, key=lambda wait: wait[1])
    if work - (longest.work.value or 0.0) < UNEVEN * step:
        return replace(finding, alike=True)
    share = share_of(Value(waited, "ns", "measured"), longest.step).value("").value
    return replace(finding, waiting=longest.rank, waiting_device=longest.device, waited=waited, share=share)

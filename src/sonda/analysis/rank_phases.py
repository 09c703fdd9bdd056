"""Ranks that do a part together: what each spends its step on, and which one the others wait for.

What ranks do differs by their devices, shares and stages, so nothing is ever averaged over them: the numbers of a part
are those of its critical rank, and every rank has a row of its own beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sonda.analysis import wording
from sonda.analysis.parts import COMMUNICATE, Part
from sonda.analysis.summary import PartSummary, RankPhases, Value

UNEVEN = 0.05
"""Ranks whose work differs by less than this share of a step are alike."""

Summarised = Callable[[Part], tuple[PartSummary, list[str]]]


def summarise_ranks(part: Part, target: Mapping[str, Any], summarise: Summarised) -> tuple[PartSummary, list[str]]:
    """The summary of a part by its critical rank, with a row for every rank, and notes.

    `summarise` gives that of one rank.
    """
    summary, notes = summarise(part)
    if not part.others:
        return summary, notes
    found = {one.rank: summary if one is part else summarise(one)[0] for one in part.ranks}
    about = {int(one["rank"]): one for one in target.get("ranks", ()) if "rank" in one}
    own = {row.path for row in summary.layers}
    rows = tuple(
        replace(_row(one, found[one.rank], about.get(one.rank, {})), critical=one is part,
                layers=tuple(row for row in found[one.rank].layers if row.path not in own))
        for one in part.ranks
    )  # fmt: skip
    return replace(summary, ranks=rows), [*notes, _sentence(part.name, rows)]


def _row(part: Part, summary: PartSummary, about: Mapping[str, Any]) -> RankPhases:
    return RankPhases(
        rank=part.rank,
        device=str(about.get("device", "")),
        node=str(about.get("node", "")),
        step=summary.step,
        work=Value(None if math.isnan(part.work) else part.work, "ns", "measured", reason=summary.step.reason),
        phases={row.name: row.cost.time for row in summary.phases},
        flops=_flops(summary),
        steps=summary.steps,
        critical=False,
    )


def _flops(summary: PartSummary) -> Value:
    counted = [row.cost.flops for row in summary.phases if row.cost.flops.value is not None]
    if not counted:
        reasons = [row.cost.flops.reason for row in summary.phases if row.cost.flops.reason]
        return Value(None, "FLOP", "nominal", reason=reasons[0] if reasons else "nothing was counted")
    reason = next((one.reason for one in counted if one.reason), "")
    return Value(sum(one.value or 0.0 for one in counted), "FLOP", "nominal", reason=reason)


def name_of(row: RankPhases) -> str:
    """A rank with its device: `rank 1 (cpu/1)`."""
    return f"rank {row.rank}" + (f" ({row.device})" if row.device else "")


def _sentence(part: str, rows: Sequence[RankPhases]) -> str:
    """Whose numbers they are, and who waits."""
    critical = next(row for row in rows if row.critical)
    said = f"{part}: step, phases, layers and rates are those of {name_of(critical)}"
    step, work = critical.step.value, critical.work.value
    waits = [
        (row, row.phases[COMMUNICATE].value or 0.0)
        for row in rows
        if not row.critical and COMMUNICATE in row.phases and row.work.value is not None
    ]
    if not waits or not step or work is None:
        return said
    longest, waited = max(waits, key=lambda one: one[1])
    if work - (longest.work.value or 0.0) < UNEVEN * step:
        return f"{said}; ranks work alike"
    return f"{said}, which works longest; {name_of(longest)} waits {wording.percent(waited / step)} of its step"

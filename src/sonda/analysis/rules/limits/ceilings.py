"""Above the ceilings: work that was faster than this machine was measured to be, so that its limit cannot be named."""

from __future__ import annotations

from sonda.analysis.rules.advice import Change, TryChange
from sonda.analysis.rules.limit_findings import AboveCeiling
from sonda.analysis.rules.work import WORTH, Work, above, first_part, leading, limit, pieces_of, share, time
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

AGAIN = Remedy(TryChange(Change.MEASURE_CEILINGS))


def rule(summary: Summary) -> Verdict | None:
    """Fires when work that beat a ceiling beyond all uncertainty takes a tenth of the step or more."""
    part = first_part(summary)
    beaten = above(part) if part else []
    if share(beaten) < WORTH:
        return None
    by_ceiling: dict[str, list[Work]] = {}
    for work in beaten:
        by_ceiling.setdefault(work.above, []).append(work)
    name, members = max(by_ceiling.items(), key=lambda item: share(item[1]))
    named = leading(members)
    finding, evidence = {"compute": _computed, "memory": _moved}[name](named)
    return Verdict(
        kind="above_ceiling",
        finding=finding,
        evidence={"share": finding.share, **evidence},
        remedies=(AGAIN,),
        share=share(beaten),
    )


Above = tuple[AboveCeiling, dict[str, Value]]


def _computed(named: list[Work]) -> Above:
    flops = sum((work.cost.executed or work.cost.flops).value or 0.0 for work in named)
    achieved = Value(1e9 * flops / time(named), "FLOP/s", "derived")
    ceiling = Value(1e9 * flops / limit(named, "compute"), "FLOP/s", "measured")
    finding = AboveCeiling("compute", pieces_of(named), _share(named), achieved, ceiling)
    return finding, {"flops": Value(flops, "FLOP", "nominal"), "achieved": achieved, "ceiling": ceiling}


def _moved(named: list[Work]) -> Above:
    moved = sum(work.cost.bytes.value or 0.0 for work in named)
    achieved = Value(1e9 * moved / time(named), "B/s", "derived")
    ceiling = Value(1e9 * moved / limit(named, "memory"), "B/s", "measured")
    finding = AboveCeiling("memory", pieces_of(named), _share(named), achieved, ceiling)
    return finding, {"bytes": Value(moved, "B", "nominal"), "achieved": achieved, "ceiling": ceiling}


def _share(named: list[Work]) -> Value:
    return Value(share(named), "1", "derived")

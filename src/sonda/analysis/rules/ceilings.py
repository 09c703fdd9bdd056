"""Above the ceilings: work that was faster than this machine was measured to be, so that its limit cannot be named."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.roofline import MEASURE_AGAIN
from sonda.analysis.rules.memory import subject
from sonda.analysis.rules.work import WORTH, Work, above, families, first_part, leading, limit, share, time
from sonda.analysis.summary import Remedy, Summary, Value, Verdict

AGAIN = Remedy(MEASURE_AGAIN)


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
    say = {"compute": _computed, "memory": _moved, "overhead": _dispatched}[name]
    sentence, evidence = say(named)
    unknown = f"What limits {wording.percent(share(named))} of the step cannot be said."
    return Verdict(
        kind="none",
        sentence=f"Faster than this machine was measured to be: {sentence}. {unknown}",
        evidence={"share": Value(share(named), "1", "derived"), **evidence},
        remedies=(AGAIN,),
        share=share(beaten),
    )


Said = tuple[str, dict[str, Value]]


def _computed(named: list[Work]) -> Said:
    flops = sum(work.cost.flops.value or 0.0 for work in named)
    rate, ceiling = 1e9 * flops / time(named), 1e9 * flops / limit(named, "compute")
    verb = "computes" if len(named) == 1 else "compute"
    peak = wording.amount(ceiling, "FLOP/s")
    sentence = f"{subject(named)} {verb} {wording.amount(rate, 'FLOP/s')} where the peak is {peak}"
    return sentence, {
        "flops": Value(flops, "FLOP", "nominal"),
        "achieved": Value(rate, "FLOP/s", "derived"),
        "ceiling": Value(ceiling, "FLOP/s", "measured"),
    }


def _moved(named: list[Work]) -> Said:
    moved = sum(work.cost.bytes.value or 0.0 for work in named)
    rate, ceiling = 1e9 * moved / time(named), 1e9 * moved / limit(named, "memory")
    verb = "moves" if len(named) == 1 else "move"
    bandwidth = wording.amount(ceiling, "B/s")
    sentence = f"{subject(named)} {verb} {wording.amount(rate, 'B/s')} where the bandwidth is {bandwidth}"
    return sentence, {
        "bytes": Value(moved, "B", "nominal"),
        "achieved": Value(rate, "B/s", "derived"),
        "ceiling": Value(ceiling, "B/s", "measured"),
    }


def _dispatched(named: list[Work]) -> Said:
    operations = sum(work.cost.operations.value or 0.0 for work in named)
    took, ceiling = time(named) / operations, limit(named, "overhead") / operations
    sentence = (
        f"{wording.plural(operations, 'operation')} of {families(named)} take {wording.duration(took)} each where a "
        f"small one takes {wording.duration(ceiling)}"
    )
    return sentence, {
        "operations": Value(operations, "1", "counted"),
        "operation_time": Value(took, "ns", "derived"),
        "operation_cost": Value(ceiling, "ns", "measured"),
    }

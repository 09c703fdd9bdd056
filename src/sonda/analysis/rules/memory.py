"""Memory-bound: moving data at the measured bandwidth explains the time."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.rules import remedies
from sonda.analysis.rules.work import MOST_NAMED, WORTH, Work, bound_by, first_part, leading, limit, share, time
from sonda.analysis.summary import Summary, Value, Verdict

MOSTLY = 0.5
"""The memory that moves more than half of the bytes gives the bandwidth its name."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when layers or phases bound by memory take a tenth of the step or more."""
    part = first_part(summary)
    found = bound_by(part, "memory") if part else []
    if share(found) < WORTH:
        return None
    named = leading(found)
    moved = sum(work.cost.bytes.value or 0.0 for work in named)
    cached = sum((work.cost.bytes.value or 0.0) * work.cost.cached for work in named)
    of_bandwidth = limit(named, "memory") / time(named)
    memory = "last-level cache" if cached > MOSTLY * moved else "DRAM"
    verb = "moves" if len(named) == 1 else "move"
    return Verdict(
        kind="memory",
        sentence=f"Memory-bound: {_subject(named)} {verb} {wording.amount(moved, 'B')} a step at "
        f"{wording.of_ceiling(of_bandwidth, f'{memory} bandwidth')}, {wording.percent(share(named))} of the step.",
        evidence={
            "share": Value(share(named), "1", "derived"),
            "bytes": Value(moved, "B", "nominal"),
            "of_bandwidth": Value(of_bandwidth, "1", "derived"),
            "bandwidth": summary.ceilings["dram_bandwidth" if memory == "DRAM" else "cache_bandwidth"],
        },
        remedies=remedies.remedies(summary, remedies.float32, remedies.compiled, remedies.threads, remedies.bfloat16),
        share=share(found),
    )


def _subject(found: list[Work]) -> str:
    """`36 normalisations and activations`, `1 linear layer and the optimizer`."""
    layers = [work for work in found if work.layer]
    names = list(dict.fromkeys(wording.family(work.name, len(layers)) for work in layers))
    names = names if len(names) <= MOST_NAMED else ["layers"]
    counted = [f"{len(layers)} {wording.join(names)}"] if layers else []
    return wording.join(counted + list(dict.fromkeys(work.family for work in found if not work.layer)))

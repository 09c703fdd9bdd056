"""Memory-bound: moving data at the measured bandwidth explains the time."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.roofline import ABOVE_ROOF
from sonda.analysis.rules import remedies
from sonda.analysis.rules.work import MOST_NAMED, WORTH, Work, bound_by, first_part, leading, reached, share
from sonda.analysis.summary import Summary, Value, Verdict

MOSTLY = 0.5
"""The memory that moves more than half of the bytes gives the bandwidth its name."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when layers or phases bound by memory take a tenth of the step or more."""
    part = first_part(summary)
    bounded = bound_by(part, "memory") if part else []
    if share(bounded) < WORTH:
        return None
    named = leading(bounded)
    moved = sum(work.cost.bytes.value or 0.0 for work in named)
    cached = sum((work.cost.bytes.value or 0.0) * work.cost.cached for work in named)
    of_bandwidth = reached(named, "memory")
    memory = "last-level cache" if cached > MOSTLY * moved else "DRAM"
    verb = "moves" if len(named) == 1 else "move"
    return Verdict(
        kind="memory",
        sentence=f"Memory-bound: {subject(named)} {verb} {wording.amount(moved, 'B')} a step at "
        f"{wording.of_ceiling(of_bandwidth, f'{memory} bandwidth')}, {wording.percent(share(named))} of the step.",
        evidence={
            "share": Value(share(named), "1", "derived"),
            "bytes": Value(moved, "B", "nominal"),
            "of_bandwidth": of_bandwidth.value(ABOVE_ROOF),
            "bandwidth": summary.ceilings["dram_bandwidth" if memory == "DRAM" else "cache_bandwidth"],
        },
        remedies=remedies.remedies(summary, remedies.float32, remedies.compiled, remedies.threads, remedies.bfloat16),
        share=share(bounded),
    )


def subject(work: list[Work]) -> str:
    """`36 normalisations and activations`, `1 linear layer and the optimizer`."""
    layers = [work for work in work if work.layer]
    names = list(dict.fromkeys(wording.family(work.name, len(layers)) for work in layers))
    names = names if len(names) <= MOST_NAMED else ["layers"]
    counted = [f"{len(layers)} {wording.join(names)}"] if layers else []
    return wording.join(counted + list(dict.fromkeys(work.family for work in work if not work.layer)))
